"""Plans of a region for ranges of its sizes, and their steps as one list: a step that all plans
have is there once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..kernel.canonical import canonical
from ..kernel.ranges import Hints, Ranges, idle, narrowed, ranges_of
from .lower_plan import Ref, Step
from .optimise import Extractor
from .plan import Plan

CLEAR = 1.02  # times its own best plan: less is no reason for another plan at some sizes

Ranged: TypeAlias = tuple[Ranges, Step]  # a step, and for which sizes it is; () for all
Known: TypeAlias = dict[tuple[str, tuple[tuple[str, object], ...]], int]  # numbers of steps


@dataclass(frozen=True)
class Alternative:
    """What is done in some ranges of sizes, () for all."""

    ranges: Ranges
    hints: Hints
    plan: Plan


def alternatives(
    extractor: Extractor, plan: Plan, usual: Mapping[str, Sequence[int]]
) -> list[Alternative]:
    """The plan of each range, largest first; only `plan`, which is for the usual sizes, where it is
    nearly the best one everywhere."""
    encoding = extractor.classes.encoding
    space = encoding.space
    names = {name for axis in encoding.axes for name in space.axes[axis].names()}
    sizes = {name: space.sizes[name] for name in sorted(names & space.sizes.keys())}
    there = ranges_of(sizes, usual)
    here = [replace(extractor, sizes=hints) for _, hints in there]
    pool = [plan]
    for each, (_, hints) in zip(here, there):
        if any(space.hints.get(name) != hint for name, hint in hints.items()):
            pool += each.plans()
    costs = [[each.plan(p.choice, p.stored).cost for p in pool] for each in here]
    ranked = [[cost <= CLEAR * min(of_all) for cost in of_all] for of_all in costs]
    choices: Iterable[tuple[str, ...]] = [(), *((name,) for name in sizes), tuple(sizes)]
    for kept in choices:  # the sizes that decide, as few as do
        merged = dict[Ranges, list[int]]()
        for number, (ranges, _) in enumerate(there):
            merged.setdefault(tuple(r for r in ranges if r[0] in kept), []).append(number)
        found = {ranges: _serving([ranked[n] for n in same]) for ranges, same in merged.items()}
        if all(found.values()):
            break
    return [
        Alternative(
            ranges, {n: there[merged[ranges][0]][1][n] for n, _, _ in ranges}, pool[good[0]]
        )
        for ranges, good in found.items()
    ]


def _serving(ranked: Sequence[Sequence[bool]]) -> list[int]:
    """The plans that do well in all of some ranges."""
    return [number for number, each in enumerate(zip(*ranked)) if all(each)]


def joined(parts: Sequence[tuple[Alternative, Sequence[Step]]]) -> list[Ranged]:
    """The steps of all alternatives, in an order in which they can run. The kernels of those that
    are not for all sizes are as narrow."""
    if len(parts) == 1:
        return [((), step) for step in parts[0][1]]
    known: Known = {}
    numbered = [_numbers(steps, known) for _, steps in parts]
    common = set.intersection(*({number for number, _ in each} for each in numbered))
    found, temporaries = list[Ranged](), dict[object, Ref]()
    for part, ((each, steps), numbers) in enumerate(zip(parts, numbered)):
        own = dict[Ref, Ref]()
        for step, (number, made) in zip(steps, numbers):
            for name, ref in step.arguments.items():
                if ref.kind == "temporary" and ref not in own:
                    place = (number, made[name]) if number in common else (f"part {part}", ref)
                    fresh = Ref("temporary", len(temporaries))
                    own[ref] = temporaries.setdefault(place, fresh)
            arguments = {name: own.get(ref, ref) for name, ref in step.arguments.items()}
            if number not in common:
                kernel = narrowed(step.kernel, each.ranges, each.hints)
                if not idle(kernel) or idle(step.kernel):
                    found.append((each.ranges, replace(step, arguments=arguments, kernel=kernel)))
            elif not part:
                found.append(((), replace(step, arguments=arguments)))
    return found


def grouped(steps: Sequence[Ranged]) -> list[list[Step]]:
    """Steps whose kernels agree on how constants lie: those of kernels that are narrowed."""
    narrow = [any(n in step.kernel.sizes for n, _, _ in ranges) for ranges, step in steps]
    whole = [[step] for (_, step), each in zip(steps, narrow) if not each]
    apart = [step for (_, step), each in zip(steps, narrow) if each]
    return [*whole, apart] if apart else whole


def _numbers(steps: Sequence[Step], known: Known) -> list[tuple[int, Mapping[str, str]]]:
    """A number for each step, equal for steps that do the same with the same; and the canonical
    names of the buffers that it writes."""
    made, found = dict[Ref, object](), list[tuple[int, Mapping[str, str]]]()
    for step in steps:
        plain, names = canonical(step.kernel)
        refs = {names[name]: ref for name, ref in step.arguments.items()}
        reads = {
            name: made.get(ref, None if ref.kind == "temporary" else ref)
            for name, ref in refs.items()
        }
        written = step.kernel.outputs
        targets = {names[n]: ref for n, ref in step.arguments.items() if ref.kind != "temporary"}
        text = f"{plain!r} {step.constant} {step.copies} {sorted(targets.items(), key=str)}"
        number = known.setdefault((text, tuple(sorted(reads.items(), key=str))), len(known))
        found.append((number, {name: names[name] for name in written}))
        made |= {step.arguments[name]: (number, names[name]) for name in written}
    return found
