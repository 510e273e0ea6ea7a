"""Which operations AOTAutograd expands into smaller ones before we see the graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch._decomp import core_aten_decompositions, decomposition_table

from .record import name_of
from .table import COMPLEX, RULES, SOURCES


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """All expansions that PyTorch has, but for what we have a rule for."""
    table = {**decomposition_table, **core_aten_decompositions()}
    return {op: body for op, body in table.items() if not known(name_of(op))}


def known(name: str) -> bool:
    return name in RULES or name in SOURCES or name in COMPLEX
