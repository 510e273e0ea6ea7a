"""Sizes as users write them: 3, "s", "2*s + 1", "s//4", or an Index."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from ..errors import DimError
from .index import Index

DimLike: TypeAlias = int | str | Index

POSITION = re.compile(r"i\d+")
_RESERVED = re.compile(r"[ia]\d+")  # positions of views, axes of the compiler
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def index_of(value: DimLike, positions: bool = False) -> Index:
    """The index that a user's size means. Raises DimError where it means none.

    `positions`: i0, i1, ... are allowed and mean positions along dimensions.
    """
    if isinstance(value, Index):
        return value
    if isinstance(value, str):
        return _parse(value, positions)
    if hasattr(value, "__index__"):
        return Index.of(value.__index__())
    raise DimError(f"a size is an integer, a name, or an expression of names, not {value!r}")


def check_name(name: str) -> None:
    """Refuse names that are no identifiers or that the compiler uses itself."""
    if not (isinstance(name, str) and name.isidentifier()):
        raise DimError(f"{name!r} is no name for a size; use letters, digits and _")
    if _RESERVED.fullmatch(name):
        raise DimError(f"size name {name!r} is reserved (i0, a0, ... name axes); choose another")


def whole(what: str, value: Any) -> int:
    """A Python or NumPy integer as a number. Raises DimError, which says what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise DimError(f"{what} must be an integer, not {value!r}") from None


def usual_sizes(name: str, hint: Any) -> tuple[int, ...]:
    """One hint, or several, in ascending order. Raises DimError."""
    try:
        hints = {operator.index(hint)}
    except TypeError:
        try:
            hints = set(map(operator.index, hint))
        except TypeError:
            message = f"dim {name}: the hint {hint!r} is neither a number nor several"
            raise DimError(message) from None
    return tuple(sorted(hints))


def divisors(index: Index) -> Iterator[Index]:
    """All that is divided by in an index."""
    yield from (quotient.second for quotient in index.floors)
    for atom in index.compound:
        yield from (*divisors(atom.first), *divisors(atom.second))


@cache
def _parse(text: str, positions: bool) -> Index:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise DimError(f"size {text!r} is no expression of names and integers") from None
    return _walk(tree, text, positions)


def _walk(tree: ast.expr, text: str, positions: bool) -> Index:
    if isinstance(tree, ast.Name):
        if not (positions and POSITION.fullmatch(tree.id)):
            check_name(tree.id)
        return Index.of(tree.id)
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return Index.of(tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_walk(tree.operand, text, positions)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        left, right = (_walk(side, text, positions) for side in (tree.left, tree.right))
        try:
            result: Index = _OPERATORS[type(tree.op)](left, right)
        except ValueError as error:
            raise DimError(f"size {text!r}: {error}") from None
        return result
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and len(tree.args) == 2:
        first, second = (_walk(a, text, positions) for a in tree.args)
        if tree.func.id in ("min", "max"):
            return first.minimum(second) if tree.func.id == "min" else first.maximum(second)
    raise DimError(f"size {text!r}: only names, integers, + - * // % min max are allowed")
