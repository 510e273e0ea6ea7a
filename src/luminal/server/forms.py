"""Replies in the forms of OpenAI's two interfaces, whole and in chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from ..models.llm import Piece, Tokenizer
from ..models.llm.text import UNFINISHED
from .tools import CallForm, CallReader

Object = dict[str, Any]


class Form(Protocol):
    """How one endpoint writes. whole, part: its names for an answer and for a chunk of one."""

    prefix: str
    whole: str
    part: str

    def opening(self, number: int) -> Object | None:
        """What a choice begins with in a stream, if anything."""

    def delta(self, number: int, piece: Piece) -> Object:
        """A choice of a chunk."""

    def choice(self, number: int, pieces: Sequence[Piece]) -> Object:
        """A choice of a whole answer."""


class ChatForm:
    """/v1/chat/completions. logprobs: whether they were asked for. calls: how the model writes
    calls of functions; None where it may not call any."""

    prefix, whole, part = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, logprobs: bool, calls: CallForm | None = None) -> None:
        self._tokenizer, self._logprobs, self._calls = tokenizer, logprobs, calls
        self._readers: dict[int, CallReader] = {}  # of the choices

    def opening(self, number: int) -> Object | None:
        return _choice(number, None, delta={"role": "assistant", "content": ""})

    def delta(self, number: int, piece: Piece) -> Object:
        text, calls, finish = self._read(number, piece.text, piece.finish)
        delta: Object = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
        return _choice(number, finish, self._content([piece]), delta=delta)

    def choice(self, number: int, pieces: Sequence[Piece]) -> Object:
        whole = "".join(piece.text for piece in pieces)
        text, calls, finish = self._read(number, whole, pieces[-1].finish)
        message: Object = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": calls}
        return _choice(number, finish, self._content(pieces), message=message)

    def _read(
        self, number: int, text: str, finish: str | None
    ) -> tuple[str, list[Object], str | None]:
        """(text to be shown, calls, why the reply ends) after more of the text of a choice."""
        if self._calls is None:
            return text, [], finish
        reader = self._readers.setdefault(number, CallReader(self._calls))
        shown = reader.push(text)
        if finish is None:
            return shown, [], None
        rest, calls = reader.finish()
        return shown + rest, calls, "tool_calls" if calls and finish == "stop" else finish

    def _content(self, pieces: Sequence[Piece]) -> Object | None:
        entries = []
        for piece in pieces:
            if piece.token is not None and piece.logprob is not None:
                entry = self._entry(piece.token, piece.logprob)
                likely = [self._entry(token, known) for token, known in piece.likely]
                entries.append({**entry, "top_logprobs": likely})
        return {"content": entries, "refusal": None} if self._logprobs and entries else None

    def _entry(self, token: int, logprob: float) -> Object:
        """A token whose text is no whole characters has no bytes here."""
        text = self._tokenizer.decode([token], special=True)
        known = None if UNFINISHED in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": known}


class TextForm:
    """/v1/completions. logprobs: whether they were asked for."""

    prefix, whole, part = "cmpl", "text_completion", "text_completion"

    def __init__(self, tokenizer: Tokenizer, logprobs: bool) -> None:
        self._tokenizer, self._logprobs = tokenizer, logprobs
        self._offsets: dict[int, int] = {}  # of the next token in the text of a choice

    def opening(self, number: int) -> Object | None:
        return None

    def delta(self, number: int, piece: Piece) -> Object:
        return self.choice(number, [piece])

    def choice(self, number: int, pieces: Sequence[Piece]) -> Object:
        text = "".join(piece.text for piece in pieces)
        return _choice(number, pieces[-1].finish, self._lists(number, pieces), text=text)

    def _lists(self, number: int, pieces: Sequence[Piece]) -> Object | None:
        if not self._logprobs:
            return None
        lists: Object = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for piece in pieces:
            if piece.token is None:
                continue
            text, offset = self._text(piece.token), self._offsets.get(number, 0)
            lists["tokens"].append(text)
            lists["token_logprobs"].append(piece.logprob)
            lists["top_logprobs"].append({self._text(t): known for t, known in piece.likely})
            lists["text_offset"].append(offset)
            self._offsets[number] = offset + len(text)
        return lists

    def _text(self, token: int) -> str:
        return self._tokenizer.decode([token], special=True)


def _choice(number: int, finish: str | None, logprobs: Object | None = None, **more: Any) -> Object:
    return {"index": number, **more, "logprobs": logprobs, "finish_reason": finish}


class Answer:
    """The frame around choices. prompt: tokens of all prompts."""

    def __init__(self, form: Form, model: str, prompt: int) -> None:
        self._form, self._prompt = form, prompt
        self._frame = {"id": f"{form.prefix}-{uuid.uuid4().hex}", "created": int(time.time()),
                       "model": model}  # fmt: skip

    def whole(self, replies: Sequence[Sequence[Piece]]) -> Object:
        """The answer at once."""
        choices = [self._form.choice(n, pieces) for n, pieces in enumerate(replies)]
        made = sum(piece.token is not None for pieces in replies for piece in pieces)
        return {**self._frame, "object": self._form.whole, "choices": choices,
                "usage": self._usage(made)}  # fmt: skip

    def opening(self, number: int) -> Object | None:
        """The first chunk of a choice, if the form has one."""
        choice = self._form.opening(number)
        return None if choice is None else self._chunk([choice])

    def delta(self, number: int, piece: Piece) -> Object | None:
        """A chunk; none for a piece that shows nothing."""
        choice = self._form.delta(number, piece)
        shown = piece.text or piece.finish or choice["logprobs"]
        return self._chunk([choice]) if shown else None

    def closing(self, made: int) -> Object:
        """The chunk with the counts."""
        return {**self._chunk([]), "usage": self._usage(made)}

    def _chunk(self, choices: list[Object]) -> Object:
        return {**self._frame, "object": self._form.part, "choices": choices}

    def _usage(self, made: int) -> Object:
        return {"prompt_tokens": self._prompt, "completion_tokens": made,
                "total_tokens": self._prompt + made}  # fmt: skip
