"""What a compiled program depends on, as a key: the graph, the machine, the compiler itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..graph.node import Node, Source
from ..graph.passes import Program
from ..sources import COMPILING, version_of


def program_key(program: Program, facts: Sequence[object]) -> str | None:
    """Equal only for programs that compile to the same code: for graphs after all passes that
    differ in nothing but the values of their constants. facts: what else the code depends on.
    None: the compiler's files have changed since it was imported, so that it has no name."""
    version = version_of(*COMPILING)
    if version is None:
        return None
    numbers: dict[Node, int] = {}
    lines = [version, *map(repr, facts), *_sizes(program)]
    for node in program.nodes() + [t.node for t in program.graph.sources]:
        if node not in numbers:
            lines.append(_line(node, numbers))
            numbers[node] = len(numbers)
    lines.append(repr([numbers[node] for node in program.outputs]))
    lines.append(repr([(numbers[old], numbers[new]) for old, new in program.states]))
    lines.append(repr([numbers[tensor.node] for tensor in program.graph.sources]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sizes(program: Program) -> list[str]:
    space, usual = program.graph.space, program.graph.usual
    sizes = [f"{name} {space.sizes[name]} {usual.get(name)}" for name in sorted(space.sizes)]
    return [*sizes, *sorted(map(str, space.assumed))]


def _line(node: Node, numbers: dict[Node, int]) -> str:
    inputs = [numbers[source] for source in node.inputs]
    known = node.attribute
    what = f"{known.name!r} {known.kind}" if isinstance(known, Source) else repr(known)
    return f"{node.op} {inputs} {what} {node.shape} {node.dtype}"
