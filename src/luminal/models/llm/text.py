"""Text to tokens and back: tokenizers, streaming without half characters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...weights.fields import Fields
from ..sentencepiece import read_model
from ..tokenizing import read_tokenizer, refused, tokenizers
from .added import add_tokens, read_settings
from .templates import Message, Templates, Tool, read_templates, special_tokens

LONG = 1 << 14  # characters from which other threads go on meanwhile; a batch lets go of the GIL
UNFINISHED = "\ufffd"  # what a decoder shows for bytes that are no whole character


class Tokenizer:
    """A tokenizer with its chat templates. raw: of the tokenizers package."""

    def __init__(self, raw: Any, templates: Templates | None = None) -> None:
        self.raw = raw
        self.templates = templates or Templates({}, {})
        self.sight: Any = None  # of a model that sees: `vision.sight.Sight`
        self.blind = "this model sees no pictures"

    @property
    def template(self) -> str | None:
        """The usual chat template, if there is one."""
        return self.templates.choose()

    @property
    def converses(self) -> bool:
        """Whether it knows how a conversation is put to the model."""
        return self.template is not None or (self.sight is not None and not self.sight.templated)

    @property
    def vocabulary(self) -> int:
        """The number of tokens, added ones too."""
        return int(self.raw.get_vocab_size())

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids; with the tokens that the model wants around every text if `special`. Raises
        InputError for half a surrogate pair, which is no character."""
        try:
            if len(text) > LONG:
                return list(self.raw.encode_batch_fast([text], add_special_tokens=special)[0].ids)
            return list(self.raw.encode(text, add_special_tokens=special).ids)
        except TypeError:
            raise InputError(f"no text: {text[:40]!r}") from None
        except BaseException as error:
            raise refused(error, "this model's tokenizer cannot encode the text") from None

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of token ids; special tokens are shown only if asked for."""
        try:
            return str(self.raw.decode(list(ids), skip_special_tokens=not special))
        except BaseException as error:
            raise refused(error, "this model's tokenizer cannot decode the tokens") from None

    @cached_property
    def longest(self) -> int:
        """The most characters that one token stands for."""
        return max(map(len, self.raw.get_vocab(with_added_tokens=True)), default=1)

    @cached_property
    def anchor(self) -> list[int]:
        """A token behind which others keep the space that they begin with; none if none is known.
        """
        ids = self.encode("a", special=False)[-1:]
        return ids if self.decode(ids) == "a" else []

    def piece(self, token: int) -> str | None:
        """A token's text as it is inside of a text; None where that is no whole characters."""
        before, whole = (
            self.decode(ids, special=True) for ids in (self.anchor, [*self.anchor, token])
        )
        text = whole[len(before) :]
        return None if UNFINISHED in text else text

    def name(self, token: int) -> str:
        """A token's text; where that is no whole characters, as the vocabulary writes it."""
        text = self.piece(token)
        return text if text is not None else self.raw.id_to_token(token) or UNFINISHED

    def bytes(self, token: int) -> bytes:
        """Of a token's text; where that is no whole characters, those that the vocabulary means."""
        if (text := self.piece(token)) is not None:
            return text.encode()
        entry = self.raw.id_to_token(token) or ""
        if re.fullmatch("<0x[0-9A-F]{2}>", entry):
            return bytes.fromhex(entry[3:5])
        letters = byte_letters()
        return bytes(letters[c] for c in entry) if letters.keys() >= {*entry} else entry.encode()

    def token(self, text: str) -> int | None:
        """The id of a token, if there is one."""
        found: int | None = self.raw.token_to_id(text)
        return found

    def chat(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), **options: Any
    ) -> list[int]:
        """Token ids of a conversation, ready for the assistant's reply. options: those of
        `Templates.render`. Raises InputError."""
        return self.conversation(messages, tools, **options)[1]

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), **options: Any
    ) -> tuple[str, list[int]]:
        """(its text, its token ids), as `chat`."""
        if self.sight is not None:
            made: tuple[str, list[int]] = self.sight.conversation(
                self, messages, lambda said: self.render(said, tools, **options)
            )
            return made
        said = (each.get("content") for each in messages if isinstance(each, Mapping))
        parts = (part for each in said if isinstance(each, list) for part in each)
        if any(isinstance(p, Mapping) and p.get("type") in ("image", "image_url") for p in parts):
            raise InputError(self.blind)
        text = self.render(messages, tools, **options)
        return text, self.encode(text, special=False)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), **options: Any
    ) -> str:
        """The text that the chat template makes of a conversation, as `Templates.render`."""
        return self.templates.render(messages, tools, **options)


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a model's directory. Raises WeightsError."""
    values, pieces = read_settings(directory), directory / "tokenizer.model"
    alone = pieces.exists() and not (directory / "tokenizer.json").exists()
    given = Fields(values, str(directory / "tokenizer_config.json"))
    raw = (read_model(pieces, given.flag("add_prefix_space", True)) if alone
           else read_tokenizer(directory / "tokenizer.json"))  # fmt: skip
    add_tokens(raw, values, str(directory), spaced=alone)
    if alone:
        _put_around(raw, Fields(values, str(pieces)))
    raw.no_truncation()
    raw.no_padding()
    return Tokenizer(raw, read_templates(directory, values))


