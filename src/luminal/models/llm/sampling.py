"""Choosing the next token from logits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real

import numpy as np

from ...errors import InputError

SEEDS = 2**64  # those that differ


@dataclass(frozen=True)
class Sampling:
    """How to choose. temperature 0 is greedy; the others narrow the choice, in this order: top_k
    most likely tokens (0 or -1: all), the fewest that have top_p of the probability, those with at
    least min_p of the likeliest one's. repetition_penalty divides (or multiplies negative) logits
    of tokens that occurred (Keskar et al. 2019); presence_penalty and frequency_penalty are
    subtracted once, or once for each occurrence, in what was generated. seed: any integer; None
    draws one. logit_bias is added to the logits of single tokens. Raises InputError."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        bias = given.pop("logit_bias")
        if not isinstance(bias, Mapping) or not all(isinstance(token, Integral) for token in bias):
            raise InputError(f"logit_bias={bias!r}: token ids, and what is added to each")
        biases = {f"logit_bias[{token}]": added for token, added in bias.items()}
        for name, value in (given | biases).items():
            none = value is None and name == "seed"
            if not none and not (isinstance(value, Real) and math.isfinite(value)):
                raise InputError(f"{name}={value!r} is no finite number")
        checks = {
            "temperature": self.temperature >= 0,
            "top_k": isinstance(self.top_k, Integral) and self.top_k >= -1,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0,
            "seed": self.seed is None or isinstance(self.seed, Integral),
        }
        for name, right in checks.items():
            if not right:
                raise InputError(f"{name}={getattr(self, name)!r} is outside its range")

    def check(self, vocabulary: int) -> None:
        """Raises InputError for a token that a model with so many does not have."""
        for token in self.logit_bias:
            if not 0 <= token < vocabulary:
                raise InputError(
                    f"logit_bias: token ids go from 0 to {vocabulary - 1}, not {token}"
                )


class Sampler:
    """Chooses the tokens of one reply. prompt: what came before it."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = ()) -> None:
        self.sampling = sampling
        self._seen = set(prompt)
        self._generated: Counter[int] = Counter()
        seed = None if sampling.seed is None else sampling.seed % SEEDS
        self._random = np.random.default_rng(seed)

    def choose(self, logits: np.ndarray) -> int:
        """A token from logits (vocabulary,) f32."""
        scores = self._penalised(logits)
        token = int(scores.argmax()) if not self.sampling.temperature else self._draw(scores)
        self._seen.add(token)
        self._generated[token] += 1
        return token

    def _penalised(self, logits: np.ndarray) -> np.ndarray:
        given = self.sampling
        penalties = given.repetition_penalty - 1, given.presence_penalty, given.frequency_penalty
        if not any(penalties) and not given.logit_bias:
            return logits
        scores = logits.astype(np.float32, copy=True)
        if given.repetition_penalty != 1 and self._seen:
            seen = np.fromiter(self._seen, np.int64)
            seen = seen[seen < len(scores)]  # not the tokens of pictures
            old = scores[seen]
            factor = np.float32(given.repetition_penalty)
            scores[seen] = np.where(old > 0, old / factor, old * factor)
        if self._generated:
            made = np.fromiter(self._generated.keys(), np.int64)
            counts = np.fromiter(self._generated.values(), np.float32)
            scores[made] -= given.presence_penalty + given.frequency_penalty * counts
        for token, bias in given.logit_bias.items():
            scores[token] += bias
        return scores

    def _draw(self, scores: np.ndarray) -> int:
        tokens, chances = distribution(scores, self.sampling)
        place = np.searchsorted(np.cumsum(chances), self._random.random() * chances.sum())
        return int(tokens[min(int(place), len(tokens) - 1)])


def distribution(scores: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, probabilities f64) that may be drawn, the likeliest first."""
    wide = scores.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature: the others are at -inf
        scaled = (wide - wide.max()) / sampling.temperature
    count = min(sampling.top_k, len(scaled)) if sampling.top_k > 0 else len(scaled)
    tokens = np.argpartition(-scaled, count - 1)[:count] if count < len(scaled) else None
    tokens = np.arange(len(scaled)) if tokens is None else tokens
    tokens = tokens[np.argsort(-scaled[tokens], kind="stable")]
    chances = np.exp(scaled[tokens] - scaled[tokens[0]])
    chances /= chances.sum()
    if sampling.top_p < 1:
        before = np.cumsum(chances) - chances  # the first token stays whatever its share
        tokens, chances = tokens[before < sampling.top_p], chances[before < sampling.top_p]
        chances = chances / chances.sum()
    likely = chances >= sampling.min_p * chances[0]
    return tokens[likely], chances[likely] / chances[likely].sum()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms (vocabulary,) f64 of the probabilities under the model, without sampling
    options."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return wide - np.log(np.exp(wide).sum())
