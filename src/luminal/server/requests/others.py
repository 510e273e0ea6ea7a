"""The bodies of the other paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from .base import MOST_CHOICES, TOKEN, TOKENS, Body, Generation, Part
from .chat import Conversation, Message

TEXTS = Annotated[list[str], Field(min_length=1, max_length=2048, fail_fast=True)]


class Completion(Generation):
    """/v1/completions: texts, or tokens. echo: the prompt comes first, with its logarithms if those
    are asked for; max_tokens may be 0 then."""

    suffix: Literal[""] | None = None
    prompt: str | TOKENS | TEXTS | Annotated[list[TOKENS], Field(min_length=1, fail_fast=True)]
    max_tokens: int | None = Field(16, ge=0)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool = False

    @model_validator(mode="after")
    def _replies(self) -> Completion:
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 is for echo only")
        if (count := len(self.prompts())) * self.n > MOST_CHOICES:
            raise ValueError(f"{count} prompts with {self.n} choices each: at most {MOST_CHOICES} "
                             "in all")  # fmt: skip
        return self

    @property
    def goes_on(self) -> bool:
        return True

    @property
    def likely(self) -> int | None:
        return self.logprobs

    def prompts(self) -> Sequence[str | list[int]]:
        """One or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        several = [entry for entry in self.prompt if not isinstance(entry, int)]
        return several or [[entry for entry in self.prompt if isinstance(entry, int)]]


class Embeddings(Body):
    """/v1/embeddings."""

    model: str | None = None
    input: str | TEXTS
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: Any = None

    @field_validator("input", mode="before")
    @classmethod
    def _no_tokens(cls, given: Any) -> Any:
        if isinstance(given, list) and any(isinstance(each, int | list) for each in given):
            raise ValueError("lists of token ids are not built here: give texts")
        return given

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class Speech(Body):
    """/v1/audio/transcriptions and /translations, fields of a form beside the file."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {"stream": ("", "false"), "include": ()}

    model: str | None = None
    language: str | None = None
    prompt: str | None = Field(None, max_length=4096)
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float = Field(0.0, ge=0, le=1)
    granularities: list[Literal["word", "segment"]] = Field(
        ["segment"], alias="timestamp_granularities"
    )

    @field_validator("granularities", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _words(self) -> Speech:
        if "word" in self.granularities and self.response_format != "verbose_json":
            raise ValueError("timestamp_granularities go with response_format=verbose_json")
        return self


class Images(Body):
    """/v1/images/generations. negative_prompt, steps, guidance and seed are others' than OpenAI's.
    size: None or "auto" for the model's own."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "stream": (False,), "background": ("auto", "opaque"), "image": (), "mask": (),
    }  # fmt: skip

    model: str | None = None
    prompt: str = Field(max_length=32000)
    n: int = Field(1, ge=1, le=10)
    size: str = Field("auto", pattern=r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$")
    response_format: Literal["b64_json"] = "b64_json"
    output_format: Literal["png", "jpeg", "webp"] = "png"
    negative_prompt: str | None = Field(None, max_length=32000)
    steps: int | None = Field(None, ge=1, le=1000)
    guidance: float | None = Field(None, ge=0, le=100)
    seed: int | None = Field(None, ge=0, lt=2**63)

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """(width, height)."""
        if self.size == "auto":
            return None, None
        width, height = map(int, self.size.split("x"))
        return width, height


class Document(Part):
    text: str


class Rerank(Body):
    """/v1/rerank: the documents by how well they fit the query."""

    model: str | None = None
    query: str
    documents: Annotated[
        list[str | Document], Field(min_length=1, max_length=2047, fail_fast=True)
    ]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        return [each if isinstance(each, str) else each.text for each in self.documents]


class Tokenize(Conversation, Body):
    """/tokenize: a text, or a conversation."""

    model: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(default_factory=list)
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_them(self) -> Tokenize:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("either a prompt or messages")
        return self


class Detokenize(Body):
    """/detokenize."""

    model: str | None = None
    tokens: Annotated[list[TOKEN], Field(fail_fast=True)]
