"""Calls of kernels that follow each other, as one launch of a device whose groups may wait for each
other: a meeting of all groups costs less than a launch, and kernels that do not need each other
run side by side. Which calls: those by which the device's model of a run is least.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..backend.contract import Accelerator, Kept
from ..backend.launch import Joined
from ..errors import CompileError
from ..kernel.kernel import Kernel
from ..kernel.ranges import Ranges
from ..kernel.target import Target
from .plan import Joint, Launch, Plan

CLEAR = 0.98  # of the time of a launch each: less is no reason to compile another text
MOST = 12  # calls of a launch: their texts are compiled as one
NUMBER = re.compile(r"k\d+(_\d+)?")  # of a kernel
Sizes: TypeAlias = Mapping[str, int]
Kernels: TypeAlias = tuple[int, ...]


def joint_codes(
    plan: Plan, device: Accelerator, target: Target, codes: Sequence[Kept], usual: Sizes,
    welcome: Callable[[Sequence[Kernel]], bool],
) -> tuple[list[str], Sequence[Kept]]:  # fmt: skip
    """Gives the plan its joints and launches: what they save, for people, and the code of the
    joints. codes: of the plan's kernels. welcome: whether kernels may be one launch."""
    registers, refused = [device.registers(code) for code in codes], frozenset[Kernels]()
    while True:
        said = join(plan, device, registers, usual, refused)
        slower = {joint.kernels for joint in plan.joints
                  if not welcome([plan.kernels[n].kernel for n in joint.kernels])}  # fmt: skip
        texts = [device.render_joined(joint.program(plan)) for joint in plan.joints] \
            if not slower else []  # fmt: skip
        made = device.build(texts, target)
        unfit = {joint.kernels for joint, code in zip(plan.joints, made) if _unfit(device, code)}
        if not slower | unfit:
            return said, made
        refused |= slower | unfit


def _unfit(device: Accelerator, code: Kept) -> bool:
    """It spills registers, or was too long for the device's compiler: its parts are not."""
    try:
        return device.spilled(code) > 0
    except CompileError:
        return True


def join(
    plan: Plan, device: Accelerator, registers: Sequence[int], usual: Sizes,
    refused: frozenset[Kernels] = frozenset(),
) -> list[str]:  # fmt: skip
    """Gives the plan its joints and launches; what they save, for people. registers: of each
    kernel, where known. usual: sizes of runs. refused: kernels that are no joint."""
    joining, said = _Joining(plan, device, registers, refused), list[str]()
    launches: list[tuple[Ranges, list[_Segment], list[int]]] = []
    for ranges, sizes in variants(plan, usual):
        running = [n for n, c in enumerate(plan.calls) if not c.constant and c.runs(sizes)]
        segments = joining.best(running, sizes)
        if several := [each for each in segments if each.joined]:
            launches.append((ranges, several, running))
            said.append(_said(segments, running, ranges))
    plan.joints = joining.joints([s for _, several, _ in launches for s in several])
    numbers = {(joint.kernels, joint.meets): n for n, joint in enumerate(plan.joints)}
    plan.launches = tuple(
        Launch(numbers[each.kernels, each.joined.meets], tuple(running[each.start : each.stop]),
               ranges, each.seconds, each.alone)
        for ranges, several, running in launches for each in several if each.joined
    )  # fmt: skip
    return said


def variants(plan: Plan, usual: Sizes) -> list[tuple[Ranges, Sizes]]:
    """The ranges of sizes that have calls of their own, each with sizes of a run in it."""
    known = {name: usual.get(name, int(low)) for name, (low, _) in plan.sizes.items()}
    found: dict[str, dict[tuple[str, int, int], None]] = {}
    for each in (each for call in plan.calls for each in call.ranges):
        found.setdefault(each[0], {})[each] = None
    return [
        (ranges, known | {name: min(max(known[name], low), high) for name, low, high in ranges})
        for ranges in itertools.product(*found.values())
    ]


def _said(segments: Sequence[_Segment], running: Sequence[int], ranges: Ranges) -> str:
    where = ", ".join(f"{name} {low} to {high}" for name, low, high in ranges)
    joined, alone = 1e6 * sum(s.seconds for s in segments), 1e6 * sum(s.alone for s in segments)
    return (f"launches{f' ({where})' if where else ''}: {len(segments)} for {len(running)} calls, "
            f"modelled {joined:.1f} us, {alone:.1f} us where each is one")  # fmt: skip


@dataclass(frozen=True)
class _Segment:
    """Calls start .. stop - 1 of those that run. joined: None for a single one. alone: seconds of
    a launch each."""

    start: int
    stop: int
    kernels: Kernels
    joined: Joined | None
    seconds: float
    alone: float


@dataclass
class _Joining:
    plan: Plan
    device: Accelerator
    registers: Sequence[int]
    refused: frozenset[Kernels]
    _known: dict[object, float | None] = field(default_factory=dict)

    def best(self, running: Sequence[int], sizes: Sizes) -> list[_Segment]:
        """The cut into launches that takes the least time: of the best cuts up to each call, the
        best one that ends there."""
        ends: list[tuple[float, list[_Segment]]] = [(0.0, [])]
        for stop in range(1, len(running) + 1):
            options = []
            for start in range(stop - 1, max(-1, stop - 1 - MOST), -1):
                segment = self._segment(running, start, stop, sizes)
                if segment is None:
                    break
                seconds, before = ends[start]
                options.append((seconds + segment.seconds, [*before, segment]))
            ends.append(min(options, key=lambda option: option[0]))
        return ends[-1][1]

    def _segment(
        self, running: Sequence[int], start: int, stop: int, sizes: Sizes
    ) -> _Segment | None:
        """None: no launch can be so long."""
        calls = running[start:stop]
        kernels = tuple(self.plan.calls[n].kernel for n in calls)
        alone = [self._alone(number, sizes) for number in kernels]
        known = [each for each in alone if each is not None]
        if stop - start == 1:
            return _Segment(start, stop, kernels, None, sum(known), sum(known))
        if len(known) < len(alone) or kernels in self.refused or self._in_loop(calls):
            return None
        joined = self._joined(calls, kernels)
        parts = [self._part(n, joined, sizes) for n in kernels] if joined else []
        total = sum(part for part in parts if part is not None)
        if joined is None or None in parts:
            return None
        total += self.device.meeting_seconds(joined, sizes)
        seconds = total if total < CLEAR * sum(known) else math.inf  # a longer one may pay
        return _Segment(start, stop, kernels, joined, seconds, sum(known))

    def _in_loop(self, calls: Sequence[int]) -> bool:
        return any(loop.start <= n < loop.stop for loop in self.plan.loops for n in calls)

    def _joined(self, calls: Sequence[int], kernels: Kernels) -> Joined | None:
        programs = [self.plan.kernels[n].program for n in kernels]
        if any(self.plan.kernels[n].schedule.library for n in kernels):
            return None
        taken = [self.registers[n] for n in kernels]
        return self.device.joined(programs, taken, self.meets(calls), "")

    def meets(self, calls: Sequence[int]) -> tuple[bool, ...]:
        """Before which calls all groups must meet: one of those since the last meeting writes what
        they use, or uses what they write."""
        same = {new: old for old, new in self.plan.in_place}
        reads: set[int] = set()
        writes: set[int] = set()
        found: list[bool] = []
        for number in calls:
            used = self.plan.touched(self.plan.calls[number])
            read, written = ({same.get(m, m) for m in memories} for memories in used)
            found.append(bool(writes & (read | written) or reads & written))
            if found[-1]:
                reads, writes = set(), set()
            reads, writes = reads | read, writes | written
        return tuple(found)

    def _alone(self, number: int, sizes: Sizes) -> float | None:
        def modelled() -> float | None:
            made = self.plan.kernels[number]
            found = self.device.modelled(
                made.kernel, made.program, _own(made.program.sizes, sizes), self.registers[number]
            )
            return found.seconds if found else None

        return self._kept((number, *sizes.items()), modelled)

    def _part(self, number: int, joined: Joined, sizes: Sizes) -> float | None:
        made = self.plan.kernels[number]
        return self._kept(
            (number, joined.group, joined.held, *sizes.items()),
            lambda: self.device.part_seconds(
                made.kernel, made.program, _own(made.program.sizes, sizes), joined
            ),
        )

    def _kept(self, key: object, seconds: Callable[[], float | None]) -> float | None:
        if key not in self._known:
            self._known[key] = seconds()
        return self._known[key]

    def joints(self, segments: Sequence[_Segment]) -> tuple[Joint, ...]:
        """The distinct ones, named by their kernels."""
        found: dict[tuple[Kernels, tuple[bool, ...]], Joint] = {}
        for each in segments:
            if each.joined and (each.kernels, each.joined.meets) not in found:
                names = (NUMBER.match(self.plan.kernels[n].name) for n in each.kernels)
                parts = (name[0] for name in names if name)
                name = "_".join((f"l{len(found) + 1}", *parts))
                made = Joint(name, each.kernels, each.joined.meets, each.joined.group,
                             each.joined.held)  # fmt: skip
                found[each.kernels, each.joined.meets] = made
        return tuple(found.values())


def _own(names: Sequence[str], sizes: Sizes) -> Sizes:
    return {name: sizes[name] for name in names}
