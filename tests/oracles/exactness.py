"""Which values of a graph no order of summation and no approximation can change.

A float is known to be exact where it is a multiple of a power of two and few enough bits hold it:
sums and products of such are exact in any order. Only those may be compared, rounded to integers or
ranked by a test: one rounding decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from luminal.graph.dtype import DType
from luminal.graph.node import Node
from luminal.graph.order import reachable

LARGEST = 64  # of a run-time size
BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
CHOICES = ("max", "min", "select")
ROUNDINGS = ("floor", "ceil", "trunc", "round")
APPROXIMATE = ("log2", "exp2", "sin", "cos", "sqrt", "recip", "div", "loop", "variable", "result")


@dataclass(frozen=True)
class Grid:
    """Multiples of 2^-digits of at most this size; digits inf: exact, but of no grid."""

    digits: float
    most: float

    def within(self, dtype: DType) -> Grid | None:
        """The grid if values of the dtype hold all of it: sums and products are exact then."""
        if not dtype.is_float:
            return Grid(0, min(self.most, dtype.highest))
        held = self.digits < 100 and self.most * 2.0**self.digits <= 2.0 ** BITS[dtype.name]
        return self if held else None


ANY = Grid(inf, inf)


def grids(
    node: Node, given: dict[Node, Grid | None], known: dict[Node, Grid | None]
) -> Grid | None:
    """Where the values of a node lie; None: roundings decide. given: grids of inputs, None where
    the values leave it later. known: what was found before."""
    for each in reachable([node]):
        if each not in known:
            known[each] = _grid(each, [known[x] for x in each.inputs], given)
    return known[node]


def _grid(node: Node, below: list[Grid | None], given: dict[Node, Grid | None]) -> Grid | None:
    op, dtype = node.op, node.dtype
    if op in ("input", "literal", "iota"):
        return _leaf(node, given)
    if op in APPROXIMATE or any(b is None for b in below):
        return None
    operands = [b for b in below if b is not None]
    reduces = node.attribute is not None
    if op == "gather" or (reduces and op in ("max", "min")):
        return operands[0]
    if reduces and op in ("sum", "prod", "scan", "scatter"):
        return _combined(node, operands)
    if op == "view":
        return _both(operands[0], _number(node.attribute.fill or 0))
    if op in CHOICES:
        return _both(*operands[-2:])
    if op in ROUNDINGS:
        return Grid(0, operands[0].most + 1)
    if op == "add":
        a, b = operands
        return Grid(max(a.digits, b.digits), a.most + b.most).within(dtype)
    if op == "mul":
        a, b = operands
        return Grid(a.digits + b.digits, a.most * b.most).within(dtype)
    if op == "mod" and dtype.is_float:
        return None
    if op == "cast" and dtype.is_float:
        return operands[0].within(dtype) or ANY  # rounded once
    if dtype.kind == "bool":
        return Grid(0, 1)
    return Grid(0, min(operands[0].most if op == "cast" else inf, dtype.highest))


def _leaf(node: Node, given: dict[Node, Grid | None]) -> Grid | None:
    if node.op == "literal":
        return _number(node.attribute)
    if node.dtype.is_float:
        return given.get(node, ANY)
    return given.get(node, Grid(0, node.dtype.highest if node.op == "input" else 1 << 12))


def _number(value: float) -> Grid:
    if value != value or value in (inf, -inf):
        return ANY
    divisor = float(value).as_integer_ratio()[1]
    return Grid(divisor.bit_length() - 1, abs(value))


def _both(a: Grid, b: Grid) -> Grid:
    return Grid(max(a.digits, b.digits), max(a.most, b.most))


def _combined(node: Node, operands: list[Grid]) -> Grid | None:
    """Sums over dimensions, running ones, and what is written to the same place."""
    op, shape = node.op, node.inputs[0].shape
    mode = {"scan": "op", "scatter": "mode"}.get(op)
    how = getattr(node.attribute, mode) if mode else op
    parts = [operands[0], operands[2]] if op == "scatter" else operands
    if how in ("set", "max", "min"):
        return _both(parts[0], parts[-1])
    if how == "prod":
        return None if node.dtype.is_float else Grid(0, node.dtype.highest)
    if op == "sum":
        count = prod(_size(shape[d]) for d in node.attribute)
    elif op == "scan":
        count = _size(shape[node.attribute.dim])
    else:
        count = 1 + _size(node.inputs[2].shape[node.attribute.dim])
    whole = _both(parts[0], parts[-1])
    return Grid(whole.digits, whole.most * max(1, count)).within(node.dtype)


def _size(size: object) -> int:
    return int(size.constant) if size.is_constant else LARGEST * 16  # type: ignore[attr-defined]
