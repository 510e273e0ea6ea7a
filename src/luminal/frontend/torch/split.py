"""Which nodes of an FX graph run natively: a graph in which native parts are single calls.

Every node has a stage. A native node joins the stage of what it reads, and goes one stage further
where it reads what PyTorch computes; PyTorch's nodes stay in the stage of what they read. So all
native nodes of a stage need only earlier stages: they are one part, and parts form no cycle. What
PyTorch draws at random keeps its order: each draw counts as reading the one before it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from ...errors import CompileError
from .higher import bodies_of
from .record import NUMBERS, REFUSALS, Recorder
from .sizes import symbols_of


@dataclass
class Part:
    """Native nodes that run as one program. outputs: those that others read."""

    nodes: list[fx.Node]
    outputs: list[fx.Node]


def trial(graph: fx.Graph, recorder: Recorder) -> tuple[Recorder, dict[fx.Node, str]]:
    """Everything recorded that can be, and why the other nodes cannot."""
    refused: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_number(node):
            continue
        try:
            recorder.record(node)
        except REFUSALS as error:
            refused[node] = f"{error}".split("\n")[0] or type(error).__name__
    return recorder, refused


def is_number(node: fx.Node) -> bool:
    """A size, or another Python number: PyTorch computes it, and we know it by its formula."""
    return isinstance(node.meta.get("val"), NUMBERS)


def parts_of(graph: fx.Graph, refused: Mapping[fx.Node, str]) -> list[Part]:
    """The native nodes, stage by stage."""
    stages = _stages(graph, refused)
    parts: dict[int, list[fx.Node]] = {}
    for node, stage in stages.items():
        if is_native(node, refused):
            parts.setdefault(stage, []).append(node)
    made = [_with_outputs(parts[stage]) for stage in sorted(parts)]
    return [part for part in made if part.outputs]


def _with_outputs(nodes: list[fx.Node]) -> Part:
    inside = set(nodes)
    return Part(nodes, [n for n in nodes if any(user not in inside for user in n.users)])


def halves(part: Part) -> list[Part]:
    """The first operations and the last, each with its results; nothing of a single one."""
    starts = [n for n, node in enumerate(part.nodes) if node.target is not operator.getitem]
    if len(starts) < 2:
        return []
    middle = starts[len(starts) // 2]
    pieces = [part.nodes[:middle], part.nodes[middle:]]
    return [made for nodes in pieces if (made := _with_outputs(nodes)).outputs]


def leading_to(part: Part, nodes: list[fx.Node]) -> Part:
    """The operations of a part that are needed for some of them, which are the results."""
    needed, inside = set(nodes), set(part.nodes)
    for node in reversed(part.nodes):
        if node in needed:
            needed.update(source for source in node.all_input_nodes if source in inside)
    return Part([node for node in part.nodes if node in needed], nodes)


def is_native(node: fx.Node, refused: Mapping[fx.Node, str]) -> bool:
    return node.op == "call_function" and node not in refused and not is_number(node)


def _stages(graph: fx.Graph, refused: Mapping[fx.Node, str]) -> dict[fx.Node, int]:
    """The stage of every node. Numbers that a native node knows by formula do not bind it."""
    stages: dict[fx.Node, int] = {}
    sources, before = size_sources(graph), draws_before(graph, refused)
    for node in graph.nodes:
        native, stage = is_native(node, refused), 0
        for source in _needs(node, native, sources) + before.get(node, []):
            further = native and not is_native(source, refused) and source.op == "call_function"
            stage = max(stage, stages.get(source, 0) + further)
        stages[node] = stage
    return stages


def draws_before(graph: fx.Graph, refused: Collection[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For what PyTorch draws: the draw before it. The numbers of a seed go by the order."""
    draws = [node for node in graph.nodes if node in refused and _draws(node.target)]
    return {node: [first] for first, node in pairwise(draws)}


