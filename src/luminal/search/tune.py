"""Tuning: the best known choices for each kernel of a program, and the search for better ones.

Results come from this search, from the project's database, or from the user's. The default schedule
takes part in every final race, so that a search cannot lose to it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..backend.contract import Accelerator
from ..backend.devices import Device
from ..children import Lost
from ..errors import CompileError, DeviceError, Illegal, InputError
from ..kernel.canonical import canonical
from ..kernel.kernel import Kernel
from ..kernel.target import Target
from ..kernel.work import usual_sizes
from ..progress import Line
from ..rewrite.optimise import Extractor
from ..runtime.plan import Candidate
from ..scheduling.decisions import Choices, Decision, Decisions
from ..scheduling.prepare import prepare
from ..scheduling.several import several
from .database import Tuned, compiler_version, databases, key_of, state_of
from .kernel_search import KernelSearch, Limit
from .measure import Measurer
from .oracle import checkable
from .plans import Chosen, measured_plans, recalled
from .points import point_text
from .progress import Progress
from .roofline import roofline
from .space import Space
from .strategies import Strategy, standard

Make = Callable[[int], Strategy]  # from a seed
PLANS = 0.25  # of a budget of time, to choose plans in
PARTS = 0.35  # by when the parts of long reductions are chosen, too
TWICE = 2
SPLIT = 0.95  # of the time: less is no reason for other parts
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Budget:
    """How long to search: candidates for each kernel, or seconds for all together."""

    candidates: int | None = None
    seconds: float | None = None
    start: float = field(default_factory=time.monotonic, compare=False)

    @property
    def end(self) -> float | None:
        """When all is over, by the monotonic clock."""
        return self.part(1.0)

    def part(self, share: float) -> float | None:
        """When this share of the time is over."""
        return None if self.seconds is None else self.start + share * self.seconds

    @staticmethod
    def of(search: int | str) -> Budget | None:
        """200: so many candidates a kernel; "30s", "5m": so long in all; 0: no search. Raises
        InputError."""
        if isinstance(search, bool):
            raise InputError(f'search={search!r}: expected a number or a time such as "30s"')
        if isinstance(search, int) and search >= 0:
            return Budget(candidates=search) if search else None
        if isinstance(search, str) and search[-1:] in UNITS:
            number = search[:-1].strip()
            if number.replace(".", "", 1).isdigit():
                return Budget(seconds=float(number) * UNITS[search[-1]])
        raise InputError(f'search={search!r}: expected a number or a time such as "30s"')


@dataclass(frozen=True)
class Task:
    """A kernel to tune; calls: how often a run of the program calls it."""

    kernel: Kernel
    calls: int = 1
    name: str = ""


@dataclass
class Tuning:
    """The choices for the kernels of one program.

    database: a project's file, which is then the one that is written; None: the user's; False: none
    is read or written.
    """

    backend: Device
    target: Target
    seed: int = 0
    database: str | Path | bool | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)  # by key
    splits: list[str] = field(default_factory=list)  # numbers of parts that were tried, for people

    least: float = 1.0  # gain from which the choices of a kernel are taken

    def __post_init__(self) -> None:
        self._names: dict[str, str] = {}  # of kernels that were searched, by key
        self._machine = self.backend.fingerprint(self.target)
        self._databases = databases(self.database)
        self._known: dict[str, Tuned | None] = {}
        self._seconds: dict[str, float | None] = {}  # of defaults, by key
        backend = self.backend
        named = backend if isinstance(backend, Accelerator) else backend.__name__
        self._measurer = Measurer(named, self.target, self.seed)
        self._rates: Mapping[str, float] = {}

    def __enter__(self) -> Tuning:
        """Inside, a child process measures. Raises DeviceError where it cannot."""
        self._rates = self._ceilings()
        return self

    def __exit__(self, *_: object) -> None:
        self._measurer.close()

    # ---- what is known

    def key(self, kernel: Kernel) -> str:
        return key_of(kernel, self._machine, self.target.threads)

    def find(self, kernel: Kernel) -> Tuned | None:
        """The best known result for a prepared kernel."""
        key = self.key(kernel)
        if key not in self._known:
            found = (database.find(key) for database in self._databases)
            self._known[key] = next((tuned for tuned in found if tuned), None)
        return self._known[key]

    def known(self, kernel: Kernel) -> tuple[Choices, list[str], list[Candidate]]:
        """Its choices, none where nothing is known; how they were found, for people; and what was
        timed in the end."""
        if not self._known and not any(d.exists for d in self._databases):
            return {}, [], []
        found = self.find(kernel)
        lines = describe(found) if found else []
        choices = found.choices if found and found.gain >= self.least else {}
        notes = lines + self.notes.get(self.key(kernel), [])
        return choices, notes, finalists(found) if found else []

    @property
    def gains(self) -> bool:
        """Whether any kernel has choices of its own."""
        return any(found and found.choices for found in self._known.values())

    def settle(self, least: float) -> None:
        """Forget the choices of kernels that gained less: the whole program is better without."""
        self.least = 1.0
        for key, found in self._known.items():
            if found and found.choices and found.gain < least:
                plain = self._known[key] = replace(found, choices={}, seconds=found.normal)
                self._databases[0].keep(key, self._names.get(key, "kernel"), plain)

    @property
    def state(self) -> tuple[str, ...]:
        """What may change the choices for a program: its kernels depend on nothing else here."""
        return state_of(self.backend, self.target, self.seed, self.database)

    # ---- plans

    def recall(self, region: str, extractor: Extractor) -> Chosen | None:
        """The plan that an earlier search has chosen for a region, by its key."""
        texts = (database.plan(self._plan_key(region)) for database in self._databases)
        return next((recalled(extractor, text) for text in texts if text), None)

    def measured_plans(self, own: Chosen, budget: Budget) -> list[Chosen]:
        """Plans of a region with measured kernels, the model's own first."""
        return measured_plans(own, self._measured, budget.part(PLANS))

    def keep_plan(self, region: str, chosen: Chosen) -> None:
        """Later compilations take this plan."""
        self._databases[0].keep_plan(self._plan_key(region), chosen.text)

    def joins(self, kernels: Sequence[Kernel]) -> bool:
        """Whether these may be one launch: unless an earlier search has found them slower so."""
        if not any(database.exists for database in self._databases):
            return True
        key = self._plan_key("\n".join(map(self.key, kernels)))
        found = (database.plan(key) for database in self._databases)
        return next((bool(known[0]) for known in found if known), True)

    def keep_joined(self, kernels: Sequence[Kernel], good: bool) -> None:
        """Later compilations know whether one launch of these is faster than several."""
        key = self._plan_key("\n".join(map(self.key, kernels)))
        self._databases[0].keep_plan(key, [int(good)])

    def _plan_key(self, region: str) -> str:
        text = f"{region}\n{self._machine}\n{self.target.threads}\n{compiler_version()}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _measured(self, kernel: Kernel) -> float | None:
        """Seconds of a call of an unprepared kernel with default schedules."""
        return self._sum(prepare(canonical(kernel)[0], self.target))

    def _sum(self, parts: Sequence[Kernel], again: bool = False) -> float | None:
        """Seconds of these one after the other; None where one cannot be measured."""
        taken = [self._open(part) if again else self._default_seconds(part) for part in parts]
        known = [t for t in taken if t is not None]
        return sum(known) if len(known) == len(taken) else None

    def _default_seconds(self, part: Kernel) -> float | None:
        key = self.key(part)
        if key not in self._seconds:
            self._seconds[key] = self._open(part)
        return self._seconds[key]

    def _open(self, part: Kernel) -> float | None:
        if not checkable(part, usual_sizes(part)):
            return None
        try:
            result = self._measurer.open(
                part, Space(replace(part, name="kernel"), self.target).default
            )
        except (Lost, CompileError):
            return None
        return result.seconds if result.status == "ok" else None

    # ---- parts of long reductions

    def prepared(self, kernel: Kernel) -> list[Kernel]:
        """The kernels that take its place, with as many parts as an earlier search has found best.
        kernel: in canonical form."""
        choices, *_ = self.known(kernel)
        try:
            parts = prepare(kernel, self.target, Decisions(choices))
        except Illegal:
            parts = prepare(kernel, self.target)
        return [piece for part in parts for piece in several(part, self.target)]

    def measured_parts(self, kernel: Kernel, budget: Budget) -> list[Kernel]:
        """As `prepared`, after trying the other numbers of parts while there is time."""
        decisions = Decisions()
        prepare(kernel, self.target, decisions)
        until = budget.part(PARTS)
        left = until is None or time.monotonic() < until
        if decisions.made and left and self.find(kernel) is None:
            self._try_parts(kernel, decisions.made["parts"])
        return self.prepared(kernel)

    def _try_parts(self, kernel: Kernel, parts: Decision) -> None:
        """Sums of kernels that were measured one by one; the best must win again twice."""
        rivals = {n: prepare(kernel, self.target, Decisions({"parts": n})) for n in parts.options}
        taken = {n: self._sum(rivals[n]) for n in rivals}
        seconds = {n: t for n, t in taken.items() if t is not None}
        if parts.default not in seconds:
            return
        best = min(seconds, key=lambda n: seconds[n])
        for n in (parts.default, best) * (0 if best == parts.default else TWICE):
            seconds[n] = max(seconds[n], self._sum(rivals[n], again=True) or math.inf)
        normal, gain = seconds[parts.default], seconds[parts.default] / seconds[best]
        chosen = {} if gain < 1 / SPLIT else {"parts": best}
        found = Tuned(chosen, seconds[best] if chosen else normal, normal, tried=len(seconds))
        key = self.key(kernel)
        self._known[key], self._names[key] = found, "parts of a reduction"
        self._databases[0].keep(key, self._names[key], found)
        self.splits.append(f"a reduction in {best} parts instead of {parts.default}: {gain:.2f} x")

    # ---- search

    def search(self, tasks: Sequence[Task], budget: Budget, strategy: Make = standard) -> None:
        """Look for better choices for all of these."""
        order = self._ranked(_distinct(tasks, self.key))
        weights = [weight for weight, _ in order]
        with Line(len(order)) as line:
            progress = Progress(line)
            for number, (_, task) in enumerate(order):
                limit = Limit(budget.candidates, _share(weights[number:], budget.end))
                progress.kernel(number, task.name)
                self._tune(task, strategy(self.seed), limit, progress)

    def _ranked(self, tasks: Sequence[Task]) -> list[tuple[float, Task]]:
        """(seconds of a run that it must take, task), longest first."""
        weighed = [(t.calls * roofline(t.kernel, self.target, self._rates), t) for t in tasks]
        return sorted(weighed, key=lambda pair: -pair[0])

    def _ceilings(self) -> dict[str, float]:
        """The ceilings of this machine: the best that was ever measured, for what else runs can
        only lower them."""
        machine = f"{self._machine} {self.target.threads}"
        try:
            found = self._measurer.rates()
        except Lost as lost:
            raise DeviceError(f"a search needs a process of its own: {lost}") from lost
        for name, rate in (self._databases[0].rates(machine) or {}).items():
            found[name] = max(rate, found.get(name, 0.0))
        self._databases[0].keep_rates(machine, found)
        return found

    def _tune(self, task: Task, strategy: Strategy, limit: Limit, progress: Progress) -> None:
        key = self.key(task.kernel)
        least = roofline(task.kernel, self.target, self._rates)
        sizes = usual_sizes(task.kernel)
        if not checkable(task.kernel, sizes):
            self.notes[key] = ["too large for the oracle: not tuned"]
            return
        space = Space(replace(task.kernel, name=task.name or "kernel"), self.target)
        search = KernelSearch(space, self._measurer, strategy, limit, least, progress)
        try:
            found = search.run(self._databases[0].trials(key))
        except (Lost, CompileError) as error:
            self.notes[key] = [f"not tuned: {error}"]
            return
        self._known[key], self._names[key] = found, task.name or "kernel"
        self.notes[key] = search.notes
        self._databases[0].keep(key, self._names[key], found)
        self._databases[0].add_trials(key, search.record)


