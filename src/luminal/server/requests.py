"""What clients may ask, checked field by field. Names and ranges are OpenAI's; top_k, min_p and
repetition_penalty are added. What would change the reply but is not built is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..models.llm import Sampling, Wishes, json_grammar
from ..models.llm.grammar import Constraint
from .faults import Fault
from .tools import CallForm

TOKEN = Annotated[int, Field(ge=0)]
STOP = Annotated[str, Field(min_length=1, max_length=1000)]
MOST_CHOICES = 128  # of one request, over all its prompts


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class Generation(BaseModel):
    """What chat and completions have in common."""

    model_config = ConfigDict(extra="forbid")
    model: str
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    seed: int | None = None
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: STOP | Annotated[list[STOP], Field(max_length=16)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: Any = None  # these do not change a reply
    metadata: Any = None
    store: Any = None
    service_tier: Any = None

    @field_validator("temperature", "top_p", "n", "presence_penalty", "frequency_penalty",
                     "stream", mode="before")  # fmt: skip
    @classmethod
    def _null_is_the_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    def wishes(
        self, limit: int, ends: tuple[int, ...], logprobs: int | None, choice: int,
        form: Callable[[], Constraint] | None, show: tuple[int, ...],
    ) -> Wishes:  # fmt: skip
        """Of one of the n choices: each has a seed of its own, made from the one given."""
        seed = None if self.seed is None else self.seed + choice
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        sampling = Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty,
            self.presence_penalty, self.frequency_penalty, seed, self.logit_bias or {},
        )  # fmt: skip
        return Wishes(limit, stop, ends, logprobs, sampling, form, show)

    @property
    def functions(self) -> list[dict[str, Any]]:
        """What the model may call."""
        return []

    def grammar(self, calls: CallForm) -> str | None:
        """The form that the reply must have. calls: how the model writes those."""
        return None


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class FunctionCall(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    arguments: str

    def plain(self) -> dict[str, Any]:
        """Chat templates take arguments as values."""
        try:
            return {"name": self.name, "arguments": json.loads(self.arguments)}
        except (ValueError, RecursionError):
            return {"name": self.name, "arguments": self.arguments}


class ToolCall(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.content is None and not self.tool_calls:
            raise ValueError("a message has content, or is the assistant's and has tool_calls")
        return self

    def plain(self) -> dict[str, Any]:
        """As chat templates take it."""
        text = self.content or ""
        if not isinstance(text, str):
            text = "".join(part.text for part in text)
        plain: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role, "content": text
        }  # fmt: skip
        if self.name is not None:
            plain["name"] = self.name
        if self.tool_call_id is not None:
            plain["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            plain["tool_calls"] = [
                {"id": call.id, "type": call.type, "function": call.function.plain()}
                for call in self.tool_calls
            ]
        return plain


class PlainFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text", "json_object"]


class Schema(BaseModel):
    """strict is not needed: replies always fit."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str
    given: dict[str, Any] = Field(default_factory=dict, alias="schema")
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["json_schema"]
    json_schema: Schema


class Function(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: NamedFunction


class Chat(Generation):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    response_format: PlainFormat | SchemaFormat | None = None
    tools: list[FunctionTool] | None = Field(None, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool | None = None

    @property
    def functions(self) -> list[dict[str, Any]]:
        if not self.tools or self.tool_choice == "none":
            return []
        return [tool.function.model_dump(exclude_none=True) for tool in self.tools]

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
    def likely(self) -> int | None:
        """How many likely tokens to tell; None: no logarithms at all."""
        return self.top_logprobs if self.logprobs else None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class Completion(Generation):
    """The body of /v1/completions: texts, or tokens."""

    suffix: None = None
    prompt: (
        str
        | Annotated[list[TOKEN], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[list[TOKEN]], Field(min_length=1)]
    )
    max_tokens: int | None = Field(16, ge=1)
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: Literal[False] = False

    def prompts(self) -> Sequence[str | list[int]]:
        """One or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        several = [entry for entry in self.prompt if not isinstance(entry, int)]
        return several or [[entry for entry in self.prompt if isinstance(entry, int)]]


class Embeddings(BaseModel):
    """The body of /v1/embeddings."""

    model_config = ConfigDict(extra="forbid")
    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Any = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input
