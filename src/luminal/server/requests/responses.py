"""The body of /v1/responses, and the chat that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from .base import Body, Generation, Part
from .chat import ROLE, TEXT, Chat, Function, NamedFunction, joined


class MessageItem(Part):
    type: Literal["message"] = "message"
    role: ROLE
    content: TEXT


class CallItem(Part):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class ResultItem(Part):
    type: Literal["function_call_output"]
    call_id: str
    output: TEXT


class ThoughtsItem(Part):
    """What a model thought before is not told to it again."""

    type: Literal["reasoning"]


class Tool(Function):
    type: Literal["function"]


TOOLS = Annotated[list[Tool], Field(max_length=128, fail_fast=True)]


class NamedTool(NamedFunction):
    type: Literal["function"]


class Format(Part):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "reply"
    given: dict[str, Any] = Field(default_factory=dict, alias="schema")

    def plain(self) -> dict[str, Any]:
        """As a chat has it."""
        more = {"name": self.name, "schema": self.given}
        return {"type": self.type, **({"json_schema": more} if self.type == "json_schema" else {})}


class Text(Part):
    format: Format = Field(default_factory=Format)


Item = MessageItem | CallItem | ResultItem | ThoughtsItem


class Responses(Body):
    """/v1/responses; nothing is kept, so that a conversation is given whole."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Generation.REFUSED, "previous_response_id": (), "conversation": (), "prompt": (),
        "background": (False,), "max_tool_calls": (), "n": (1,), "logprobs": (False,),
        "top_logprobs": (0,),
    }  # fmt: skip
    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    tools: TOOLS = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    text: Text = Field(default_factory=Text)
    stream: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    user: Any = None  # these do not change a reply
    store: Any = None
    include: Any = None
    reasoning: Any = None
    truncation: Any = None
    service_tier: Any = None

    def chat(self) -> Chat:
        """The same request as a chat. Raises ValidationError."""
        choice: Any = self.tool_choice
        if isinstance(choice, NamedTool):
            choice = {"type": "function", "function": {"name": choice.name}}
        functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in self.tools]
        more = {name: value for name, value in (self.model_extra or {}).items()
                if name in Chat.model_fields}  # fmt: skip
        return Chat.model_validate({
            **more, "model": self.model, "messages": self._messages(),
            "max_completion_tokens": self.max_output_tokens, "temperature": self.temperature,
            "top_p": self.top_p, "stream": self.stream, "tool_choice": choice,
            "tools": [{"type": "function", "function": function} for function in functions],
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": self.text.format.plain(),
        })  # fmt: skip

    def _messages(self) -> list[dict[str, Any]]:
        """Calls that follow each other are of one message."""
        found: list[dict[str, Any]] = []
        if self.instructions is not None:
            found.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*found, {"role": "user", "content": self.input}]
        for item in self.input:
            if isinstance(item, MessageItem):
                found.append({"role": item.role, "content": joined(item.content)})
            elif isinstance(item, ResultItem):
                found.append({"role": "tool", "tool_call_id": item.call_id,
                              "content": joined(item.output)})  # fmt: skip
            elif isinstance(item, CallItem):
                if not found or found[-1]["role"] != "assistant":
                    found.append({"role": "assistant", "tool_calls": []})
                found[-1].setdefault("tool_calls", []).append({
                    "id": item.call_id, "type": "function",
                    "function": {"name": item.name, "arguments": item.arguments},
                })  # fmt: skip
        return found
