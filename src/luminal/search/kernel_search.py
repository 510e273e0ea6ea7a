"""The search for the best schedule of one kernel: propose, check, measure; race the best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import CompileError, Illegal
from ..scheduling.decisions import Choices
from .database import Trial, Tuned
from .measure import Measurer
from .progress import Progress
from .space import Candidate, Space
from .strategies import Strategy, Tried
from .turns import ratios, winner

FINALISTS = 4
ROUNDS = 15
RACE_SECONDS = 2.0
NEAR = 1.1  # times the default's seconds: slower candidates are no finalists
IN_VAIN = 100  # proposals that bring nothing new: the space is searched
AT_THE_LIMIT = 0.95  # share of the roofline at which a search stops


@dataclass
class Limit:
    """When to stop: after so many candidates, or at this time."""

    candidates: int | None
    until: float | None
    tried: int = 0

    @property
    def reached(self) -> bool:
        if self.candidates is not None and self.tried >= self.candidates:
            return True
        return self.until is not None and time.monotonic() >= self.until


@dataclass
class KernelSearch:
    """The search for one kernel."""

    space: Space
    measurer: Measurer
    strategy: Strategy
    limit: Limit
    least: float  # seconds, by the roofline
    progress: Progress

    def __post_init__(self) -> None:
        self.tried: list[Tried] = []
        self.worked: list[tuple[int, Candidate]] = []  # as in `tried`
        self.record: list[Trial] = []
        self.wrong: list[str] = []
        self._texts: set[str] = set()
        self._refused = 0

    def run(self, earlier: Sequence[Trial]) -> Tuned:
        """The best point. `earlier`: what other searches have tried. Raises WrongResult where the
        default itself is wrong, CompileError where it cannot be built."""
        default = self.space.default
        result = self.measurer.open(self.space.kernel, default)
        if result.status != "ok":
            raise CompileError(f"the default schedule is {result.status}: {result.detail}")
        self._texts.add(_text(default))
        self._keep(0, default, result.seconds)
        self._resume(earlier)
        in_vain = 0
        while not self.limit.reached and in_vain < IN_VAIN and not self._done():
            batch, ended = self._fresh()
            in_vain = 0 if batch else in_vain + 1
            self.measurer.begin(batch)
            for number, candidate in batch.items():
                self._try(number, candidate)
            if ended:
                break
        return self._final()

    def _fresh(self) -> tuple[dict[int, Candidate], bool]:
        """(new candidates, by number, as many as are built at once; whether there are no more)."""
        batch: dict[int, Candidate] = {}
        for _ in range(self.measurer.ahead):
            if self.limit.reached:
                break
            choices = self.strategy.propose(self.tried)
            if choices is None:
                return batch, True
            self._number(choices, batch)
        return batch, False

    def _number(self, choices: Choices, batch: dict[int, Candidate]) -> None:
        """A point joins a batch, unless it is illegal or nothing new."""
        candidate = self._candidate(choices)
        if candidate is not None and _text(candidate) not in self._texts:
            self._texts.add(_text(candidate))
            self.limit.tried += 1
            batch[self.limit.tried] = candidate

    @property
    def notes(self) -> list[str]:
        """What a person should know beside the result."""
        if not self.wrong:
            return []
        return [f"{len(self.wrong)} candidates crashed or were wrong, such as {self.wrong[0]}"]

    def _done(self) -> bool:
        """At the roofline; a share of more than all only says that it was measured badly."""
        share = self.least / self._best().seconds
        return AT_THE_LIMIT <= share <= 1.05

    def _best(self) -> Tried:
        return min(self.tried, key=lambda t: t.seconds)

    def _resume(self, earlier: Sequence[Trial]) -> None:
        """What was refused before is not tried again; what was good is tried first."""
        for trial in sorted(earlier, key=lambda t: t.seconds)[: 2 * FINALISTS]:
            if trial.status == "ok" and not self.limit.reached:
                batch: dict[int, Candidate] = {}
                self._number(trial.choices, batch)
                for number, fresh in batch.items():
                    self._try(number, fresh)
        for trial in earlier:
            candidate = self._candidate(trial.choices)
            if candidate is not None:
                self._texts.add(_text(candidate))

    def _candidate(self, choices: Choices) -> Candidate | None:
        try:
            return self.space.at(choices)
        except Illegal:
            self._refused += 1
            return None

    def _try(self, number: int, candidate: Candidate) -> None:
        result = self.measurer.attempt(number, candidate, self._best().seconds)
        self.record.append(Trial(candidate.choices, result.status, result.seconds))
        if result.status == "ok":
            self._keep(number, candidate, result.seconds)
        elif result.status != "refused":
            self.wrong.append(f"{candidate.name}: {result.status}, {result.detail}")
        gain = self.tried[0].seconds / self._best().seconds
        self.progress.step(self.limit.tried, gain)

    def _keep(self, number: int, candidate: Candidate, seconds: float) -> None:
        self.worked.append((number, candidate))
        self.tried.append(Tried(candidate.choices, candidate.decisions, seconds))

    def _final(self) -> Tuned:
        """The best few and the default in turns: only what wins then is kept."""
        order = sorted(range(1, len(self.tried)), key=lambda n: self.tried[n].seconds)
        normal = self.tried[0].seconds
        near = [n for n in order[:FINALISTS] if self.tried[n].seconds < NEAR * normal]
        if not near:
            return Tuned({}, normal, normal, self.least, self.limit.tried)
        finalists = dict(self.worked[n] for n in near)
        times = self.measurer.race(finalists, ROUNDS, RACE_SECONDS)
        return self._winner(finalists, times)

    def _winner(self, finalists: dict[int, Candidate], times: dict[int, list[float]]) -> Tuned:
        normal = statistics.median(times[0])
        found, best = ratios(times, 0), winner(times, 0)
        points = {0: {}, **{n: c.choices for n, c in finalists.items()}}
        order = sorted(found, key=lambda n: found[n])
        runners = tuple((points[n], found[n] * normal) for n in order if n != best)
        return Tuned(
            points[best], found[best] * normal, normal, self.least, self.limit.tried, runners
        )


def _text(candidate: Candidate) -> str:
    values = " ".join(v.name for v in candidate.kernel.values)
    return f"{candidate.schedule.text()}\n{values}"
