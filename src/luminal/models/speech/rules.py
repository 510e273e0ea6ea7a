"""Which tokens may come next, as OpenAI's implementation of Whisper has it
(https://github.com/openai/whisper, decoding.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .config import Specials

FIRST_AT_MOST = 50  # steps of 0.02 s: the latest time at which the first words begin
STEP = 0.02  # seconds between two tokens of time


@dataclass(frozen=True)
class Rules:
    """suppress: never; suppress_first: not as the first. timestamps: text lies between tokens of
    times, which come in pairs and never go back."""

    specials: Specials
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    timestamps: bool = True

    def apply(self, logits: np.ndarray, said: Sequence[Sequence[int]]) -> None:
        """Make logits (rows, vocabulary) of what may not follow minus infinity. said: the tokens of
        each row after its prompt."""
        own = self.specials
        hidden = [*self.suppress, own.start, own.transcribe, own.translate, own.previous,
                  own.no_speech]  # fmt: skip
        hidden += [own.no_timestamps] if self.timestamps else []
        logits[:, [token for token in hidden if token < logits.shape[1]]] = -np.inf
        for row, tokens in zip(logits, said):
            if not tokens:
                row[list(self.suppress_first)] = -np.inf
            if self.timestamps:
                self._time(row, tokens)

    def _time(self, row: np.ndarray, tokens: Sequence[int]) -> None:
        end, zero = self.specials.end, self.specials.time
        if not tokens:
            row[:zero] = -np.inf
            row[zero + FIRST_AT_MOST + 1 :] = -np.inf
            return
        last, before = tokens[-1] >= zero, len(tokens) < 2 or tokens[-2] >= zero
        if last and before:
            row[zero:] = -np.inf
        elif last:
            row[:end] = -np.inf
        latest = max((token for token in tokens if token >= zero), default=zero)
        row[zero : latest + (not (last and not before))] = -np.inf
        times = row[zero:].astype(np.float64)
        top = times.max(initial=-np.inf)
        if top > -np.inf and top + np.log(np.exp(times - top).sum()) > row[:zero].max():
            row[:zero] = -np.inf
