"""What a compiled program depends on, as a key: the graph, the machine, the compiler itself."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..graph.node import Node, Source
from ..graph.passes import Program

PACKAGE = Path(__file__).resolve().parents[1]
COMPILER = (
    "compiler.py", "artifact", "backend", "graph", "kernel", "lowering", "rewrite", "runtime",
    "scheduling", "search",
)  # fmt: skip

_began = time.time()


def program_key(program: Program, facts: Sequence[object]) -> str | None:
    """Equal only for programs that compile to the same code: for graphs after all passes that
    differ in nothing but the values of their constants. facts: what else the code depends on.
    None: the compiler's files have changed since it was imported, so that it has no name."""
    version = compiler_version()
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
    return [f"{name} {space.sizes[name]} {usual.get(name)}" for name in sorted(space.sizes)]


def _line(node: Node, numbers: dict[Node, int]) -> str:
    inputs = [numbers[source] for source in node.inputs]
    known = node.attribute
    what = f"{known.name!r} {known.kind}" if isinstance(known, Source) else repr(known)
    return f"{node.op} {inputs} {what} {node.shape} {node.dtype}"


@cache
def compiler_version() -> str | None:
    """A digest of the compiler's own files and of what it generates code with."""
    import llvmlite
    import numpy

    digest = hashlib.sha256(f"{llvmlite.__version__} {numpy.__version__}".encode())
    for name in COMPILER:
        whole = PACKAGE / name
        for path in sorted(whole.rglob("*.py")) if whole.is_dir() else (whole,):
            if path.stat().st_mtime > _began:
                return None
            digest.update(path.read_bytes())
    return digest.hexdigest()
