"""Reductions, running reductions, orders, products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import ShapeError, Unsupported
from ....graph.dtype import f32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import dim_of, extent, positions, size_value
from ....ops.reduction import reduce
from .base import op, same

if TYPE_CHECKING:
    from ..record import Recorder

Axes = Tensor | Sequence[int] | None


def _wide(x: Tensor) -> Tensor:
    """Narrow floats are added up in f32."""
    return x.cast(f32) if x.dtype.is_float and x.dtype.bytes < 4 else x


def _over(name: str, function: Callable[..., Tensor]) -> None:
    @op(name)
    def reduced(
        at: Recorder, x: Tensor, given: Tensor | None = None, *, axes: Sequence[int] | None = None,
        keepdims: int = 1, noop_with_empty_axes: int = 0,
    ) -> Tensor:  # fmt: skip
        dims = at.dims(axes if given is None else given)
        if not dims and noop_with_empty_axes:
            dims = []
        elif not dims:
            dims = list(range(x.ndim))
        dims = [dim_of(x, d) for d in dims] if x.ndim else []
        return function(x, dims, bool(keepdims)).cast(x.dtype)


def _listed(op_name: str) -> Callable[[Tensor, Sequence[int], bool], Tensor]:
    """A primitive reduction; over no dimensions it changes nothing."""

    def over(x: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
        if not dims:
            return x
        return reduce(op_name, _wide(x), list(dims), keep)

    return over


total, product = _listed("sum"), _listed("prod")


def _mean(x: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
    return ops.mean(_wide(x), list(dims), keep) if dims else x


def _mean_any(x: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
    if x.dtype.is_float:
        return _mean(x, dims, keep)
    count = ops.base.count(x, dims)
    return ops.div(total(x, dims, keep), ops.size_tensor(x.graph, count, x.dtype),
                   rounding_mode="trunc")  # fmt: skip


def _log_sum_exp(x: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
    wide = x if x.dtype.is_float else x.cast(f32)
    return ops.logsumexp(wide, list(dims), keep) if dims else wide


_over("ReduceSum", total)
_over("ReduceProd", product)
_over("ReduceMax", _listed("max"))
_over("ReduceMin", _listed("min"))
_over("ReduceMean", _mean_any)
_over("ReduceL1", lambda x, dims, keep: total(ops.abs(x), dims, keep))
_over("ReduceSumSquare", lambda x, dims, keep: total(ops.square(_wide(x)), dims, keep))
_over("ReduceL2", lambda x, dims, keep: _root(total(ops.square(_wide(x)), dims, keep)))
_over("ReduceLogSum", lambda x, dims, keep: ops.log(total(x, dims, keep)))
_over("ReduceLogSumExp", _log_sum_exp)


def _root(x: Tensor) -> Tensor:
    return ops.sqrt(x if x.dtype.is_float else x.cast("f64"))


def _arg(name: str, function: Callable[..., Tensor]) -> None:
    @op(name)
    def best(
        at: Recorder, x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        dim = dim_of(x, axis)
        if not select_last_index:
            return function(x, dim, bool(keepdims))
        last = size_value(x.graph, extent(x, dim) - 1, i64)
        return ops.sub(last, function(x.flip(dim), dim, bool(keepdims)))


_arg("ArgMax", ops.argmax)
_arg("ArgMin", ops.argmin)


def _running(name: str, function: Callable[..., Tensor], start: int) -> None:
    @op(name)
    def running(
        at: Recorder, x: Tensor, axis: Tensor, exclusive: int = 0, reverse: int = 0
    ) -> Tensor:
        dim = dim_of(x, at.ints(axis)[0])
        there = x.flip(dim) if reverse else x
        if exclusive:
            widths = [(1, 0) if d == dim else (0, 0) for d in range(x.ndim)]
            shifted = there.pad(widths, start).narrow(dim, 0, extent(x, dim))
            found = function(_wide(shifted), dim)
        else:
            found = function(_wide(there), dim)
        return (found.flip(dim) if reverse else found).cast(x.dtype)


_running("CumSum", ops.cumsum, 0)
_running("CumProd", ops.cumprod, 1)


@op("TopK")
def topk(
    at: Recorder, x: Tensor, number: Tensor | None = None, *, k: int = 0, axis: int = -1,
    largest: int = 1, sorted: int = 1,
) -> Any:  # fmt: skip
    count = k if number is None else at.ints(number)[0]
    return tuple(ops.topk(x, count, dim_of(x, axis), bool(largest), True))


# ---- softmax


def _softmax(name: str, function: Callable[..., Tensor]) -> None:
    @op(name)
    def over(at: Recorder, x: Tensor, axis: int | None = None) -> Tensor:
        """Before version 13 over all dimensions from `axis` on."""
        if at.version >= 13:
            return function(x, dim_of(x, -1 if axis is None else axis))
        first = dim_of(x, 1 if axis is None else axis)
        if first == x.ndim - 1:
            return function(x, first)
        return function(x.flatten(first), first).reshape(x.shape)


_softmax("Softmax", ops.softmax)
_softmax("LogSoftmax", ops.log_softmax)
_softmax("Hardmax", ops.hardmax)


# ---- products

same("MatMul", ops.matmul)
same("Det", ops.det)


@op("Gemm")
def gemm(
    at: Recorder, a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0,
    beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0,
) -> Tensor:  # fmt: skip
    product = ops.matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else scaled(product, alpha)
    if c is None or beta == 0:
        return product
    return ops.add(product, c if beta == 1 else scaled(c, beta))


def scaled(x: Tensor, factor: float) -> Tensor:
    """Raises Unsupported: the standard says nothing of integers times fractions."""
    if x.dtype.is_float:
        return ops.mul(x, factor)
    if factor != int(factor):
        raise Unsupported(f"integers of {x.dtype} times {factor:g}")
    return ops.mul(x, int(factor))


@op("Einsum")
def einsum(at: Recorder, *operands: Tensor, equation: str) -> Tensor:
    return ops.einsum(equation, *operands)


@op("Trilu")
def trilu(at: Recorder, x: Tensor, k: Tensor | None = None, upper: int = 1) -> Tensor:
    offset = 0 if k is None else at.size(k)
    row, column = Index.of(f"i{x.ndim - 2}"), Index.of(f"i{x.ndim - 1}")
    distance = column - row - offset
    kept = x.graph.iota(x.shape, -distance if upper else distance) < 1
    return ops.where(kept, x, ops.base.full_like(x, 0))


@op("EyeLike")
def eye_like(at: Recorder, x: Tensor, dtype: int | None = None, k: int = 0) -> Tensor:
    from .. import kinds

    kind = x.dtype if dtype is None else kinds.dtype_of(dtype)
    return ops.eq(ops.sub(positions(x, 1), positions(x, 0)), k).cast(kind)


@op("OneHot")
def one_hot(at: Recorder, index: Tensor, depth: Tensor, values: Tensor, axis: int = -1) -> Tensor:
    count = at.size(depth)
    dim, rank = axis % (index.ndim + 1), index.ndim + 1
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of {rank} dimensions")
    shape = [*index.shape[:dim], count, *index.shape[dim:]]
    here = index.graph.iota(shape, f"i{dim}")
    wanted = index.cast(i64).unsqueeze(dim)
    wanted = ops.where(wanted < 0, ops.add(wanted, ops.size_tensor(index.graph, count)), wanted)
    return ops.where(ops.eq(here, wanted), values.select(0, 1), values.select(0, 0))
