"""Replies in the forms of OpenAI's two interfaces, whole and in chunks."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..models.llm import Known, Piece, Tokenizer
from .thinking import ThinkingReader
from .tools import CallReader

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


@dataclass
class Said:
    """What a piece of a reply is parted into."""

    thoughts: str = ""
    text: str = ""
    calls: list[Object] = field(default_factory=list)


class Parting:
    """The pieces of one reply, parted. calls, thinking: readers, where there may be such. most:
    calls that are told."""

    def __init__(
        self, calls: CallReader | None, thinking: ThinkingReader | None, most: int | None
    ) -> None:
        self._calls, self._thinking, self._most = calls, thinking, most
        self.count = 0  # of the calls

    def push(self, text: str, ended: bool) -> Said:
        """What is certain after more text."""
        said = Said(text=text)
        if self._thinking is not None:
            said.thoughts, said.text = self._thinking.push(text, ended)
        if self._calls is not None:
            said.text, said.calls = self._calls.push(said.text)
            if ended:
                rest, more = self._calls.finish()
                said.text, said.calls = said.text + rest, said.calls + more
            if self._most is not None:
                del said.calls[max(0, self._most - self.count) :]
        self.count += len(said.calls)
        return said


class ChatForm:
    """/v1/chat/completions. logprobs: whether they were asked for. part: makes what parts the reply
    of each choice."""

    prefix, whole, part = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self, tokenizer: Tokenizer, logprobs: bool, parting: Callable[[], Parting]
    ) -> None:
        self._tokenizer, self._logprobs = tokenizer, logprobs
        self._partings: dict[int, Parting] = defaultdict(parting)  # of the choices

    def opening(self, number: int) -> Object | None:
        return _choice(number, None, delta={"role": "assistant", "content": ""})

    def delta(self, number: int, piece: Piece) -> Object:
        parting = self._partings[number]
        before, said = parting.count, parting.push(piece.text, piece.finish is not None)
        delta: Object = {"reasoning_content": said.thoughts} if said.thoughts else {}
        if said.text:
            delta["content"] = said.text
        if said.calls:
            delta["tool_calls"] = [{"index": before + n, **c} for n, c in enumerate(said.calls)]
        finish = _why(piece.finish, parting.count)
        return _choice(number, finish, self._content([piece]), delta=delta)

    def choice(self, number: int, pieces: Sequence[Piece]) -> Object:
        said = self._partings[number].push("".join(piece.text for piece in pieces), True)
        content = None if said.calls and not said.text else said.text
        message: Object = {"role": "assistant", "content": content, "refusal": None}
        if said.thoughts:
            message["reasoning_content"] = said.thoughts
        if said.calls:
            message["tool_calls"] = said.calls
        finish = _why(pieces[-1].finish, len(said.calls))
        return _choice(number, finish, self._content(pieces), message=message)

    def _content(self, pieces: Sequence[Piece]) -> Object | None:
        entries = []
        for piece in pieces:
            if piece.token is not None and piece.logprob is not None:
                entry = self._entry(piece.token, piece.logprob)
                likely = [self._entry(token, known) for token, known in piece.likely]
                entries.append({**entry, "top_logprobs": likely})
        return {"content": entries, "refusal": None} if self._logprobs and entries else None

    def _entry(self, token: int, logprob: float) -> Object:
        name, known = self._tokenizer.name(token), list(self._tokenizer.bytes(token))
        return {"token": name, "logprob": logprob, "bytes": known}


class TextForm:
    """/v1/completions. logprobs: whether they were asked for. echoes: the prompts of the choices,
    which come before the replies; None: they do not."""

    prefix, whole, part = "cmpl", "text_completion", "text_completion"

    def __init__(
        self, tokenizer: Tokenizer | None, logprobs: bool, echoes: Sequence[str] | None = None
    ) -> None:
        """tokenizer: only logarithms need it."""
        self._tokenizer, self._logprobs, self._echoes = tokenizer, logprobs, echoes
        self._offsets: dict[int, int] = {}  # of the next token in the text of a choice
        self._told: set[int] = set()  # choices whose prompt was told

    def opening(self, number: int) -> Object | None:
        return None

    def delta(self, number: int, piece: Piece) -> Object:
        return self.choice(number, [piece])

    def choice(self, number: int, pieces: Sequence[Piece]) -> Object:
        text = "".join(piece.text for piece in pieces)
        if self._echoes is not None and number not in self._told:
            self._told.add(number)
            text = self._echoes[number] + text
        return _choice(number, pieces[-1].finish, self._lists(number, pieces), text=text)

    def _lists(self, number: int, pieces: Sequence[Piece]) -> Object | None:
        if not self._logprobs:
            return None
        lists: Object = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        assert self._tokenizer is not None
        if number not in self._offsets:
            self._offsets[number] = self._first(number, pieces[0].prompt)
        for known in _known(pieces):
            text, offset = self._tokenizer.name(known.token), self._offsets[number]
            lists["tokens"].append(text)
            lists["token_logprobs"].append(known.logprob)
            lists["top_logprobs"].append(self._likely(known))
            lists["text_offset"].append(max(0, offset))
            self._offsets[number] = offset + len(text)
        return lists

    def _first(self, number: int, prompt: Sequence[Known]) -> int:
        """Where a choice's first token is: the echo of a prompt has neither the space that it may
        begin with nor special tokens before it."""
        if self._echoes is None or self._tokenizer is None:
            return 0
        named = (self._tokenizer.name(known.token) for known in prompt)
        return len(self._echoes[number]) - sum(map(len, named))

    def _likely(self, known: Known) -> dict[str, float] | None:
        """By text, the token itself always; None where nothing is known."""
        if known.logprob is None or self._tokenizer is None:
            return None
        found: dict[str, float] = {}
        for token, logprob in ((known.token, known.logprob), *known.likely):
            found.setdefault(self._tokenizer.name(token), logprob)
        return found


def _known(pieces: Sequence[Piece]) -> Iterator[Known]:
    """Of the prompt, then of the reply."""
    for piece in pieces:
        yield from piece.prompt
        if piece.token is not None:
            yield Known(piece.token, piece.logprob, piece.likely)


def _why(finish: str | None, calls: int) -> str | None:
    """Why a reply ends, as OpenAI calls it."""
    return "tool_calls" if calls and finish == "stop" else finish


def _choice(number: int, finish: str | None, logprobs: Object | None = None, **more: Any) -> Object:
    return {"index": number, **more, "logprobs": logprobs, "finish_reason": finish}


class Answer:
    """The frame around choices. prompt: tokens of all prompts. usage: whether a stream ends with
    the counts."""

    def __init__(self, form: Form, model: str, prompt: int, usage: bool = False) -> None:
        self._form, self._prompt, self._usage_wanted = form, prompt, usage
        self._frame = {"id": f"{form.prefix}-{uuid.uuid4().hex}", "created": int(time.time()),
                       "model": model}  # fmt: skip

    def whole(self, replies: Sequence[Sequence[Piece]]) -> Object:
        """The answer at once."""
        choices = [self._form.choice(n, pieces) for n, pieces in enumerate(replies)]
        every = [piece for pieces in replies for piece in pieces]
        made, reused = sum(p.token is not None for p in every), sum(p.reused for p in every)
        return {**self._frame, "object": self._form.whole, "choices": choices,
                "usage": self._usage(made, reused)}  # fmt: skip

    async def stream(
        self, pieces: AsyncIterator[tuple[int, Piece]], count: int
    ) -> AsyncIterator[Object]:
        """The chunks, one for every piece that shows anything. count: of the choices."""
        made = reused = 0
        for number in range(count):
            if (opening := self._form.opening(number)) is not None:
                yield self._chunk([opening])
        async for number, piece in pieces:
            made, reused = made + (piece.token is not None), reused + piece.reused
            choice = self._form.delta(number, piece)
            if choice.get("text") or choice.get("delta") or piece.finish or choice["logprobs"]:
                yield self._chunk([choice])
        if self._usage_wanted:
            yield {**self._chunk([]), "usage": self._usage(made, reused)}

    def _chunk(self, choices: list[Object]) -> Object:
        return {**self._frame, "object": self._form.part, "choices": choices}

    def _usage(self, made: int, reused: int) -> Object:
        """reused: of all choices, which may have the prompt from each other."""
        return {"prompt_tokens": self._prompt, "completion_tokens": made,
                "total_tokens": self._prompt + made,
                "prompt_tokens_details": {"cached_tokens": min(reused, self._prompt)}}  # fmt: skip
