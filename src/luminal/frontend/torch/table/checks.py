"""Values for which PyTorch raises an error, operation by operation.

CHECKS: by name of the overload, a function of the operands that gives bool tensors: true where
PyTorch raises. What the graph itself knows to be right gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .... import ops
from ....graph.display import reachable
from ....graph.dtype import boolean
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import Value, count, dim_of, extent
from . import places

Check = Callable[..., Iterator[Tensor]]

CHECKS: dict[str, Check] = {}


def check(names: str) -> Callable[[Check], Check]:
    """Enter a function of the operands under the names of overloads."""

    def enter(function: Check) -> Check:
        CHECKS.update(dict.fromkeys(names.split(), function))
        return function

    return enter


def settled(value: Tensor) -> bool:
    """It depends on weights alone, not on what is given at each run."""
    nodes = reachable([value.node])
    kinds = {node.attribute.kind for node in nodes if node.op == "input"}
    fixed = all(node.op == "input" or places.fixed(node) for node in nodes)
    return fixed and bool(kinds) and "input" not in kinds


def _outside(index: Tensor, size: Index, from_end: bool = False) -> Iterator[Tensor]:
    """Indices that are not in 0 .. size - 1; from_end: not in -size .. size - 1 either."""
    if 0 in index.shape:
        return
    low = -size if from_end else Index.of(0)
    known = places.known(index) if low.is_constant and size.is_constant else None
    if known is not None and low.constant <= known.min() and known.max() < size.constant:
        return
    ends = [e.constant if e.is_constant else ops.size_tensor(index.graph, e) for e in (low, size)]
    yield ops.logical_or(ops.lt(index, ends[0]), ops.ge(index, ends[1]))


def _along(x: Tensor, dim: int) -> Index:
    return extent(x, dim_of(x, dim)) if x.ndim else Index.of(1)


@check("embedding.default embedding_renorm.default")
@check("_embedding_bag.default _embedding_bag_forward_only.default")
def _rows(weight: Tensor, index: Tensor, *rest: Any, **further: Any) -> Iterator[Tensor]:
    return _outside(index, extent(weight, 0))


@check("gather.default index_select.default index_add.default index_reduce.default")
@check("scatter.src scatter.value scatter.reduce scatter.value_reduce")
@check("scatter_add.default scatter_reduce.two")
def _one_dim(x: Tensor, dim: int, index: Tensor, *rest: Any, **more: Any) -> Iterator[Tensor]:
    return _outside(index, _along(x, dim))


@check("nll_loss_forward.default nll_loss2d_forward.default")
def _classes(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> Iterator[Tensor]:
    return _outside(ops.where(ops.eq(target, ignored), 0, target), _along(x, min(1, x.ndim - 1)))


@check("index.Tensor index_put.default")
def _several(x: Tensor, indices: Sequence[Tensor | None], *rest: Any) -> Iterator[Tensor]:
    if any(index is not None and index.dtype is boolean for index in indices):
        return
    for d, index in enumerate(indices):
        if index is not None:
            yield from _outside(index, extent(x, d), from_end=True)


@check("take.default put.default")
def _flat(x: Tensor, index: Tensor, *rest: Any) -> Iterator[Tensor]:
    return _outside(index, count(x, range(x.ndim)), from_end=True)


@check("div.Tensor_mode div.Scalar_mode")
def _rounded(x: Tensor, y: Value, rounding_mode: str | None = None) -> Iterator[Tensor]:
    return _zero(x, y) if rounding_mode is not None else iter(())


@check("floor_divide.default floor_divide.Scalar fmod.Tensor fmod.Scalar")
@check("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor")
def _zero(x: Value, y: Value) -> Iterator[Tensor]:
    """Whole numbers divided by zero."""
    whole = [v.dtype.is_integer if isinstance(v, Tensor) else isinstance(v, int) for v in (x, y)]
    if not all(whole) or (not isinstance(y, Tensor) and y != 0):
        return
    divisor = y if isinstance(y, Tensor) else ops.zeros_like(x)  # type: ignore[arg-type]
    if 0 in divisor.shape or ((known := places.known(divisor)) is not None and known.all()):
        return
    yield ops.eq(divisor, 0)


@check("_assert_async.default _assert_async.msg")
def _asserted(x: Tensor, *message: str) -> Iterator[Tensor]:
    yield ops.logical_not(x)


@check("searchsorted.Tensor searchsorted.Scalar")
def _sorter(rows: Tensor, values: Value, *rest: Any, **more: Any) -> Iterator[Tensor]:
    order = more.get("sorter")
    return iter(()) if order is None else _outside(order, extent(rows, rows.ndim - 1))