def describe(found: Tuned) -> list[str]:
    """A result in a few lines, for `explain()`."""
    best = f"{1e6 * found.seconds:.1f} us, default {1e6 * found.normal:.1f} us ({found.gain:.2f} x)"
    share = 100 * found.roofline / found.seconds if found.seconds else 0.0
    head = f"tuned: {best}, {share:.0f}% of the roofline; {found.tried} tried"
    lines = [f"{head}; {point_text(found.choices)}"]
    for choices, seconds in found.runners:
        lines.append(f"  then {1e6 * seconds:.1f} us: {point_text(choices)}")
    return lines


def finalists(found: Tuned) -> list[Candidate]:
    """What a search has timed in the end, its choice first."""
    others = [runner for runner in found.runners if runner[0] != found.choices]
    rows = [(found.choices, found.seconds), *others]
    return [Candidate(point_text(choices), seconds) for choices, seconds in rows]


def _share(weights: Sequence[float], end: float | None) -> float | None:
    """Until when the first of the kernels may be searched: by its share of a run, evened out."""
    if end is None:
        return None
    now = time.monotonic()
    even = [(weight + 1e-7) ** 0.5 for weight in weights]
    return now + max(0.0, end - now) * even[0] / sum(even)


def _distinct(tasks: Sequence[Task], key: Callable[[Kernel], str]) -> list[Task]:
    found: dict[str, Task] = {}
    for task in tasks:
        name = key(task.kernel)
        before = found.get(name)
        calls = task.calls + (before.calls if before else 0)
        found[name] = Task(task.kernel, calls, before.name if before else task.name)
    return list(found.values())
