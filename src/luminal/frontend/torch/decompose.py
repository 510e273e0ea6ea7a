"""Which operations AOTAutograd expands into smaller ones before we see the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions, decomposition_table

from .lists import over_lists
from .record import name_of
from .sizes import hint
from .table import COMPLEX, RULES, SOURCES

DRAWN = ("cauchy.default", "log_normal.default")  # their expansions draw other numbers
MOST_STEPS = 64  # of an LSTM that is not trained: its expansion grows with them


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """All expansions that PyTorch has, but for what we have a rule for."""
    table = {**decomposition_table, **core_aten_decompositions(), **over_lists()}
    table[torch.ops.aten._new_zeros_with_same_feature_meta.default] = _tangent
    whole = {op for op in table if known(name_of(op)) or name_of(op) in DRAWN}
    return {op: body for op, body in table.items() if op not in whole}


def _tangent(x: Any, other: Any, *, self_num_batch_dims: int = 0) -> Any:
    """Zeros like `other`, for each of x's batch: where forward differentiation begins."""
    if not other.is_contiguous():
        return NotImplemented
    return other.new_zeros((*x.shape[:self_num_batch_dims], *other.shape))


@contextmanager
def whole_graph(module: fx.GraphModule) -> Iterator[None]:
    """While AOTAutograd traces: an LSTM is expanded into its steps, where there are few or where it
    is trained, rather than kept as oneDNN's layer (which AOTAutograd of PyTorch 2.13 cannot train).
    """
    steps = [_steps(node) for node in module.graph.nodes if node.target is torch.lstm]
    expand = bool(steps) and (torch.is_grad_enabled() or max(steps) <= MOST_STEPS)
    if not (expand and torch._C._get_mkldnn_enabled()):
        yield
        return
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(True)


def _steps(node: fx.Node) -> int:
    """The larger of the first two sizes of what the layer reads: batch and steps, in some order."""
    value = node.args[0].meta.get("example_value") if isinstance(node.args[0], fx.Node) else None
    return max(map(hint, value.shape[:2])) if isinstance(value, torch.Tensor) else 0


def known(name: str) -> bool:
    return name in RULES or name in SOURCES or name in COMPLEX