@cache
def byte_letters() -> dict[str, int]:
    """The letters by which byte-level vocabularies write bytes: those of Latin-1 that are seen are
    themselves, all other bytes have the letters behind them, in order."""
    letters = sorted(tokenizers().pre_tokenizers.ByteLevel.alphabet())
    seen = {ord(letter) for letter in letters if ord(letter) < 256}
    return dict(zip(letters, [*sorted(seen), *sorted(set(range(256)) - seen)]))


def _put_around(raw: Any, given: Fields) -> None:
    """The begin token before every text unless the settings say otherwise, the end token behind it
    if they do."""
    known = special_tokens(given.values)
    begin = known.get("bos_token") if given.flag("add_bos_token", True) else None
    end = known.get("eos_token") if given.flag("add_eos_token") else None
    around = [[text] if raw.token_to_id(text or "") is not None else [] for text in (begin, end)]
    special = [(text, raw.token_to_id(text)) for side in around for text in side]
    if special:
        raw.post_processor = tokenizers().processors.TemplateProcessing(
            single=[*around[0], "$A", *around[1]], special_tokens=special
        )


class Pieces:
    """Token ids one by one to pieces of text; a character whose bytes are not all there waits.
    show: special tokens whose text is given out too. before: the last tokens of a text that goes
    on: many tokenizers drop the space that a text begins with."""

    def __init__(
        self, tokenizer: Tokenizer, show: Collection[int] = (), before: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._show = tokenizer, frozenset(show)
        whole = not tokenizer.decode(before).endswith(UNFINISHED)
        self._ids = list(before) if whole else []
        self._start = 0  # what is decoded again, as the text of a token depends on those before
        self._told = len(self._ids)  # ids whose text was given out

    def push(self, token: int) -> str:
        """The text that is certain now: maybe none."""
        if token in self._show:
            before, self._ids = self.flush(), list(self._tokenizer.anchor)
            self._start, self._told = 0, len(self._ids)
            return before + self._tokenizer.decode([token], special=True)
        self._ids.append(token)
        return self._advance(held=True)

    def flush(self) -> str:
        """What waited for more bytes, as it is."""
        return self._advance(held=False)

    def _advance(self, held: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._start : self._told])
        whole = self._tokenizer.decode(self._ids[self._start :])
        if len(whole) <= len(before) or (held and whole.endswith(UNFINISHED)):
            return ""
        self._start, self._told = self._told, len(self._ids)
        return whole[len(before) :]


class StopTexts:
    """Cuts a stream of text at the first of some texts; holds back what may be the start of one."""

    def __init__(self, texts: Sequence[str]) -> None:
        if any(not text for text in texts):
            raise InputError("a stop text must not be empty")
        self._texts = tuple(texts)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """The text that is certain to lie before any stop text."""
        text = self._held + piece
        ends = [place for stop in self._texts if (place := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)]
        keep = max((overlap(text, stop) for stop in self._texts), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, once the stream has ended."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that begins the stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
