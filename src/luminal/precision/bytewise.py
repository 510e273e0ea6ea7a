"""Functions of one byte, of which all 256 values are known: exact, so a part of every precision.

    f(x) = x for all x          -->  x
    f(x) = min(max(x, a), b)    -->  min(max(x, a), b), in bytes
    f(x), if it takes long      -->  a look-up

A quantised model has many: numbers are made of bytes to be split, moved or pooled, and then become
bytes of the same scale again. The maximum of what rises with a byte is that of the largest byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..graph.dtype import DType, i8, i32, u8
from ..graph.folding import constant_of, number_of
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.node import Node, View
from ..graph.order import post_order
from ..graph.passes import Program, cast, rebuild, rewrite, uniform
from ..graph.scalars import SCALARS, compute
from ..graph.views import place

BYTES = (u8, i8)
LOOKUP = 20.0  # vector instructions: 8 look-ups take as long as 10 of 8 lanes, or of 16 lanes 20


@dataclass(frozen=True)
class Table:
    """What a node is of a byte. argument: bytes, of the shape of the node. values: where something
    lies around that no byte gives, there the argument is the least byte; then of all bytes."""

    argument: Node
    values: np.ndarray


def bytes_mapped(program: Program) -> Program:
    """The pass.

    >>> x = cx.tensor(2, "u8", name="x")
    >>> y = (x.cast("f32") * 0.5 / 0.5).round().cast("u8").output()
    >>> bytes_mapped(program_of(cx)).outputs[0] is x.node
    True
    """
    graph, tables = program.graph, dict[Node, Table]()

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        new = rebuild(graph, node, inputs)
        table = _table(graph, node, [_known(tables, source) for source in inputs])
        if table is None:
            return new
        if new.dtype not in BYTES:
            tables[new] = table
            return new
        if table.values[0] != table.values[1]:
            return new
        simple = _simple(graph, table) or new
        if simple is new and new.shape and _cost(tables, new) > LOOKUP:
            simple = _looked_up(graph, table)
        if simple is not table.argument:
            tables[simple] = table
        return simple

    return rewrite(program, rule)


def _known(tables: dict[Node, Table], node: Node) -> Table | np.ndarray | None:
    """Of a byte, or one value."""
    if node in tables:
        return tables[node]
    number = number_of(node)
    if number is not None:
        return np.asarray(number, node.dtype.numpy)
    if node.dtype not in BYTES:
        return None
    every = _every(node.dtype)
    return Table(node, np.concatenate([every[:1], every]).astype(node.dtype.numpy))


def _every(kind: DType) -> np.ndarray:
    return np.arange(int(kind.lowest), int(kind.highest) + 1)


def _table(graph: Graph, node: Node, inputs: list[Table | np.ndarray | None]) -> Table | None:
    """None: of no byte, or of several."""
    found = {x.argument for x in inputs if isinstance(x, Table)}
    if len(found) != 1 or any(x is None for x in inputs):
        return None
    (argument,) = found
    values = [x.values if isinstance(x, Table) else x for x in inputs if x is not None]
    if node.op == "view":
        return _moved(graph, node.attribute, argument, values[0])
    if node.op in ("max", "min") and node.attribute is not None:
        if not _rises(values[0]) or (node.op == "min" and values[0][0] != values[0][1]):
            return None
        return Table(graph.add(node.op, (argument,), node.attribute), values[0])
    if node.op not in SCALARS or node.attribute is not None:
        return None
    return Table(argument, np.asarray(compute(node.op, node.dtype, *values)))


def _moved(graph: Graph, view: View, argument: Node, values: np.ndarray) -> Table | None:
    """What the view puts around is the value of some byte, or is remembered beside these."""
    fill = None
    if view.conditions:
        around = np.asarray(view.fill, values.dtype)
        same = [n for n in range(257) if values[n].tobytes() == around.tobytes()]
        beyond = values[0].tobytes() != values[1].tobytes()
        if beyond and same[:1] != [0]:
            return None
        place = max(same[0] - 1, 0) if same else 0
        fill = int(argument.dtype.lowest) + place
        values = values if same else np.concatenate([around.reshape(1), values[1:]])
    moved = View(view.shape, view.index, view.conditions, fill)
    return Table(graph.moved(argument, moved), values)


def _rises(values: np.ndarray) -> bool:
    """Nowhere falls: so no NaN; no zero that is smaller than another."""
    falls = not np.all(values[1:] >= values[:-1])
    return not falls and not np.any((values == 0) & np.signbit(values))


def _simple(graph: Graph, table: Table) -> Node | None:
    """The function in bytes, where it is no more than bounds."""
    x, values = table.argument, table.values[1:].astype(np.int64)
    low, high = int(values[0]), int(values[-1])
    if x.dtype.numpy != table.values.dtype or low >= high:
        return None
    if not np.array_equal(values, np.clip(_every(x.dtype), low, high)):
        return None
    for op, bound, none in (("max", low, x.dtype.lowest), ("min", high, x.dtype.highest)):
        if bound != none:
            x = graph.add(op, (x, uniform(graph, bound, x.shape, x.dtype)))
    return x


def _looked_up(graph: Graph, table: Table) -> Node:
    """The function as a row of values that are read."""
    x = table.argument
    row = View((Index.of(256), *x.shape[1:]), (place(0),))
    values = graph.moved(constant_of(graph, table.values[1:]), row)
    at = graph.wrap(cast(graph, x, i32))
    at = at if x.dtype is u8 else at - int(i8.lowest)
    return graph.add("gather", (values, at.node), 0)


def _cost(tables: dict[Node, Table], node: Node) -> float:
    """Vector instructions from bytes to the node."""

    def below(n: Node) -> tuple[Node, ...]:
        made = n is node or n in tables
        return n.inputs if made and n.op in (*SCALARS, "view") else ()

    costs = {**{row.name: row.cost for row in SCALARS.values()}, "gather": LOOKUP / 2}
    return sum(costs.get(n.op, 0.0) for n in post_order([node], below))
