"""A program's graph as plain data, from which a process that does not trust its machine code
records and compiles it anew. Everything goes through the checks that a user's own graph goes
through; an index that is not proven to lie inside what it reads gets conditions that make it so.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np

from ..errors import ArtifactError, LuminalError
from ..graph.dtype import DType
from ..graph.graph import Graph, exact
from ..graph.index import Index
from ..graph.node import Node, Shape, View
from ..graph.passes import Program
from ..graph.scope import scope
from ..graph.space import Range
from ..kernel.target import Target
from ..runtime.contract import Interface, Port, Result
from ..runtime.interface import interface_of

FAULTS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Step:
    """A node that is no source. inputs: numbers of nodes, sources first. sources: how many were
    there before it. module, where: who recorded it, for viewers."""

    op: str
    inputs: tuple[int, ...]
    attribute: Any
    shape: Shape
    dtype: DType
    sources: int
    module: str
    where: tuple[str, int]


@dataclass(frozen=True)
class Recording:
    """requirements: (index, what it means). outputs: (name, node). states: (source, node). rounds,
    flushes: what the program was allowed, as its `Target` had it; older files do not tell."""

    threads: int
    sizes: Mapping[str, Range]
    usual: Mapping[str, tuple[int, ...]]
    requirements: tuple[tuple[Index, str], ...]
    sources: tuple[Port, ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]
    states: tuple[tuple[int, int], ...]
    rounds: bool = False
    flushes: bool = False

    def allowed(self, target: Target) -> Target:
        """The target with what this program is allowed."""
        return replace(target, rounds=bool(self.rounds), flushes=bool(self.flushes))


def recorder(
    program: Program, interface: Interface, threads: int, target: Target
) -> Callable[[], Recording]:
    """Makes the recording of a program when it is asked for; holds on to nodes, not to values."""
    graph = program.graph
    sizes, usual = dict(graph.space.sizes), dict(graph.usual)
    sources = [tensor.node for tensor in graph.sources]
    requirements = tuple((known.index, known.message) for known in graph.requirements)
    bare = program.bare()

    def record() -> Recording:
        numbers = {node: number for number, node in enumerate(sources)}
        ages = [source.number for source in sources]
        steps = []
        for node in bare.nodes():
            if node not in numbers:
                numbers[node] = len(numbers)
                inputs = tuple(numbers[source] for source in node.inputs)
                file, line = bare.graph.locations.get(node, ("", 0))
                steps.append(Step(
                    node.op, inputs, node.attribute, node.shape, node.dtype,
                    bisect(ages, node.number), bare.graph.scopes.get(node, ""),
                    (PurePath(file).name, line),
                ))  # fmt: skip
        names = [result.name for result in interface.results]
        outputs = tuple((name, numbers[node]) for name, node in zip(names, bare.outputs))
        states = tuple((numbers[old], numbers[new]) for old, new in bare.states)
        return Recording(
            threads, sizes, usual, requirements, interface.ports, tuple(steps), outputs, states,
            target.rounds, target.flushes,
        )  # fmt: skip

    return record


def replay(recording: Recording, arrays: Mapping[int, np.ndarray]) -> tuple[Program, Interface]:
    """The program, recorded anew. arrays: of constants, by number. Raises ArtifactError."""
    try:
        return _replayed(recording, arrays)
    except (LuminalError, *FAULTS) as error:
        message = str(error).partition("\n")[0]
        raise ArtifactError(f"no graph can be recorded from this file: {message}") from None


def _replayed(recording: Recording, arrays: Mapping[int, np.ndarray]) -> tuple[Program, Interface]:
    if type(recording.threads) is not int or recording.threads < 1:
        raise ValueError(f"{recording.threads!r} threads")
    graph = Graph()
    for name, (low, high) in recording.sizes.items():
        graph.dim(name, int(low), int(high), recording.usual.get(name))
    for index, message in recording.requirements:
        graph.require(graph.size(index), message)
    ports, sources, made = enumerate(recording.sources), list[Node](), list[Node]()
    for step in recording.steps:  # in the order in which they were recorded first
        sources += [_source(graph, n, port, arrays) for n, port in
                    islice(ports, max(0, step.sources - len(sources)))]  # fmt: skip
        inputs = (n - len(recording.sources) for n in step.inputs)
        given = tuple(made[n] if n >= 0 else sources[n + len(recording.sources)] for n in inputs)
        with scope(str(step.module)):
            node = _node(graph, step, given)
        graph.locations[node] = str(step.where[0]), int(step.where[1])
        if (node.shape, node.dtype) != (step.shape, step.dtype):
            raise ValueError(f"{node} is not of {step.dtype} {step.shape}")
        made.append(node)
    nodes = [*sources, *(_source(graph, n, port, arrays) for n, port in ports), *made]
    outputs = tuple(nodes[number] for _, number in recording.outputs)
    states = tuple((nodes[old], nodes[new]) for old, new in recording.states)
    for old, new in states:
        graph.donate(graph.wrap(old), graph.wrap(new))
    graph.output_names.update(zip(outputs, (str(name) for name, _ in recording.outputs)))
    program = Program(graph, outputs, states)
    named = zip((name for name, _ in recording.outputs), outputs)
    results = [Result(name, n.dtype, n.shape, number) for number, (name, n) in enumerate(named)]
    return program, replace(interface_of(graph, program), results=tuple(results))


def _source(graph: Graph, number: int, port: Port, arrays: Mapping[int, np.ndarray]) -> Node:
    if port.kind == "constant":
        node = graph.constant(arrays[number], port.name).node
    else:
        make = {"input": graph.tensor, "parameter": graph.parameter}[port.kind]
        node = make(port.shape, port.dtype, port.name).node
    if (node.shape, node.dtype) != (port.shape, port.dtype):
        raise ValueError(f"source {port.name!r} is not of {port.dtype} {port.shape}")
    graph.locations[node] = "", 0
    return node


def _node(graph: Graph, step: Step, inputs: tuple[Node, ...]) -> Node:
    if step.op == "literal":
        return graph.literal(step.attribute, step.dtype).node
    if step.op == "iota":
        return graph.iota(step.shape, step.attribute, step.dtype).node
    if step.op == "variable":
        return graph.variable(step.shape, step.dtype)
    if step.op == "view":
        return graph.moved(inputs[0], _inside(graph, step.attribute, inputs[0]))
    return graph.add(step.op, inputs, step.attribute, step.dtype)


def _inside(graph: Graph, view: View, source: Node) -> View:
    """The view where its index lies inside the source; what is proven is dropped again."""
    last = [size - 1 - place for place, size in zip(view.index, source.shape, strict=True)]
    fill = exact(0 if view.fill is None else view.fill, source.dtype)
    conditions = *view.conditions, *view.index, *last
    return View(graph.shape(view.shape), view.index, conditions, fill)
