"""Replies of a prescribed form: JSON that fits a schema, or any grammar of llguidance."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import forks
from ...errors import InputError, to_install
from .text import Tokenizer

JOINING = {"Metaspace", "Fuse", "Replace", "Strip"}  # decoders that put tokens' texts together
SPACES = r"( |\n[ \t]{0,40})?"  # between the parts of JSON: a model must not go on for ever


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of JSON texts that fit a JSON schema. Raises InputError."""
    if not isinstance(schema, Mapping):
        raise InputError(f"schema={schema!r}: a JSON schema is an object")
    return str(_library().LLMatcher.grammar_from_json_schema(spaced(schema)))


def spaced(schema: Mapping[str, Any]) -> str:
    """A JSON schema that llguidance lets be written with SPACES."""
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": SPACES}})


class Grammars:
    """Constraints for one tokenizer, whose vocabulary is read when one is first asked for. ends:
    the tokens that end a reply."""

    def __init__(self, tokenizer: Tokenizer, ends: Sequence[int]) -> None:
        self._tokenizer, self._ends, self._lock = tokenizer, list(ends), threading.RLock()
        forks.guard(self, "_lock", forks.INNER)
        self._words: Any = None

    def form(self, grammar: str) -> Callable[[], Constraint]:
        """What makes the constraint of each reply. Raises InputError for a grammar that is wrong,
        or too large."""
        matcher = _library().LLMatcher(self._vocabulary(), grammar, log_level=0)
        _check(matcher)
        trial = matcher.deep_copy()
        trial.compute_bitmask()
        if trial.is_error():  # a schema that is only itself, say
            raise InputError("no reply can have this form: nothing fits it")
        return lambda: Constraint(matcher.deep_copy(), self._vocabulary())

    def _vocabulary(self) -> Any:
        with self._lock:
            if self._words is None:
                self._words = _words_of(self._tokenizer.raw, self._ends or None)
        return self._words


class Constraint:
    """What the next token of a reply may be. words: llguidance's vocabulary."""

    def __init__(self, matcher: Any, words: Any) -> None:
        self._matcher, self._words = matcher, words

    def masked(self, logits: np.ndarray) -> np.ndarray:
        """Logits (vocabulary,) f32 without the tokens that do not fit: -inf. Raises InputError for
        a grammar that grew too large."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        _check(self._matcher)
        fits = self._spelled(np.flatnonzero(np.unpackbits(mask, bitorder="little")[: len(logits)]))
        found = np.full_like(logits, -np.inf)
        found[fits] = logits[fits]
        return found

    def _spelled(self, fits: np.ndarray) -> np.ndarray:
        """Tokens that fit. A text that must come may be the name of a special token, which is what
        llguidance makes of it then, but does not take."""
        if len(fits) != 1 or self._matcher.validate_tokens(fits.tolist()):
            return fits
        text = self._matcher.compute_ff_bytes().decode(errors="replace")
        return np.array(self._words.greedy_tokenize(text)[:1] or fits)

    def push(self, token: int) -> bool:
        """The token that was chosen; whether more may follow. Raises InputError."""
        self._matcher.consume_token(token)
        _check(self._matcher)
        return not self._matcher.is_stopped()


def _words_of(raw: Any, ends: list[int] | None) -> Any:
    """What llguidance knows of a tokenizer. Raises InputError."""
    text, made = raw.to_str(), _library().LLTokenizer
    try:
        return made(text, eos_token=ends)
    except ValueError:  # a decoder that it does not know
        return made(_with_bytes(text, raw), eos_token=ends)


def _with_bytes(text: str, raw: Any) -> str:
    """A tokenizer as JSON, with a decoder that llguidance knows and by which tokens stand for the
    same: where their texts follow each other, and none is the name of a byte. Raises InputError."""
    given = json.loads(text)
    decoder = given["decoder"] or {}
    parts = decoder.get("decoders", [decoder])
    kinds = [part.get("type") for part in parts]
    if not JOINING.issuperset(kinds) or any(name.startswith("<0x") for name in raw.get_vocab()):
        shown = ", ".join(map(str, kinds))
        raise InputError("replies of a prescribed form need tokens whose texts follow each other; "
                         f"this model's tokenizer has another decoder: {shown}")  # fmt: skip
    steps = [_spaces(part) if part["type"] == "Metaspace" else part for part in parts]
    given["decoder"] = {"type": "Sequence", "decoders": [*steps, {"type": "ByteFallback"}]}
    return json.dumps(given)


def _spaces(metaspace: Mapping[str, Any]) -> dict[str, Any]:
    """The decoder of spaces that have a character of their own."""
    pattern = {"String": metaspace["replacement"]}
    return {"type": "Replace", "pattern": pattern, "content": " "}


def _check(matcher: Any) -> None:
    if matcher.is_error():
        fault = matcher.get_error().strip().partition("\n")[0]
        raise InputError(f"no reply can have this form: {fault}")


def _library() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError:
        raise InputError(
            f"replies of a prescribed form need llguidance: {to_install('serve')}"
        ) from None
