"""One reply as it grows: tokens chosen, text given out, the reasons to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .grammar import Constraint
from .sampling import Sampler, Sampling, log_probabilities
from .text import Pieces, StopTexts, Tokenizer


@dataclass(frozen=True)
class Piece:
    """A step of a reply. text: what may be shown now, often of several tokens or none. token: the
    one chosen (None for the last piece). finish: why the reply ends ("stop" or "length"). likely:
    the likeliest tokens with their logarithms, if asked for."""

    text: str
    token: int | None = None
    logprob: float | None = None
    finish: str | None = None
    likely: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Wishes:
    """What a reply should be. limit: the most tokens. stop: texts that end it. ends: tokens that
    end it. logprobs: None, or how many likely tokens to tell beside the chosen one. form: makes
    what constrains the tokens of one reply, if anything does. show: special tokens that are told in
    its text."""

    limit: int = 256
    stop: Sequence[str] = ()
    ends: Sequence[int] = ()
    logprobs: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    form: Callable[[], Constraint] | None = None
    show: Sequence[int] = ()


class Reply:
    """tokens: the prompt and what was generated; they grow. room: the most tokens whose keys and
    values fit, so that the last one is not fed again."""

    def __init__(
        self, tokens: list[int], wishes: Wishes, tokenizer: Tokenizer | None, room: int
    ) -> None:
        """tokenizer: None for replies in tokens only."""
        self.tokens, self.prompt = tokens, len(tokens)
        self.finish: str | None = None
        self._wishes, self._room = wishes, room
        self._sampler = Sampler(wishes.sampling, tokens)
        self._pieces = None if tokenizer is None else Pieces(tokenizer, wishes.show)
        self._stops = StopTexts(wishes.stop)
        self._form = None if wishes.form is None else wishes.form()

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt :]

    @property
    def left(self) -> int:
        """The most tokens that may still come."""
        return min(self.prompt + self._wishes.limit, self._room + 1) - len(self.tokens)

    def push(self, logits: np.ndarray) -> list[Piece]:
        """The pieces that the next token makes, chosen from logits (vocabulary,) f32."""
        token = self._sampler.choose(logits if self._form is None else self._form.masked(logits))
        if token in self._wishes.ends:
            return [self.end("stop")]
        self.tokens.append(token)
        text = "" if self._pieces is None else self._stops.push(self._pieces.push(token))
        made = [Piece(text, token, *self._logprobs(logits, token))]
        complete = self._form is not None and not self._form.push(token)
        if self._stops.found or complete:
            made.append(self.end("stop"))
        elif self.left < 1:
            made.append(self.end("length"))
        return made

    def end(self, finish: str) -> Piece:
        """The last piece, with the text that was held back."""
        held = ""
        if not self._stops.found and self._pieces is not None:
            held = self._stops.push(self._pieces.flush())
            held += self._stops.flush()
        self.finish = "stop" if self._stops.found else finish
        return Piece(held, finish=self.finish)

    def _logprobs(
        self, logits: np.ndarray, token: int
    ) -> tuple[float | None, None, tuple[tuple[int, float], ...]]:
        """(of the token, no finish, of the likeliest): the fields of a piece."""
        if self._wishes.logprobs is None:
            return None, None, ()
        known = log_probabilities(logits)
        likeliest = np.argsort(-known, kind="stable")[: self._wishes.logprobs]
        return float(known[token]), None, tuple((int(t), float(known[t])) for t in likeliest)
