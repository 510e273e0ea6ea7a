"""One reply as it grows: tokens chosen, text given out, the reasons to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .grammar import Constraint
from .pictures import Seen
from .sampling import Sampler, Sampling, log_probabilities
from .text import Pieces, StopTexts, Tokenizer

NEAR = 8  # tokens before a reply on which the text of its first one may depend


@dataclass(frozen=True)
class Known:
    """A token with its logarithm (None for the first one), and the likeliest ones with theirs."""

    token: int
    logprob: float | None = None
    likely: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """A step of a reply. text: what may be shown now, often of several tokens or none. token: the
    one chosen (None for the last piece). finish: why the reply ends ("stop" or "length"). likely:
    the likeliest tokens with their logarithms, if asked for. prompt: what is known of the prompt's
    tokens, in the first piece, if asked for. reused: in the first piece, how many tokens of the
    prompt were found in the cache."""

    text: str
    token: int | None = None
    logprob: float | None = None
    finish: str | None = None
    likely: tuple[tuple[int, float], ...] = ()
    prompt: tuple[Known, ...] = ()
    reused: int = field(default=0, compare=False)  # no part of what is replied


@dataclass(frozen=True)
class Wishes:
    """What a reply should be. limit: the most tokens; least: no end token comes before so many.
    stop: texts that end it. ends: tokens that end it. logprobs: None, or how many likely tokens to
    tell beside the chosen one. form: makes what constrains the tokens of one reply, if anything
    does. show: special tokens that are told in its text. scores: whether the tokens of the prompt
    are told with their logarithms too. adapter: the number of one of the engine's; 0: none.
    goes_on: whether its text follows that of the prompt, with a space if there is one."""

    limit: int = 256
    stop: Sequence[str] = ()
    ends: Sequence[int] = ()
    logprobs: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    form: Callable[[], Constraint] | None = None
    show: Sequence[int] = ()
    least: int = 0
    scores: bool = False
    adapter: int = 0
    goes_on: bool = False


class Reply:
    """tokens: the prompt and what was generated; they grow. room: the most tokens whose keys and
    values fit, so that the last one is not fed again. seen: the prompt's pictures, which stay for
    as long as this does."""

    def __init__(
        self, tokens: list[int], wishes: Wishes, tokenizer: Tokenizer | None, room: int,
        seen: Sequence[Seen] = (),
    ) -> None:  # fmt: skip
        """tokenizer: None for replies in tokens only."""
        self.seen = seen
        self.tokens, self.prompt = tokens, len(tokens)
        self.finish: str | None = None
        self._wishes, self._room = wishes, room
        self._sampler = Sampler(wishes.sampling, tokens)
        before = tokens[-NEAR:] if wishes.goes_on else ()
        self._pieces = None if tokenizer is None else Pieces(tokenizer, wishes.show, before)
        self._stops = StopTexts(wishes.stop)
        self._form = None if wishes.form is None else wishes.form()
        self._scores = [Known(token) for token in tokens[:1]]

    @property
    def adapter(self) -> int:
        return self._wishes.adapter

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt :]

    @property
    def scored(self) -> bool:
        """Whether logits of all tokens of the prompt are needed."""
        return self._wishes.scores and self._wishes.logprobs is not None

    @property
    def left(self) -> int:
        """The most tokens that may still come."""
        return min(self.prompt + self._wishes.limit, self._room + 1) - len(self.tokens)

    def push(self, logits: np.ndarray) -> list[Piece]:
        """The pieces that the next token makes, chosen from logits (vocabulary,) f32."""
        scores = self._take_scores()
        if self.left < 1:
            return [*scores, self.end("length")]
        token = self._sampler.choose(self._allowed(logits))
        if token in self._wishes.ends:
            return [*scores, self.end("stop")]
        self.tokens.append(token)
        text = "" if self._pieces is None else self._stops.push(self._pieces.push(token))
        known = self._known(logits, token)
        made = [*scores, Piece(text, token, known.logprob, None, known.likely)]
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

    def _allowed(self, logits: np.ndarray) -> np.ndarray:
        """Logits of the tokens that may come; a form decides itself where it ends."""
        if self._form is not None:
            return self._form.masked(logits)
        ends = [end for end in self._wishes.ends if end < len(logits)]
        if ends and len(self.tokens) - self.prompt < self._wishes.least:
            logits = logits.copy()
            logits[ends] = -np.inf
        return logits

    def score(self, logits: np.ndarray) -> None:
        """Logits (tokens, vocabulary) after the next tokens of the prompt."""
        for row in logits:
            self._scores.append(self._known(row, self.tokens[len(self._scores)]))

    def _take_scores(self) -> list[Piece]:
        """The piece of the prompt, once."""
        scores, self._scores = self._scores, []
        return [Piece("", prompt=tuple(scores))] if scores and self._wishes.scores else []

    def _known(self, logits: np.ndarray, token: int) -> Known:
        if self._wishes.logprobs is None:
            return Known(token)
        known = log_probabilities(logits)
        count = min(self._wishes.logprobs, len(known))
        first = np.argpartition(-known, count - 1)[:count] if count else np.arange(0)
        likeliest = first[np.argsort(-known[first], kind="stable")]
        likely = tuple((int(other), float(known[other])) for other in likeliest)
        return Known(token, float(known[token]), likely)
