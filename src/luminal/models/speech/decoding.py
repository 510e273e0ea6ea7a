"""What is said in a window: the likeliest tokens, by greedy choice, beam search or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .program import DecoderProgram, Encoded
from .rules import Rules

Tokens: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Heard:
    """tokens: after the prompt, without the end. score: the sum of their logarithms, the end's too
    where there is one. no_speech: the probability of silence, after the token of the start."""

    tokens: Tokens
    score: float
    no_speech: float = 0.0

    @property
    def average(self) -> float:
        """The mean of the logarithms."""
        return self.score / (len(self.tokens) + 1)


class Decoding:
    """One way to choose. temperature: 0 takes the likeliest; above, `hypotheses` are drawn and the
    likeliest on average is kept. hypotheses: at 0 beams of a search, 1 being greedy. limit: most
    tokens. patience: so many times `hypotheses` must have ended."""

    def __init__(
        self, program: DecoderProgram, rules: Rules, hypotheses: int = 1, temperature: float = 0.0,
        limit: int | None = None, patience: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.program, self.rules, self.hypotheses = program, rules, hypotheses
        self.temperature, self.patience = temperature, patience
        self.limit = program.config.context // 2 if limit is None else limit
        self._rng = np.random.default_rng(seed)

    def hear(self, encoded: Encoded, prompt: Sequence[int]) -> list[Heard]:
        """What is said in each recording; all begin with the prompt."""
        program, own = self.program, self.rules.specials
        audios, beams = len(encoded[0]), self.hypotheses
        program.listen(encoded, beams)
        start = list(prompt).index(own.start)
        ids = np.tile(np.array(prompt, np.int64), (audios, 1))
        ends = [start, len(prompt) - 1]
        logits = program.prompt(ids, ends if ends[0] < ends[1] else ends[1:])
        silent = softmax(logits[:, 0])[:, own.no_speech]
        search = _Search(self, audios)
        following = logits[:, -1:]  # (audios, hypotheses or one, vocabulary)
        limit = min(self.limit, program.config.context - len(prompt))
        for _ in range(limit):
            ids, parents = search.advance(following)
            if search.done or program.position == program.config.context:
                break
            program.reorder(parents)
            following = program.step(ids)
        return [Heard(best.tokens, best.score, float(quiet))
                for best, quiet in zip(search.best(), silent)]  # fmt: skip


class _Search:
    """Hypotheses about recordings: those that go on, and those that have ended."""

    def __init__(self, how: Decoding, audios: int) -> None:
        self.how, self.rules, self.end = how, how.rules, how.rules.specials.end
        self.going = [[Heard((), 0.0)] for _ in range(audios)]
        self.ended: list[dict[Tokens, float]] = [{} for _ in range(audios)]
        self._most = max(1, round(how.hypotheses * how.patience))

    @property
    def done(self) -> bool:
        return not any(self.going)

    def advance(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One token more: (ids, parents), each (audios, hypotheses); where fewer go on, the rest is
        of no meaning."""
        shape = (len(self.going), self.how.hypotheses)
        ids, parents = np.full(shape, self.end, np.int64), np.zeros(shape, np.int64)
        for audio, before in enumerate(self.going):
            if not before:
                continue
            rows = logits[audio, : len(before)]
            self.rules.apply(rows, [each.tokens for each in before])
            chosen = self._drawn(rows, before) if self.how.temperature else self._beams(
                rows, before, audio)  # fmt: skip
            self.going[audio] = []
            for place, (parent, token, score) in enumerate(chosen):
                ids[audio, place], parents[audio, place] = token, parent
                tokens = (*before[parent].tokens, token)
                self.going[audio].append(Heard(tokens, score))
            if self.how.temperature:
                self._rest(audio)
        return ids, parents

    def _beams(
        self, rows: np.ndarray, before: list[Heard], audio: int
    ) -> list[tuple[int, int, float]]:
        """(parent, token, score) of the best that go on; those that end are kept aside."""
        width, found = self.how.hypotheses, []
        shares = log_softmax(rows)
        likely = _largest(shares, width + (width > 1))  # one of them may be the end
        for parent, (row, places) in enumerate(zip(shares, likely)):
            found += [(before[parent].score + float(row[t]), parent, int(t)) for t in places]
        found.sort(key=lambda each: -each[0])
        going: list[tuple[int, int, float]] = []
        for score, parent, token in found:
            if len(going) == width:
                break
            if token != self.end:
                going.append((parent, token, score))
            elif len(self.ended[audio]) < self._most:
                self.ended[audio].setdefault(before[parent].tokens, score)
        return [] if len(self.ended[audio]) >= self._most else going

    def _drawn(self, rows: np.ndarray, before: list[Heard]) -> list[tuple[int, int, float]]:
        """Each hypothesis goes on by chance; at first there is one, from which all are drawn."""
        shares, warm = log_softmax(rows), softmax(rows / self.how.temperature)
        parents = range(len(before)) if before[0].tokens else [0] * self.how.hypotheses
        found = []
        for parent in parents:
            if before[parent].tokens[-1:] == (self.end,):
                found.append((parent, self.end, before[parent].score))
                continue
            edges = np.cumsum(warm[parent], dtype=np.float64)
            token = int(np.searchsorted(edges, self.how._rng.random() * edges[-1], "right"))
            token = min(token, len(edges) - 1)
            found.append((parent, token, before[parent].score + float(shares[parent, token])))
        return found

    def _rest(self, audio: int) -> None:
        """Drawn hypotheses go on together, until all have ended."""
        if all(each.tokens[-1] == self.end for each in self.going[audio]):
            for each in self.going[audio]:
                self.ended[audio].setdefault(_cut(each.tokens, self.end), each.score)
            self.going[audio] = []

    def best(self) -> list[Heard]:
        """Of each recording, the likeliest on average; who did not end counts where too few did."""
        found = []
        for going, ended in zip(self.going, self.ended):
            several = [Heard(tokens, score) for tokens, score in ended.items()]
            lacking = max(0, self.how.hypotheses - len(several))
            going = [Heard(_cut(each.tokens, self.end), each.score) for each in going]
            several += sorted(going, key=lambda each: -each.score)[:lacking]
            found.append(max(several, key=lambda each: each.score / max(1, len(each.tokens))))
        return found


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """Over the last dimension."""
    top = rows.max(-1, keepdims=True)
    found: np.ndarray = rows - (top + np.log(np.exp(rows - top).sum(-1, keepdims=True)))
    return found


def softmax(rows: np.ndarray) -> np.ndarray:
    """Over the last dimension."""
    shares = np.exp(rows - rows.max(-1, keepdims=True))
    found: np.ndarray = shares / shares.sum(-1, keepdims=True)
    return found


def _largest(rows: np.ndarray, count: int) -> np.ndarray:
    """Places (rows, count) of the largest, the largest first; of equal ones the earlier first."""
    if count == 1:
        return rows.argmax(-1)[:, None]
    some = np.argpartition(-rows, count, axis=-1)[:, :count]
    order = np.lexsort((some, -np.take_along_axis(rows, some, -1)), axis=-1)
    return np.take_along_axis(some, order, -1)


def _cut(tokens: Tokens, end: int) -> Tokens:
    return tokens[: tokens.index(end)] if end in tokens else tokens
