"""The body of /v1/chat/completions."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ...models.llm import json_grammar
from ...models.llm.templates import THOUGHTS
from ..faults import Fault
from ..tools import CallForm
from .base import Generation, Part

ROLE = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(Part):
    type: Literal["text", "input_text", "output_text"]
    text: str

    def plain(self) -> dict[str, Any]:
        """As a model that sees takes it."""
        return {"type": "text", "text": self.text}


class ImageUrl(Part):
    url: str
    detail: str | None = None


class ImagePart(Part):
    type: Literal["image_url"]
    image_url: ImageUrl

    def plain(self) -> dict[str, Any]:
        """As a model that sees takes it."""
        return {"type": "image_url", "image_url": self.image_url.url}


TEXT = str | Annotated[list[TextPart], Field(fail_fast=True)]
SEEN = Annotated[TextPart | ImagePart, Field(discriminator="type")]
CONTENT = str | Annotated[list[SEEN], Field(fail_fast=True)]


def joined(text: TEXT | None) -> str:
    """The parts of a text as one."""
    if text is None or isinstance(text, str):
        return text or ""
    return "".join(part.text for part in text)


class FunctionCall(Part):
    name: str
    arguments: str

    def plain(self) -> dict[str, Any]:
        """Chat templates take arguments as values."""
        try:
            return {"name": self.name, "arguments": json.loads(self.arguments)}
        except (ValueError, RecursionError):
            return {"name": self.name, "arguments": self.arguments}


class ToolCall(Part):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Part):
    role: ROLE
    content: CONTENT | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    thinking: str | None = None  # the same by other names
    reasoning: str | None = None
    refusal: str | None = None  # templates know none: it counts as an empty content

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("a message has content, or is the assistant's and has tool_calls")
        return self

    def _content(self) -> str | list[dict[str, Any]]:
        """A text; with pictures, its parts."""
        if not isinstance(self.content, list):
            return self.content or ""
        texts = [part for part in self.content if isinstance(part, TextPart)]
        if len(texts) == len(self.content):
            return joined(texts)
        return [part.plain() for part in self.content]

    def plain(self) -> dict[str, Any]:
        """As chat templates take it."""
        role = "system" if self.role == "developer" else self.role
        plain: dict[str, Any] = {"role": role, "content": self._content()}
        for name in ("name", "tool_call_id", *THOUGHTS):
            if (value := getattr(self, name)) is not None:
                plain[name] = value
        if self.tool_calls:
            plain["tool_calls"] = [
                {"id": call.id, "type": call.type, "function": call.function.plain()}
                for call in self.tool_calls
            ]
        return plain


MESSAGES = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


class PlainFormat(Part):
    type: Literal["text", "json_object"]


class Schema(Part):
    """strict is not needed: replies always fit."""

    name: str
    given: dict[str, Any] = Field(default_factory=dict, alias="schema")


class SchemaFormat(Part):
    type: Literal["json_schema"]
    json_schema: Schema


class Function(Part):
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Part):
    type: Literal["function"]
    function: Function


class NamedFunction(Part):
    name: str


class NamedTool(Part):
    type: Literal["function"]
    function: NamedFunction


TOOLS = Annotated[list[FunctionTool], Field(max_length=128, fail_fast=True)]


class Conversation(Part):
    """What a chat template is given. continue_final_message: the reply goes on where the last
    message ends. chat_template_kwargs: what this template knows besides."""

    messages: MESSAGES
    tools: TOOLS = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def functions(self) -> list[dict[str, Any]]:
        if self.tool_choice == "none":
            return []
        return [tool.function.model_dump(exclude_none=True) for tool in self.tools]

    def options(self) -> dict[str, Any]:
        """The options of `Templates.render`."""
        documents = {} if self.documents is None else {"documents": self.documents}
        return {
            "messages": [message.plain() for message in self.messages],
            "tools": [{"type": "function", "function": each} for each in self.functions],
            "prompt": self.add_generation_prompt, "resume": self.continue_final_message,
            "more": {**self.chat_template_kwargs, **documents},
        }  # fmt: skip


class Chat(Conversation, Generation):
    """/v1/chat/completions."""

    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    response_format: PlainFormat | SchemaFormat | None = None
    parallel_tool_calls: bool = True

    @model_validator(mode="after")
    def _tells_logarithms(self) -> Chat:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs go with logprobs=true")
        return self

    @property
    def prescribed(self) -> bool:
        """Whether the reply must have a form, from its first token on: it has no thoughts then."""
        wanted = self.response_format
        return self.tool_choice not in ("none", "auto") or (
            wanted is not None and wanted.type != "text"
        )

    def grammar(self, calls: CallForm) -> str | None:
        forced = self._forced()
        if forced:
            return calls.grammar(forced)
        wanted = self.response_format
        if isinstance(wanted, SchemaFormat):
            return json_grammar(wanted.json_schema.given)
        whole = wanted is not None and wanted.type == "json_object"
        return json_grammar({"type": "object"}) if whole else None

    def _forced(self) -> list[dict[str, Any]]:
        """The functions of which one must be called."""
        choice = self.tool_choice
        if choice in ("none", "auto"):
            return []
        known = self.functions
        if isinstance(choice, NamedTool):
            known = [function for function in known if function["name"] == choice.function.name]
        if not known:
            raise Fault(400, "tool_choice: no such function among the tools", "invalid_value",
                        "tool_choice")  # fmt: skip
        return known

    @property
    def goes_on(self) -> bool:
        return self.continue_final_message

    @property
    def likely(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens
