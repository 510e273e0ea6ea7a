"""What clients may ask, checked field by field. Names and ranges are OpenAI's; top_k, min_p and
repetition_penalty are added. What would change the reply but is not built is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..models.llm import Sampling, Wishes

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
    top_k: int = Field(0, ge=0)
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
        self, limit: int, ends: tuple[int, ...], logprobs: int | None, choice: int
    ) -> Wishes:
        """Of one of the n choices: each has a seed of its own, made from the one given."""
        seed = None if self.seed is None else abs(self.seed) + choice
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        sampling = Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty,
            self.presence_penalty, self.frequency_penalty, seed, self.logit_bias or {},
        )  # fmt: skip
        return Wishes(limit, stop, ends, logprobs, sampling)


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """As chat templates take it."""
        text = self.content
        if not isinstance(text, str):
            text = "".join(part.text for part in text)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class TextFormat(BaseModel):
    type: Literal["text"]


class Chat(Generation):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    response_format: TextFormat | None = None

    @property
    def likely(self) -> int | None:
        """How many likely tokens to tell; None: no logarithms at all."""
        return self.top_logprobs if self.logprobs else None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class Completion(Generation):
    """The body of /v1/completions: texts, or tokens."""

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
    user: Any = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input
