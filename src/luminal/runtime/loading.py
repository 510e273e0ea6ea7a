"""What the user gets: a compiled graph, or a saved program on a machine that can run it."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.contract import Backend
from ..errors import ArtifactError
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.node import Node, Source, View
from ..graph.passes import Program
from ..graph.space import Range
from .executable import Engine, Executable, Port
from .native import Native
from .report import Report
from .saved import Saved


def engine_of(saved: Saved, backend: Backend, threads: int) -> Native:
    """The engine of a saved program. Raises ArtifactError where this machine cannot run it."""
    lacking = backend.lacking(saved.needs)
    if lacking:
        raise ArtifactError(
            f"the program was compiled for a machine with {', '.join(lacking)}, which this one "
            "does not have: compile it here"
        )
    codes = [backend.load(code, saved.target) for code in saved.codes]
    return Native(saved.plan, codes, backend, threads)


def executable_of(saved: Saved, backend: Backend, threads: int) -> Executable:
    """A saved program with its interface, as `Executable.save` writes it. Raises ArtifactError."""
    face = saved.interface
    if face is None:
        raise ArtifactError("a compiled graph without its inputs and outputs: kept, not saved")
    ports = [
        Port(Node("input", (), Source(s.name, s.kind), s.shape, s.dtype, number), s.name, s.kind,
             s.needed)
        for number, s in enumerate(face.slots)
    ]  # fmt: skip
    order = {Node("output", (), r.number, r.shape, r.dtype, 0): r for r in face.results}
    made = Executable(
        engine_of(saved, backend, threads), ports, {node: r.number for node, r in order.items()},
        face.sizes, saved.report, {node: r.name for node, r in order.items()}, face.requirements,
        saved,
    )  # fmt: skip
    for number, array in saved.arrays.items():
        made.preset(ports[number].node, array)
    if saved.made:
        made.take(saved.made)
    return made


def ports_of(graph: Graph, program: Program) -> list[Port]:
    """The sources of the graph, in order of recording."""
    used = set(program.nodes()) | {state for state, _ in program.states}
    return [
        Port(t.node, t.node.attribute.name, t.node.attribute.kind, t.node in used)
        for t in graph.sources
    ]


def executable_of_graph(
    graph: Graph, program: Program, ports: Sequence[Port], engine: Engine, report: Report,
    saved: Saved | None = None,
) -> Executable:  # fmt: skip
    """The executable, with the values that the graph already knows."""
    named = [tensor.node for tensor in graph.outputs] + [new.node for _, new in graph.states]
    numbers: dict[Node, int] = {}
    for number, node in enumerate(named):
        numbers.setdefault(node, number)
    sizes = _sizes(program)
    requirements = [r for r in graph.requirements if r.index.names() <= sizes.keys()]
    order = {tensor.node: graph.output_names[tensor.node] for tensor in graph.outputs}
    made = Executable(engine, ports, numbers, sizes, report, order, requirements, saved)
    for port in ports:
        value = graph.values.get(port.node, port.node.attribute.value)
        if value is not None:
            made.preset(port.node, value)
    return made


def _sizes(program: Program) -> dict[str, Range]:
    """The run-time sizes that the program depends on, with their bounds."""
    used: set[str] = set()
    for node in program.nodes():
        indices = list(node.shape)
        if isinstance(node.attribute, Index):
            indices.append(node.attribute)
        elif isinstance(node.attribute, View):
            indices += node.attribute.index + node.attribute.conditions
        used.update(*(index.names() for index in indices))
    return {name: ends for name, ends in program.graph.space.sizes.items() if name in used}
