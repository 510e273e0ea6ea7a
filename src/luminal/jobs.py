"""The distinct kernels of a program, one for each range of sizes, in jobs: kernels of a job read
the same constants, and agree on how these lie; jobs need nothing of each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .kernel.canonical import canonical
from .kernel.kernel import Kernel
from .kernel.ranges import Ranges, kernels_by_range
from .rewrite.lower_plan import Step

Parts: TypeAlias = Mapping[str, Sequence[tuple[Ranges, str]]]
Classes: TypeAlias = dict[Any, list[Any]]  # each member to all that are alike, one list for all


@dataclass(frozen=True)
class Job:
    """Canonical kernels by their text, each with names for its constants that all know. number: of
    the job among those of its program, from 1."""

    number: int
    kernels: Mapping[str, tuple[Kernel, Mapping[str, str]]]

    @property
    def text(self) -> str:
        """Equal where the same is to be made."""
        numbers, lines = dict[str, int](), list[str]()
        for text, (_, names) in self.kernels.items():
            own = {n: numbers.setdefault(name, len(numbers)) for n, name in names.items()}
            lines.append(f"{text} {own}")
        return "\n".join(lines)

    @property
    def values(self) -> int:
        """In all kernels: about how long it takes."""
        return sum(len(kernel.values) for kernel, _ in self.kernels.values())


def jobs_of(
    groups: Iterable[Sequence[Step]], usual: Mapping[str, Sequence[int]]
) -> tuple[list[Job], Parts]:
    """The jobs; and for each kernel, by the text of its canonical form, the texts of those that run
    for ranges of its sizes. groups: steps whose constants are called alike."""
    parts = dict[str, Sequence[tuple[Ranges, str]]]()
    kernels, constants = dict[str, Kernel](), Classes()
    for number, group in enumerate(groups):
        for step in group:
            plain, names = canonical(step.kernel)
            text = repr(plain)
            if text not in parts:
                made = [(r, canonical(each)[0]) for r, each in kernels_by_range(plain, usual)]
                parts[text] = [(ranges, repr(each)) for ranges, each in made]
                kernels |= {repr(each): each for _, each in made}
            for name in (b.name for b in step.kernel.buffers if b.constant):
                same = [(part, names[name]) for _, part in parts[text]]
                _unite(constants, [(number, step.arguments[name]), *same])
    return _jobs(kernels, constants), parts


def _jobs(kernels: Mapping[str, Kernel], constants: Classes) -> list[Job]:
    """Kernels that share constants together. constants: as (text of a kernel, buffer)."""
    numbers, together, found = dict[int, str](), Classes(), list[Job]()
    named = dict[str, tuple[Kernel, Mapping[str, str]]]()
    for text, kernel in kernels.items():
        same = {b.name: id(constants[text, b.name]) for b in kernel.buffers if b.constant}
        names = {n: numbers.setdefault(key, f"constant{len(numbers)}") for n, key in same.items()}
        named[text] = kernel, names
        _unite(together, [text, *same.values()])
    for text in named:
        members = [each for each in together[text] if each in named]
        if text == members[0]:
            order = sorted(members, key=list(named).index)
            found.append(Job(len(found) + 1, {each: named[each] for each in order}))
    return found


def _unite(classes: Classes, members: Iterable[Any]) -> None:
    """These are alike, and so are all that are like one of them."""
    of_each = {id(found): found for m in members for found in [classes.setdefault(m, [m])]}
    whole = [member for found in of_each.values() for member in found]
    classes.update(dict.fromkeys(whole, whole))
