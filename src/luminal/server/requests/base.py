"""What all requests, and all that generate, have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ...models.llm import Sampling, Wishes
from ...models.llm.grammar import Constraint
from ..tools import CallForm

LOG = logging.getLogger("luminal.server")
TOKEN = Annotated[int, Field(ge=0, lt=2**31)]
TOKENS = Annotated[list[Annotated[TOKEN, Field(strict=True)]],
                   Field(min_length=1, fail_fast=True)]  # fmt: skip
STOP = Annotated[str, Field(min_length=1, max_length=1000)]
MOST_CHOICES = 128  # of one request, over all its prompts
MOST_BIASES = 1024
MOST_TOLD = 8  # unknown fields of one request


class Part(BaseModel):
    """A part of a request: null is as good as nothing."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: value for name, value in given.items() if value is not None}


class Body(Part):
    """A whole request. A field that is not known is told in the log, once for each name; one of
    REFUSED would change the reply: only a value that asks for nothing may be there."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)
    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    _told: ClassVar[set[str]] = set()

    @model_validator(mode="after")
    def _check_unknown(self) -> Body:
        more = self.model_extra or {}
        for name, harmless in self.REFUSED.items():
            if name in more and more[name] not in harmless:
                raise ValueError(f"{name} is not built here")
        for name in [n for n in list(more)[:MOST_TOLD] if n not in self.REFUSED]:
            if name not in self._told and len(self._told) < 1000:
                self._told.add(name)
                LOG.warning("a request has a field %r, which nothing here reads", name[:80])
        return self


class StreamOptions(Part):
    include_usage: bool = False


class Generation(Body):
    """What chat, completions and responses have in common."""

    REFUSED: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "best_of": (1,), "use_beam_search": (False,), "functions": ([],),
        "function_call": ("none", "auto"), "audio": (), "modalities": (["text"],),
        "web_search_options": (), "guided_json": (), "guided_regex": (), "guided_choice": (),
        "guided_grammar": (), "structured_outputs": (), "bad_words": ([],),
        "prompt_logprobs": (), "add_special_tokens": (True,), "logits_processors": ([],),
    }  # fmt: skip
    model: str | None = None
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int = Field(0, ge=0)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] = Field(default_factory=dict)
    stop: STOP | Annotated[list[STOP], Field(max_length=16, fail_fast=True)] = Field(
        default_factory=list
    )
    stop_token_ids: Annotated[list[TOKEN], Field(max_length=128, fail_fast=True)] = Field(
        default_factory=list
    )
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    user: Any = None  # these do not change a reply
    metadata: Any = None
    store: Any = None
    service_tier: Any = None

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MOST_BIASES:
            raise ValueError(f"at most {MOST_BIASES} tokens")
        return value

    def wishes(
        self, limit: int, ends: tuple[int, ...], choice: int,
        form: Callable[[], Constraint] | None, show: tuple[int, ...], scores: bool,
    ) -> Wishes:  # fmt: skip
        """Of one of the n choices: each has a seed of its own, made from the one given."""
        seed = None if self.seed is None else self.seed + choice
        sampling = Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty,
            self.presence_penalty, self.frequency_penalty, seed, self.logit_bias,
        )  # fmt: skip
        return Wishes(
            limit, [self.stop] if isinstance(self.stop, str) else self.stop,
            (*(() if self.ignore_eos else ends), *self.stop_token_ids), self.likely, sampling, form,
            show, min(self.min_tokens, limit), scores, goes_on=self.goes_on,
        )  # fmt: skip

    @property
    def limit(self) -> int | None:
        """The most tokens of a reply; None: as many as fit."""
        return self.max_tokens

    @property
    def goes_on(self) -> bool:
        """Whether the text of the reply follows that of the prompt."""
        return False

    @property
    def likely(self) -> int | None:
        """How many likely tokens to tell; None: no logarithms at all."""
        return None

    @property
    def functions(self) -> list[dict[str, Any]]:
        """What the model may call."""
        return []

    def grammar(self, calls: CallForm) -> str | None:
        """The form that the reply must have. calls: how the model writes those."""
        return None
