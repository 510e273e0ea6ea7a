"""The two tables, and how a function enters them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ....graph.dtype import f32
from ....graph.tensor import Tensor

Rule = Callable[..., Any]
AnyRule = TypeVar("AnyRule", bound=Rule)

RULES: dict[str, Rule] = {}
SOURCES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Enter a function of the operands under the names of overloads."""
    return _entering(RULES, names)


def source(*names: str) -> Callable[[AnyRule], AnyRule]:
    """Enter a function of the recorder and the operands."""
    return _entering(SOURCES, names)


def _entering(table: dict[str, Rule], names: tuple[str, ...]) -> Callable[[AnyRule], AnyRule]:
    def enter(function: AnyRule) -> AnyRule:
        for name in names:
            assert name not in RULES and name not in SOURCES, f"{name} has two rules"
            table[name] = function
        return function

    return enter


def same(names: str, function: Rule) -> None:
    """Our function has ATen's arguments already."""
    rule(*names.split())(function)


def widened(x: Tensor) -> Tensor:
    """Narrow numbers as f32, in which ATen computes with them; others as they are."""
    return x.cast(f32) if x.dtype.bytes < 4 else x
