"""Answers of /v1/responses: items instead of choices, whole and as named events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from ..models.llm import Piece
from .forms import Object, Parting, Said
from .requests import Responses

KINDS = {"thoughts": ("reasoning", "reasoning_text"), "text": ("message", "output_text")}
UNFINISHED = {"length": "max_output_tokens"}  # why a reply ends --> why it is incomplete


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


class ResponsesAnswer:
    """To one request. prompt: its tokens."""

    def __init__(self, given: Responses, parting: Parting, prompt: int) -> None:
        self._parting, self._prompt, self._made, self._reused = parting, prompt, 0, 0
        self._output: list[Object] = []
        self._kind = ""  # of the item that grows, a key of KINDS
        self._number = 0  # of the next event
        self._frame: Object = {
            "id": _id("resp"), "object": "response", "created_at": int(time.time()),
            "model": given.model, "error": None, "instructions": given.instructions,
            "max_output_tokens": given.max_output_tokens, "metadata": given.metadata,
            "parallel_tool_calls": given.parallel_tool_calls, "previous_response_id": None,
            "temperature": given.temperature, "top_p": given.top_p,
            "tool_choice": given.tool_choice if isinstance(given.tool_choice, str)
            else given.tool_choice.model_dump(),
            "tools": [tool.model_dump() for tool in given.tools],
            "text": {"format": {"type": given.text.format.type}},
        }  # fmt: skip

    def whole(self, replies: Sequence[Sequence[Piece]]) -> Object:
        """The answer at once."""
        for piece in replies[0]:
            for _ in self._push(piece):
                pass
        return self._now(replies[0][-1].finish)

    async def stream(
        self, pieces: AsyncIterator[tuple[int, Piece]], count: int
    ) -> AsyncIterator[Object]:
        """The events."""
        yield self._event("created", response=self._now("running"))
        yield self._event("in_progress", response=self._now("running"))
        finish: str | None = None
        async for _, piece in pieces:
            finish = piece.finish
            for event in self._push(piece):
                yield event
        whole = self._now(finish)
        yield self._event(whole["status"], response=whole)

    def _now(self, finish: str | None) -> Object:
        """The answer as far as it is there."""
        status, why = "completed", UNFINISHED.get(finish or "")
        if finish == "running":
            status = "in_progress"
        elif why is not None:
            status = "incomplete"
        counts = {
            "input_tokens": self._prompt, "input_tokens_details": {"cached_tokens": self._reused},
            "output_tokens": self._made, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._prompt + self._made,
        }  # fmt: skip
        return {
            **self._frame, "status": status, "output": list(self._output),
            "incomplete_details": None if why is None else {"reason": why},
            "usage": None if finish == "running" else counts,
        }  # fmt: skip

    def _push(self, piece: Piece) -> Iterator[Object]:
        self._made += piece.token is not None
        self._reused += piece.reused
        said: Said = self._parting.push(piece.text, piece.finish is not None)
        for kind, text in (("thoughts", said.thoughts), ("text", said.text)):
            if text:
                yield from self._write(kind, text)
        for call in said.calls:
            yield from self._call(call)
        if piece.finish is not None:
            yield from self._close()

    def _write(self, kind: str, text: str) -> Iterator[Object]:
        """More of a text; another item begins where it is of another kind."""
        if self._kind != kind:
            yield from self._close()
            yield from self._open(kind)
        self._output[-1]["content"][0]["text"] += text
        name, more = KINDS[kind][1], self._more(kind)
        yield self._about(f"{name}.delta", delta=text, content_index=0, **more)

    def _more(self, kind: str) -> Object:
        return {"logprobs": []} if kind == "text" else {}

    def _open(self, kind: str) -> Iterator[Object]:
        item, part = KINDS[kind]
        own: Object = {"summary": []} if kind == "thoughts" else {"role": "assistant"}
        self._output.append({"id": _id(item), "type": item, "status": "in_progress", **own,
                             "content": []})  # fmt: skip
        yield self._item("added")
        empty: Object = {"type": part, "text": ""}
        if kind == "text":
            empty |= {"annotations": [], "logprobs": []}
        self._kind = kind
        self._output[-1]["content"] = [empty]
        yield self._about("content_part.added", part=dict(empty), content_index=0)

    def _close(self) -> Iterator[Object]:
        if not self._kind:
            return
        part, more = self._output[-1]["content"][0], self._more(self._kind)
        name, self._kind = KINDS[self._kind][1], ""
        yield self._about(f"{name}.done", text=part["text"], content_index=0, **more)
        yield self._about("content_part.done", part=part, content_index=0)
        self._output[-1]["status"] = "completed"
        yield self._item("done")

    def _call(self, call: Object) -> Iterator[Object]:
        yield from self._close()
        name, given = call["function"]["name"], call["function"]["arguments"]
        self._output.append({"id": _id("fc"), "type": "function_call", "status": "in_progress",
                             "call_id": call["id"], "name": name, "arguments": ""})  # fmt: skip
        yield self._item("added")
        self._output[-1] |= {"arguments": given, "status": "completed"}
        yield self._about("function_call_arguments.delta", delta=given)
        yield self._about("function_call_arguments.done", arguments=given, name=name)
        yield self._item("done")

    def _item(self, what: str) -> Object:
        return self._event(f"output_item.{what}", output_index=len(self._output) - 1,
                           item=dict(self._output[-1]))  # fmt: skip

    def _about(self, what: str, **more: Any) -> Object:
        """An event of the item that grows."""
        return self._event(what, item_id=self._output[-1]["id"],
                           output_index=len(self._output) - 1, **more)  # fmt: skip

    def _event(self, what: str, **more: Any) -> Object:
        self._number += 1
        return {"type": f"response.{what}", "sequence_number": self._number - 1, **more}
