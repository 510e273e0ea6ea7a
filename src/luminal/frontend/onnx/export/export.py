"""A graph of ours as an ONNX model: each primitive is an operator or a few, a sum of products is an
Einsum. Sizes of run time are read from the shapes of inputs, states are inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from ....errors import InputError, Unsupported
from ....graph.graph import Graph
from ....graph.index import Index
from ....graph.loops import Scopes, parts
from ....graph.node import REDUCE_OPS, Node
from ....graph.order import reachable
from ....graph.scalars import SCALARS
from . import loops, movement, scalars
from .loops import info
from .movement import letters, sizes_of
from .writer import OPSET, Writer

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SCATTERED = {"set": "none", "sum": "add", "prod": "mul", "max": "max", "min": "min"}


def export(graph: Graph) -> onnx.ModelProto:
    """The outputs of a graph as a model: inputs and outputs by their names, parameters with the
    values that they were `set` to. Sizes of run time are dimensions with names. A state is an input
    of its name and an output `NAME.next`. Raises Unsupported for sizes that no input's shape tells;
    InputError for a parameter without a value.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> [node.op_type for node in luminal.onnx.export(cx).graph.node]
    ['Reshape', 'Expand', 'Mul', 'Identity']
    """
    export = _Export(graph)
    if not export.results:
        raise Unsupported("export of a graph with no output")
    export.sources()
    export.sizes()
    export.nodes(export.scopes.ordered([node for _, node in export.results]))
    return export.model()


def save(graph: Graph, path: str | Path) -> None:
    """As `export`, in a file; weights of more than 2 GB lie beside it. Raises OSError.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> luminal.onnx.save(cx, "double.onnx")
    """
    model, path = export(graph), Path(path)
    large = sum(t.ByteSize() for t in model.graph.initializer) > onnx.checker.MAXIMUM_PROTOBUF // 2
    onnx.save(model, path, save_as_external_data=large, location=f"{path.name}.data")


class _Export:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.out = graph, Writer()
        self.names: dict[Node, str] = {}
        self.loops: dict[Node, list[str]] = {}  # their results
        self.states = {state.node for state, _ in graph.states}
        self.results = [(graph.output_names[t.node], t.node) for t in graph.outputs]
        self.results += [(f"{old.node.attribute.name}.next", new.node) for old, new in graph.states]
        self.scopes = Scopes([node for _, node in self.results])

    def sources(self) -> None:
        """Inputs in their order, and the weights that outputs need."""
        needed = set(reachable([node for _, node in self.results]))
        taken: set[str] = set()
        for tensor in self.graph.sources:
            node, source = tensor.node, tensor.node.attribute
            name = source.name if source.name not in taken else self.out.name(source.name)
            taken.add(name)
            if source.kind == "input" or node in self.states:
                self.out.graph.input.append(info(name, node.dtype, sizes_of(node)))
            elif node in needed:
                value = source.value if source.value is not None else self.graph.values.get(node)
                if value is None:
                    raise InputError(f"parameter {name!r} has no value: .set() comes before export")
                self.out.weight(np.asarray(value), name)
            self.names[node] = name

    def sizes(self) -> None:
        """Where inputs tell the sizes of run time: by dimensions that are one, or some of it."""
        given = [node for node in self.names if node.attribute.kind != "constant"]
        dims = [(size, node, d) for node in given for d, size in enumerate(node.shape)]
        for size, node, d in sorted(dims, key=lambda dim: len(dim[0].terms)):
            for name in size.names():
                factor = dict(size.terms).get((name,), 0)
                if name not in self.out.sizes and size is Index.of(name) * factor + size.constant:
                    shape = self.out.op("Shape", self.names[node], start=d, end=d + 1)
                    self.out.tell(name, self.out.op("Squeeze", shape), factor, size.constant)

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Operators of these, operands first."""
        for node in nodes:
            if node.op == "loop":
                self.loops[node] = self._loop(node)
            elif node.op == "result":
                self.names[node] = self.loops[node.inputs[0]][node.attribute]
            elif node.op not in ("input", "variable"):
                self.names[node] = self.node(node)

    def _loop(self, node: Node) -> list[str]:
        made, around = parts(node), self.out
        self.out = body = Writer(around)
        self.names.update(zip(made.variables, loops.opened(body, made)))
        self.nodes(self.scopes.bodies[node])
        self.out = around
        initial, stacks, results = ([self.names[n] for n in each]
                                    for each in (made.initial, made.stacks, made.made))  # fmt: skip
        return loops.closed(around, body, made, initial, stacks, results)

    def node(self, node: Node) -> str:
        operands = [self.names[source] for source in node.inputs if source in self.names]
        if node.op == "literal":
            return self.out.number(node.attribute, node.dtype)
        if node.op == "iota":
            return movement.ranged(self.out, node)
        if node.op == "view":
            return movement.written(self.out, self.graph, operands[0], node)
        if node.op in REDUCE_OPS and node.attribute is not None:
            return self._contraction(node) or scalars.reduced(self.out, node, operands[0])
        if node.op in SCALARS:
            return scalars.written(self.out, node, *operands)
        if node.op == "gather":
            return self._gather(node, *operands)
        if node.op == "scatter":
            return self._scatter(node, *operands)
        if node.op == "scan" and node.attribute.op == "sum":
            return self.out.op(
                "CumSum", operands[0], self.out.constant(np.int64(node.attribute.dim))
            )
        if node.op == "scan":
            return loops.running(self.out, node, operands[0])
        raise Unsupported(f"export of {node}")

    def _contraction(self, node: Node) -> str | None:
        """A sum of products of two operands, each with some of the dimensions."""
        product = node.inputs[0]
        if node.op != "sum" or product.op != "mul" or not node.dtype.is_float:
            return None
        if len(product.shape) > len(ALPHABET):
            return None
        terms, names = [], []
        for operand in product.inputs:
            name, held = self.names[operand], list(range(len(product.shape)))
            if operand.op == "view":
                name, held = self._factor(operand)
            terms.append("".join(ALPHABET[d] for d in held))
            names.append(name)
        kept = [d for d in range(len(product.shape)) if d not in node.attribute]
        if set(terms[0]) == set(terms[1]):
            return None  # a plain sum
        if set("".join(terms)) != set(ALPHABET[: len(product.shape)]):
            return None
        equation = f"{','.join(terms)}->{''.join(ALPHABET[d] for d in kept)}"
        return self.out.op("Einsum", *names, equation=equation)

    def _factor(self, node: Node) -> tuple[str, list[int]]:
        """A view without the dimensions along which it only repeats; and those that are left."""
        source, name = node.inputs[0], self.names[node.inputs[0]]
        found = letters(node.attribute, sizes_of(source))
        if found is None:
            return movement.compact(self.out, self.graph, name, node)
        if -1 in found:
            name = self.out.reshape(name, [n for n, d in zip(sizes_of(source), found) if d >= 0])
        return name, [d for d in found if d >= 0]

    def _gather(self, node: Node, source: str, index: str) -> str:
        """Places outside are clamped."""
        n = sizes_of(node.inputs[0])[node.attribute]
        kind = node.inputs[1].dtype
        last = n - 1 if isinstance(n, Index) else max(n - 1, 0)
        held = self.out.op("Max", index, self.out.number(0, kind))
        held = self.out.op("Min", held, self.out.cast(self.out.index(last), kind))
        return self.out.op("GatherElements", source, held, axis=node.attribute)

    def _scatter(self, node: Node, base: str, index: str, values: str) -> str:
        """Places outside write to one more element, which is cut off."""
        out, dim = self.out, node.attribute.dim
        shape, kind = sizes_of(node), node.inputs[1].dtype
        n, rest = shape[dim], [1 if d == dim else size for d, size in enumerate(shape)]
        blank = out.expand(out.number(0, node.dtype), rest)
        longer = out.op("Concat", base, blank, axis=dim)
        end = out.cast(out.index(n), kind)
        low = out.op("Less", index, out.number(0, kind))
        high = out.op("Not", out.op("Less", index, end))
        held = out.op("Where", out.op("Or", low, high), end, index)
        found = out.op("ScatterElements", longer, held, values, axis=dim,
                       reduction=SCATTERED[node.attribute.mode])  # fmt: skip
        ends = [out.vector([v]) for v in (0, n, dim)]
        return out.op("Slice", found, *ends)

    def model(self) -> onnx.ModelProto:
        graph = self.out.graph
        for name, node in self.results:
            graph.node.append(helper.make_node("Identity", [self.names[node]], [name]))
            graph.output.append(info(name, node.dtype, sizes_of(node)))
        self.out.prune()
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="luminal")
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model

