"""PyTorch's symbolic sizes (sympy expressions over s0, s1, ...) as our indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_symbols, statically_known_true

from ...errors import Unsupported
from ...graph.dtype import f64
from ...graph.graph import DEFAULT_BOUNDS, Graph
from ...graph.index import Index
from ...graph.tensor import Tensor
from ...ops import cast, div, mul, pow, size_tensor
from ...ops.base import literal

LARGEST = 1 << 17  # of a size that PyTorch gives no bound: memory for a row is set aside once
LARGEST_PART = 1 << 16  # denominator of a factor by which a size is scaled
FLOORS = ("FloorDiv", "CleanDiv", "IntTrueDivExact")
ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt", "floor", "ceiling")  # none < 0


def hint(size: Any) -> int:
    """The value that a size had when the program was traced. Adds no guard."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.hint is not None else 2
    return int(size)


def known_equal(a: Any, b: Any) -> bool:
    """PyTorch's guards say that two sizes are equal, each or one after the other. Adds no guard."""
    if statically_known_true(a == b):
        return True
    if not isinstance(a, torch.SymInt):
        return isinstance(b, torch.SymInt) and known_equal(b, a)
    return _expression(b) in _guarded(a.node.shape_env.guards, _expression(a))


def _expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def _guarded(guards: Sequence[Any], start: sympy.Expr) -> set[sympy.Expr]:
    """The expressions that chains of guards hold equal to this one."""
    sides = [guard.expr.args for guard in guards if isinstance(guard.expr, sympy.Eq)]
    found, waiting = {start}, [start]
    while waiting:
        one = waiting.pop()
        new = {s for pair in sides if one in pair for s in pair} - found
        found |= new
        waiting += new
    return found


def symbols(value: Any) -> set[str]:
    """The names of the symbols in a size or a shape."""
    return {str(symbol) for symbol in free_symbols(value)}


def symbols_of(value: Any) -> set[str]:
    """Those in a node's value: of its tensors and numbers."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    kinds = (torch.Tensor, torch.SymInt, torch.SymFloat)
    return set[str]().union(*(symbols(part) for part in parts if isinstance(part, kinds)))


def index_of(graph: Graph, size: Any) -> Index:
    """A size as an Index; its symbols are declared with the bounds that PyTorch has for them."""
    if not isinstance(size, torch.SymInt):
        return Index.of(int(size))
    expression = size.node.expr
    for symbol in expression.free_symbols:
        declare(graph, symbol, size.node.shape_env)
    return graph.space.simplify(convert(expression))


def declare(graph: Graph, symbol: sympy.Symbol, environment: Any) -> None:
    """Make a symbol a size of the graph."""
    name = str(symbol)
    if name in graph.space.sizes:
        return
    ends = environment.var_to_range.get(symbol)
    low = whole(ends.lower, 0) if ends is not None else 0
    high = whole(ends.upper, DEFAULT_BOUNDS[1]) if ends is not None else DEFAULT_BOUNDS[1]
    known = environment.backed_var_to_val.get(symbol)
    low, high = max(low, 0), min(high, max(LARGEST, 4 * int(known or 0)))
    usual = int(known) if known is not None and low <= int(known) <= high else None
    graph.dim(name, low, high, hint=usual)


def whole(bound: Any, default: int) -> int:
    """A bound that may be infinite."""
    return int(bound) if getattr(bound, "is_Integer", False) else default


def convert(expression: sympy.Expr) -> Index:
    """A sympy expression of integers as an Index. Raises Unsupported."""
    if expression.is_Integer:
        return Index.of(int(expression))
    if expression.is_Symbol:
        return Index.of(str(expression))
    return _combine(type(expression).__name__, expression)


def _quotient(expression: sympy.Expr) -> tuple[Index, Index]:
    """A float as a quotient of integers that rounds to whole numbers as it does: 1.5 s is 3 s / 2.
    Raises Unsupported."""
    name = type(expression).__name__
    if name == "ToFloat":
        return convert(expression.args[0]), Index.of(1)
    if name == "IntTrueDiv":
        return convert(expression.args[0]), convert(expression.args[1])
    if name == "Mul":
        numbers = [part for part in expression.args if part.is_number]
        (rest,) = [part for part in expression.args if not part.is_number] or [sympy.Integer(1)]
        whole, part = _quotient(rest)
        ratio = math.prod((Fraction(float(number)) for number in numbers), start=Fraction(1))
        exact = part.constant if part.is_constant else 0  # s / 3 is rounded, before it is scaled
        if exact.bit_count() == 1 and ratio.denominator <= LARGEST_PART:
            return whole * ratio.numerator, part * ratio.denominator
    raise Unsupported(f"the size {expression} ({name})")


def _rounded(name: str, whole: Index, part: Index) -> Index:
    if name in ("CeilToInt", "ceiling"):
        return whole.ceil_div(part)
    if name != "RoundToInt":
        return whole // part
    nearest, left = (whole * 2 + part) // (part * 2), (whole * 2 + part) % (part * 2)
    return nearest - (1 - left.minimum(1)) * (nearest % 2)  # halves go to the even number


def _combine(name: str, expression: sympy.Expr) -> Index:
    if name == "Pow":
        base, power = expression.args
        if power.is_Integer and 0 <= int(power) <= 8:
            return _fold(iter([convert(base)] * int(power)), "Mul", Index.of(1))
    if name in ROUNDED:
        return _rounded(name, *_quotient(expression.args[0]))
    parts = iter([convert(part) for part in expression.args])
    if name in ("Add", "Mul", "Min", "Max"):
        return _fold(parts, name, next(parts))
    if name in FLOORS:
        return next(parts) // next(parts)
    if name in ("Mod", "PythonMod"):
        return next(parts) % next(parts)
    if name == "ModularIndexing":
        base, divisor, modulus = parts
        return base // divisor % modulus
    raise Unsupported(f"the size {expression} ({name})")


def _fold(parts: Iterator[Index], name: str, total: Index) -> Index:
    for part in parts:
        if name in ("Add", "Mul"):
            total = total + part if name == "Add" else total * part
        else:
            total = total.minimum(part) if name == "Min" else total.maximum(part)
    return total


def number_of(graph: Graph, value: torch.SymFloat) -> Tensor:
    """A symbolic float (the square root of a size, say) as an f64 scalar of the graph."""
    expression = value.node.expr
    for symbol in expression.free_symbols:
        declare(graph, symbol, value.node.shape_env)
    return _float(graph, expression)


def _float(graph: Graph, expression: sympy.Expr) -> Tensor:
    if expression.is_number:
        return literal(graph, float(expression), f64)
    name = type(expression).__name__
    if name == "ToFloat":
        return cast(size_tensor(graph, convert(expression.args[0])), "f64")
    if name in ("FloatPow", "FloatTrueDiv", "IntTrueDiv", "Mul"):
        parts = [_float(graph, part) for part in expression.args]
        return _FLOAT[name](*parts)
    if expression.is_integer:
        return cast(size_tensor(graph, convert(expression)), "f64")
    raise Unsupported(f"the number {expression} ({name})")


def _product(*parts: Tensor) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = mul(total, part)
    return total


_FLOAT: dict[str, Callable[..., Tensor]] = {
    "FloatPow": pow, "FloatTrueDiv": div, "IntTrueDiv": div, "Mul": _product,
}  # fmt: skip
