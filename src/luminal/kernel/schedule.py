"""A schedule as data: one path of loops for each value, layouts, homes. Its text form is what
`explain()` prints.

    acc: "n/32@ m/128@ m/8 k/4 k/1! m/1! n/16! n/1#"      a path: axis/step and the kind of the loop
    W:   "n/32 k/1 n/1"                                   a layout: digits, outermost first

A loop walks its axis, inside the enclosing loop on the same axis, in steps of `step`. Kinds: serial
(no mark), `@` parallel, `!` unrolled, `#` vector lane, `$` lane collapsed by an instruction, `*`
unrolled with an accumulator of its own. Values whose paths share a prefix share those loops: that
is fusion. A value without a path is inlined into its readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = {
    "": "serial",
    "@": "parallel",
    "!": "unroll",
    "#": "vector",
    "$": "collapse",
    "*": "partial",
}
TAILS = ("peel", "guard", "inner", "edges", "units")
CHAIN = 1024  # steps in which a sum of floats is added up, at most, where it has twice as many
MARKS = {kind: mark for mark, kind in KINDS.items()}


@dataclass(frozen=True)
class Loop:
    """One loop of a path."""

    axis: str
    step: int
    kind: str = "serial"

    @property
    def constant(self) -> bool:
        """Written out when the code is made: no loop at run time."""
        return self.kind in ("unroll", "vector", "collapse", "partial")

    def __str__(self) -> str:
        return f"{self.axis}/{self.step}{MARKS[self.kind]}"


Path = tuple[Loop, ...]
Layout = tuple[tuple[int, int], ...]  # digits (dimension number, step), outermost first


@dataclass(frozen=True)
class Schedule:
    """How a kernel runs.

    paths: value -> loops. layouts: constant buffer or tile of a value -> digits over its dimension
    numbers (a value's dimensions are its axes, in order); absent: row-major. homes: value -> output
    buffer in which it may live until that buffer's own value is written. tails: axis -> "peel"
    for partial tiles, "guard" to test them in every turn, "inner" inside of what the outermost loop
    leaves over, "edges" to peel full ones too where a condition is open (the borders of an image),
    "units" where a unit of work is whole or partial. registers: a tile of more vectors than this
    lives in memory. stages: how many turns of the innermost loop the tiles hold into which a staged
    instruction's operands are copied ahead. library: computes the whole kernel, which then has no
    paths (see `library.py`).
    """

    paths: Mapping[str, Path]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    tails: Mapping[str, str] = field(default_factory=dict)
    registers: int = 40
    library: str = ""
    stages: int = 0

    def text(self) -> str:
        """The text form, one line a value or layout."""
        if self.library:
            return f"library: {self.library}"
        lines = [f"{name}: {path_text(path)}" for name, path in self.paths.items()]
        lines += [f"layout {name}: {layout_text(layout)}" for name, layout in self.layouts.items()]
        lines += [f"home {name}: {buffer}" for name, buffer in self.homes.items()]
        lines += [f"tail {axis}: {kind}" for axis, kind in self.tails.items()]
        lines += [f"stages: {self.stages}"] if self.stages else []
        return "\n".join(lines + [f"registers: {self.registers}"])


def path_text(path: Path) -> str:
    return " ".join(map(str, path))


def layout_text(layout: Layout) -> str:
    return " ".join(f"{dim}/{step}" for dim, step in layout)
