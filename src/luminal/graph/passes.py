"""Passes: functions from program to program, applied in order before the compiler sees the graph.

A `Program` names what is to be computed: the nodes of the outputs and of the new values of states.
Sources are never replaced, so the user's tensors keep naming the inputs. A pass is any function
`Program -> Program`; most are one `rewrite` with a rule for single nodes:

    def divide_by_multiplying(program):
        def rule(node, inputs):  # inputs: what the node's inputs have become
            if node.op != "div":
                return None  # keep it
            inverse = program.graph.add("recip", (inputs[1],))
            return program.graph.add("mul", (inputs[0], inverse))

        return rewrite(program, rule)

    graph.compile(passes=[*default_passes(), divide_by_multiplying])  # of luminal.precision

Nodes that no output needs are not part of a program: nothing removes them, nothing computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import CompileError
from .dtype import DType, f32
from .graph import Graph
from .node import Node, Number, Shape, View
from .order import reachable
from .scope import SCOPE, scope


@dataclass(frozen=True)
class Program:
    """What a graph is asked to compute. `outputs[i]` is what output i of the graph has become;
    `states`: (source, what its new value has become)."""

    graph: Graph
    outputs: tuple[Node, ...]
    states: tuple[tuple[Node, Node], ...] = ()

    @property
    def roots(self) -> tuple[Node, ...]:
        """All nodes that must be computed."""
        return self.outputs + tuple(new for _, new in self.states)

    def nodes(self) -> list[Node]:
        """The roots and all that they depend on, inputs first."""
        return reachable(self.roots)

    def bare(self) -> Program:
        """The same nodes, without the values of parameters and all else that a graph holds."""
        graph, known = Graph(), self.graph
        graph.locations, graph.scopes = known.locations, known.scopes
        graph.output_names, graph.space = known.output_names, known.space
        return Program(graph, self.outputs, self.states)


Pass: TypeAlias = Callable[[Program], Program]
Rule: TypeAlias = Callable[[Node, tuple[Node, ...]], Node | None]


def program_of(graph: Graph) -> Program:
    """The program as the user recorded it."""
    outputs = tuple(tensor.node for tensor in graph.outputs)
    return Program(graph, outputs, tuple((state.node, new.node) for state, new in graph.states))


def run_passes(program: Program, passes: Sequence[Pass]) -> Program:
    """Apply passes in order; each must keep the shapes and dtypes of what is computed."""
    for function in passes:
        result = function(program)
        if not isinstance(result, Program) or _types(result) != _types(program):
            name = getattr(function, "__name__", repr(function))
            raise CompileError(f"pass {name} must return a Program with the same outputs")
        program = result
    return program


def _types(program: Program) -> list[object]:
    return [(node.shape, node.dtype) for node in program.roots]


# ---- rewriting


def rewrite(program: Program, rule: Rule) -> Program:
    """Every node replaced by `rule(node, new inputs)`, or rebuilt on them where it gives None."""
    graph, became = program.graph, dict[Node, Node]()
    with scope(""):
        for node in program.nodes():
            inputs = tuple([became[source] for source in node.inputs])
            SCOPE.set(graph.scopes[node])
            new = rule(node, inputs) or rebuild(graph, node, inputs)
            became[node] = new
            if new is node:
                continue
            graph.locations.setdefault(new, graph.locations[node])
            if (new.shape, new.dtype) != (node.shape, node.dtype):
                raise CompileError(f"a rule turned {node} into {new}: another shape or dtype")
    states = tuple((source, became[new]) for source, new in program.states)
    return Program(graph, tuple(became[node] for node in program.outputs), states)


def rebuild(graph: Graph, node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same operation on other inputs."""
    if inputs == node.inputs:
        return node
    if node.op == "view":
        return graph.moved(inputs[0], node.attribute)
    return graph.add(node.op, inputs, node.attribute, node.dtype)


def cast(graph: Graph, node: Node, dtype: DType) -> Node:
    """The node in a dtype; what was widened from it as it was."""
    if node.op == "cast" and node.inputs[0].dtype is dtype:
        wider = node.dtype.kind == dtype.kind and node.dtype.bytes > dtype.bytes
        node = node.inputs[0] if wider else node
    return node if node.dtype is dtype else graph.add("cast", (node,), None, dtype)


def uniform(graph: Graph, value: Number, shape: Shape, dtype: DType = f32) -> Node:
    """One number at every point of a shape."""
    return graph.moved(graph.literal(value, dtype).node, View(shape, ()))
