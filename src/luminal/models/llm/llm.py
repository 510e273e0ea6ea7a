"""A language model in one object: load, generate, stream, logits."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast, overload

import numpy as np

from ... import forks
from ...errors import InputError, LuminalError
from ...once import computed_once
from ...progress import showing
from .config import DecoderConfig
from .draft import USUAL, Draft, Guesser, check_guesses, common, drafted
from .engine import Engine
from .grammar import Grammars, json_grammar
from .loading import Loaded, load
from .lookup import Lookup
from .pictures import check_tokens
from .program import DecoderProgram
from .reply import Piece, Reply, Wishes
from .sampling import Sampling
from .templates import Message
from .text import Tokenizer

BATCH = 16  # replies that are made at once
Prompt: TypeAlias = str | Sequence[Message] | Sequence[int]
Several: TypeAlias = list[str] | list[list[int]] | list[list[Message]]


@dataclass(frozen=True)
class Completion:
    """A whole reply. tokens: without the end token. logprobs: natural logarithms, of each token."""

    text: str
    tokens: list[int]
    logprobs: list[float]
    finish: str
    prompt_tokens: int


class LLM:
    """A language model from a directory, a GGUF file, or a name on the Hugging Face hub; None: the
    packaged SmolLM2-135M-Instruct; "luminal-tiny": one of 3 million parameters that luminal itself
    has trained (models/own/luminal-tiny.md).

    quant: None keeps the weights as the checkpoint has them; "q8" and "q4" quantise them to GGUF's
    Q8_0 and Q4_0 when they are loaded, "bf16" and "f16" round them. precision: "quantised" rounds
    activations to 8 bits where they meet integer weights (as llama.cpp does; the bound is in
    `luminal.precision.contracts`) and nowhere else; "f32" multiplies all weights in f32; None is
    "bf16" where a GPU multiplies matrices of it, else "quantised" for all but the packaged model.
    context: how many tokens a conversation may have (by default what the model was trained for,
    at most 4096). progress: whether a line on the error stream says how far loading, compiling and
    searching are; None: where it is a terminal. kv: how the keys and values of earlier tokens are
    kept (`cache.Rows`): "f32"; "f16", usual unless precision is "f32" or the weights are; or
    "int8", which moves logits by about 1% of their size; or "fp8" (E4M3), by about 5%. lora: a
    folder or a name on the hub with an adapter of `peft`, or a GGUF file of one, which is merged
    into the weights. draft: a smaller model with the same tokens, which makes the guesses of
    `speculate` (4 if none are asked for). mmproj: the GGUF file with the eyes of a GGUF model;
    None: one that lies beside it, mmproj-*.gguf. search, seed, database: as in `Graph.compile`.
    Raises WeightsError, Unsupported or InputError before anything is run.

    There is one cache. Tokens that a prompt has in common with what it holds are not computed
    again; replies made at the same time are right, but compute their conversations anew in turns.

    >>> llm = luminal.LLM("luminal-tiny")
    >>> reply = llm.complete("Once upon a time", max_tokens=8)
    >>> len(reply.tokens), reply.finish
    (8, 'length')
    """

    def __init__(
        self, path_or_id: str | Path | None = None, quant: str | None = None,
        precision: str | None = None, context: int | None = None, search: int | str = 0,
        threads: int | None = None,
        device: str = "auto", progress: bool | None = None, kv: str | None = None,
        seed: int = 0, database: str | Path | bool | None = None,
        lora: str | Path | None = None, draft: str | Path | None = None,
        mmproj: str | Path | None = None,
    ) -> None:  # fmt: skip
        found = load(
            path_or_id, quant, context, kv=kv, precision=precision, lora=lora, device=device,
            mmproj=mmproj,
        )  # fmt: skip
        self.config: DecoderConfig = found.config
        self.context = found.context
        self._text = found.text
        options: dict[str, Any] = {
            "threads": threads, "device": device, "search": search,
            "precision": found.precision,
            "seed": seed, "database": database,
        }  # fmt: skip
        with showing(progress):
            self.program = DecoderProgram(
                self.config, found.state, self.context, found.storage, identity=found.identity,
                kv=found.kv, **options,
            )  # fmt: skip
            self._draft = None if draft is None else self._drafting(draft, found, options)
        self.program.pictures = found.pictures
        self._lock, self._progress = threading.RLock(), progress
        forks.guard(self, "_lock", forks.OUTER)
        self._engine: Engine | None = None
        self._load_engine = partial(
            Engine.load,
            path_or_id,
            quant,
            context=self.context,
            batch=BATCH,
            kv=found.kv,
            lora=lora,
            mmproj=mmproj,
            **options,
        )

    def _drafting(self, path_or_id: str | Path, large: Loaded, options: dict[str, Any]) -> Draft:
        """The small model."""
        found = drafted(path_or_id, large, options["device"])
        options = options | {"precision": found.precision}
        program = DecoderProgram(
            found.config, found.state, found.context, found.storage, identity=found.identity,
            kv=found.kv, **options,
        )  # fmt: skip
        return Draft(program, self.config.vocabulary)

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to tokens and back. Raises WeightsError where the checkpoint has none."""
        if isinstance(self._text, LuminalError):
            raise self._text
        return self._text

    # ---- text

    @overload
    def generate(
        self, prompt: Prompt, max_tokens: int = ..., stop: str | Sequence[str] = ...,
        speculate: int = ..., **sampling: Any,
    ) -> str: ...  # fmt: skip

    @overload
    def generate(
        self, prompt: Several, max_tokens: int = ..., stop: str | Sequence[str] = ...,
        speculate: int = ..., **sampling: Any,
    ) -> list[str]: ...  # fmt: skip

    def generate(
        self, prompt: Prompt | Several, max_tokens: int = 256,
        stop: str | Sequence[str] = (), speculate: int = 0, **sampling: Any,
    ) -> str | list[str]:  # fmt: skip
        """The reply to a text, a conversation, or token ids; the replies to a list of those.

        speculate: how many tokens may be guessed from what came before (or by the draft model,
        where there is one) and checked in one run; the
        reply stays what it is without (but for near ties, as sums are rounded differently, by much
        in precision "quantised": docs/limits.md), and takes fewer runs where it repeats the prompt
        or itself. Of one prompt only. sampling: fields
        of `Sampling`; and `schema`: a JSON schema, which the reply then fits."""
        if _several(prompt):
            if speculate:
                raise InputError("speculate is for one prompt; several share their runs already")
            return [made.text for made in self.complete_all(prompt, max_tokens, stop, **sampling)]
        return self.complete(cast(Prompt, prompt), max_tokens, stop, speculate, **sampling).text

    def stream(
        self, prompt: Prompt, max_tokens: int = 256,
        stop: str | Sequence[str] = (), speculate: int = 0, **sampling: Any,
    ) -> Iterator[str]:  # fmt: skip
        """The reply in pieces of whole characters, as they are made."""
        for piece in self.pieces(prompt, max_tokens, stop, speculate=speculate, **sampling):
            if piece.text:
                yield piece.text

    def complete(
        self, prompt: Prompt, max_tokens: int = 256,
        stop: str | Sequence[str] = (), speculate: int = 0, **sampling: Any,
    ) -> Completion:  # fmt: skip
        """The reply with its tokens, their log probabilities, and why it ended."""
        ids = self.ids(prompt)
        pieces = list(self.pieces(ids, max_tokens, stop, True, speculate, **sampling))
        return _completion(pieces, len(ids))

    def complete_all(
        self, prompts: Several, max_tokens: int = 256, stop: str | Sequence[str] = (),
        **sampling: Any,
    ) -> list[Completion]:  # fmt: skip
        """The replies to several prompts, made together: weights are read once for all of them. The
        first call compiles a second program, with a cache of its own."""
        ids = [self.ids(prompt) for prompt in prompts]
        wishes = self._wishes(max_tokens, stop, True, sampling)
        with self._lock, showing(self._progress):
            if self._engine is None or self._engine.is_forked:
                self._engine = self._load_engine()
        return [
            _completion(pieces, len(given))
            for given, pieces in zip(ids, self._engine.complete(ids, wishes))
        ]

    def pieces(
        self, prompt: Prompt, max_tokens: int = 256,
        stop: str | Sequence[str] = (), logprobs: bool = False, speculate: int = 0,
        **sampling: Any,
    ) -> Iterator[Piece]:  # fmt: skip
        """The reply step by step. A reply ends at an end token or a stop text ("stop"), or after
        max_tokens or at the end of the context ("length")."""
        wishes, ids = self._wishes(max_tokens, stop, logprobs, sampling), self.ids(prompt)
        speculate = speculate or (0 if self._draft is None else USUAL)
        self._check_prompt(ids)
        if not 0 <= speculate < self.program.chunk:
            raise InputError(f"speculate={speculate}: 0 to {self.program.chunk - 1} tokens")
        if speculate:
            check_guesses(self.config)
        seen = check_tokens(ids, self.config.vocabulary, self.program.pictures)
        reply = Reply(ids, wishes, self.tokenizer, self.context, seen)
        guesser: Guesser = self._draft or Lookup()
        while reply.finish is None:
            count = min(speculate, reply.left - 1)
            guess = self._guess(guesser, reply.tokens, count) if count else []
            yield from self._checked(reply, guess)

    def _guess(self, guesser: Guesser, tokens: list[int], count: int) -> list[int]:
        with self._lock:  # a draft model has one cache
            return guesser.guess(tokens, count)

    def _checked(self, reply: Reply, guess: list[int]) -> Iterator[Piece]:
        """The pieces of the next token, and of those after it as long as the guess is what the
        reply chooses."""
        for expected, logits in zip([*guess, None], self._after(reply, guess)):
            yield from reply.push(logits)
            if reply.finish is not None or reply.tokens[-1] != expected:
                return

    def _wishes(
        self, limit: int, stop: str | Sequence[str], logprobs: bool, sampling: dict[str, Any]
    ) -> Wishes:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(limit, (int, np.integer)) or limit < 1:
            raise InputError(f"max_tokens={limit!r}: a whole number of at least 1")
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"stop={stop!r}: a text, or a list of those")
        schema, likely = sampling.pop("schema", None), 0 if logprobs else None
        form = None if schema is None else self._grammars.form(json_grammar(schema))
        chosen = _sampling(sampling)
        chosen.check(self.config.vocabulary)
        return Wishes(limit, texts, self.config.end_tokens, likely, chosen, form)

    @computed_once
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer, self.config.end_tokens)

    def _after(self, reply: Reply, guess: list[int]) -> np.ndarray:
        """Logits (1 + guess, vocabulary) after the reply's tokens and after each of the guess; what
        the cache holds of them is kept."""
        ids = reply.tokens
        with self._lock:
            self.program.keep(common(self.program.tokens, ids[:-1]), reply.prompt)
            known = len(self.program.tokens)
            return self.program.feed(ids[known:] + guess, 1 + len(guess))

    # ---- numbers

    def ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a text, of a conversation, or as given."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        entries = list(prompt) if isinstance(prompt, Iterable) else [None]
        messages = [entry for entry in entries if isinstance(entry, Mapping)]
        tokens = [int(entry) for entry in entries if _is_token(entry)]
        if isinstance(prompt, (bytes, Mapping)) or len(entries) not in (len(messages), len(tokens)):
            shown = repr(prompt)[:80]
            raise InputError(f"a prompt is a text, a list of messages or of token ids: {shown}")
        return self.tokenizer.chat(messages) if messages else tokens

    def logits(self, token_ids: Sequence[int]) -> np.ndarray:
        """Logits (tokens, vocabulary) f32 after each token of one sequence."""
        ids = [int(token) for token in token_ids]
        self._check_prompt(ids)
        with self._lock:
            self.program.keep(0)
            return self.program.feed(ids, len(ids)).copy()

    def _check_prompt(self, ids: Sequence[int]) -> None:
        if not ids:
            raise InputError("the prompt is empty")
        if len(ids) > self.context:
            raise InputError(
                f"the prompt has {len(ids)} tokens, the context {self.context}: "
                "shorten it or load the model with a larger context"
            )


def _is_token(entry: Any) -> TypeGuard[int]:
    return isinstance(entry, (int, np.integer)) and not isinstance(entry, bool)


def _several(prompt: Prompt | Several) -> TypeGuard[Several]:
    """Whether these are several prompts: texts, or lists of tokens or messages."""
    return isinstance(prompt, list) and any(isinstance(entry, (str, list)) for entry in prompt)


def _completion(pieces: list[Piece], prompt_tokens: int) -> Completion:
    tokens = [piece.token for piece in pieces if piece.token is not None]
    logprobs = [piece.logprob for piece in pieces if piece.logprob is not None]
    text = "".join(piece.text for piece in pieces)
    return Completion(text, tokens, logprobs, pieces[-1].finish or "length", prompt_tokens)


def _sampling(options: dict[str, Any]) -> Sampling:
    unknown = options.keys() - Sampling.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Sampling.__dataclass_fields__)
        raise InputError(f"unknown option {sorted(unknown)[0]!r}; there are {known}")
    return Sampling(**options)