def _draws(target: Any) -> bool:
    tags = target.tags if isinstance(target, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags


def _needs(node: fx.Node, native: bool, sources: Mapping[str, fx.Node]) -> list[fx.Node]:
    """What must be there before a node runs."""
    if not native:
        return list(node.all_input_nodes)
    tensors = [source for source in node.all_input_nodes if not is_number(source)]
    return tensors + [sources[name] for name in sizes_of(node) if name in sources]


def sizes_of(node: fx.Node) -> list[str]:
    """The symbols in a node's result and in the numbers that it reads."""
    values = (source.meta.get("val") for source in (node, *node.all_input_nodes))
    return sorted(set[str]().union(*map(symbols_of, values)))


def size_sources(graph: fx.Graph) -> dict[str, fx.Node]:
    """symbol -> the first node whose value it is."""
    sources: dict[str, fx.Node] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            sources.setdefault(str(value.node.expr), node)
    return sources


def plain_module(part: Part, reads: list[fx.Node]) -> fx.GraphModule:
    """The part as PyTorch would run it, with the arguments and results of its program."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in reads:
        copies[node] = graph.placeholder(node.name)
    for node in part.nodes:
        for source in node.all_input_nodes:
            if source not in copies:
                _copy_number(graph, source, copies)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in part.outputs))
    root = torch.nn.Module()
    for name, body in (body for node in part.nodes for body in bodies_of(node)):
        setattr(root, name, body)
    return fx.GraphModule(root, graph)


def _copy_number(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> None:
    """A size that the part knew by its formula, computed from what it reads."""
    if node.op == "placeholder":  # equal numbers share a symbol, of which the part reads the first
        copies[node] = _of_equal_value(node, copies)
        return
    for source in node.all_input_nodes:
        if source not in copies:
            _copy_number(graph, source, copies)
    copies[node] = graph.node_copy(node, copies.__getitem__)


def _of_equal_value(node: fx.Node, copies: Mapping[fx.Node, fx.Node]) -> Any:
    value = node.meta["val"]
    if not isinstance(value, torch.SymInt) or value.node.expr.is_Integer:
        return int(value)
    given = ((other.meta.get("val"), copy) for other, copy in copies.items())
    return next(
        copy for other, copy in given
        if isinstance(other, torch.SymInt) and other.node.expr == value.node.expr
    )  # fmt: skip


def assemble(
    module: fx.GraphModule,
    parts: list[tuple[Part, Any, list[fx.Node]]],
    refused: Collection[fx.Node],
) -> fx.GraphModule:
    """The module with each part replaced by one call. parts: with its program and its inputs."""
    native = {node: number for number, (part, _, _) in enumerate(parts) for node in part.nodes}
    builder = _Builder(module, parts, native, draws_before(module.graph, refused))
    for node in module.graph.nodes:
        builder.need(node)
    return fx.GraphModule(builder.root, builder.graph)


class _Builder:
    """Copies a graph in an order in which every part finds what it reads."""

    def __init__(
        self, module: fx.GraphModule, parts: Any, native: dict[fx.Node, int],
        before: dict[fx.Node, list[fx.Node]],
    ) -> None:  # fmt: skip
        self.graph, self.root = fx.Graph(), module
        self._parts, self._native, self._before = parts, native, before
        self._copies: dict[fx.Node, fx.Node] = {}
        self._done: set[int] = set()

    def need(self, node: fx.Node) -> None:
        """Copy a node, or the part that it is in, after what that reads. Raises CompileError."""
        todo, begun = [node], set[fx.Node | int]()
        while todo:
            current = todo[-1]
            number = self._native.get(current)
            key = current if number is None else number
            if current in self._copies or number in self._done:
                todo.pop()
                continue
            if number is None:
                reads = current.all_input_nodes + self._before.get(current, [])
            else:
                reads = self._parts[number][2]
            missing = [n for n in reads if n not in self._copies]
            if missing and key in begun:
                raise CompileError(f"{current} reads what is computed from it")
            if missing:
                begun.add(key)
                todo += missing
            elif number is None:
                self._copies[current] = self._copy(current)
            else:
                self._call(number)

    def _copy(self, node: fx.Node) -> fx.Node:
        """What PyTorch computes; a size is asked of the tensor itself, not of an operator."""
        copy = self.graph.node_copy(node, self._copies.__getitem__)
        if copy.target is torch.ops.aten.sym_size.int:
            copy.op, copy.target = "call_method", "size"
        return copy

    def _call(self, number: int) -> None:
        part, program, reads = self._parts[number]
        name = f"luminal_part_{number}"
        self.root.add_submodule(name, program)
        call = self.graph.call_module(name, tuple(self._copies[n] for n in reads))
        for place, node in enumerate(part.outputs):
            self._copies[node] = self.graph.call_function(operator.getitem, (call, place))
        self._done.add(number)
