"""The tables of operators, and how a function enters them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ....graph.tensor import Tensor

Rule = Callable[..., Any]
AnyRule = TypeVar("AnyRule", bound=Rule)
MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"


@dataclass(frozen=True)
class Entry:
    """rule(at, *inputs, **attributes). moves: the result has the element type of the first input.
    defers: it may hand its work to the host."""

    rule: Rule
    moves: bool = False


RULES: dict[tuple[str, str], Entry] = {}
HOST: dict[tuple[str, str], Rule] = {}


@dataclass(frozen=True)
class Typed:
    """A tensor whose element type is not the one that its dtype stands for."""

    tensor: Tensor
    kind: int


def op(*names: str, domain: str = "", moves: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Enter a function of the recorder, the operands (None where one is left out) and the
    attributes."""

    def enter(function: AnyRule) -> AnyRule:
        for name in names:
            assert (domain, name) not in RULES, f"{name} has two rules"
            RULES[domain, name] = Entry(function, moves)
        return function

    return enter


def same(names: str, function: Callable[..., Any], domain: str = "") -> None:
    """Our function has the operands of the operator, which has no attributes."""
    op(*names.split(), domain=domain)(lambda at, *operands: function(*operands))


def host(*names: str, domain: str = "") -> Callable[[AnyRule], AnyRule]:
    """Enter a function of arrays and attributes that runs between programs: what it makes is no
    tensor of numbers, or as large as its values say."""

    def enter(function: AnyRule) -> AnyRule:
        for name in names:
            assert (domain, name) not in HOST, f"{name} has two rules"
            HOST[domain, name] = function
        return function

    return enter
