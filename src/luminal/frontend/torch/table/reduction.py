"""Reductions, running reductions, and orders. Narrow floats are added up in f32, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import DType, f32, i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import Size, dim_of, extent, full_like, static
from ....ops.logic import truth
from .base import Rule, rule, same, source

if TYPE_CHECKING:
    from ..record import Recorder

Dims = Sequence[int] | int | None

same("cummax.default", ops.cummax)
same("cummin.default", ops.cummin)
same("logsumexp.default", ops.logsumexp)
same("max.default max.dim", ops.max)
same("min.default min.dim", ops.min)
same("argmax.default", ops.argmax)
same("argmin.default", ops.argmin)
same("aminmax.default", ops.aminmax)
same("median.default", ops.median)
same("nanmedian.default", ops.nanmedian)
same("nanmedian.dim", ops.nanmedian)
same("count_nonzero.dim_IntList", ops.count_nonzero)


def _whether(function: Any) -> Rule:
    """Over a list of no dimensions nothing is combined, unlike in sums."""

    def over(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
        result: Tensor = truth(x) if dims == [] else function(x, dims, keepdim)
        return result

    return over


same("any.default any.dim any.dims _is_any_true.default", _whether(ops.any))
same("all.default all.dim all.dims _is_all_true.default", _whether(ops.all))


def _wide(x: Tensor, kind: DType | None) -> Tensor:
    """x in the dtype in which it is added up."""
    wanted = kind or (x.dtype if x.dtype.is_float else i64)
    return x.cast(f32 if wanted.is_float and wanted.bytes < 4 else wanted)


def _added(function: Any) -> Rule:
    def over(
        x: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None
    ) -> Tensor:
        result: Tensor = function(_wide(x, dtype), dims, keepdim)
        return result

    return over


rule("sum.default", "sum.dim_IntList")(_added(ops.sum))
rule("mean.default", "mean.dim")(_added(ops.mean))
rule("prod.default", "prod.dim_int")(_added(ops.prod))


def _running(function: Any) -> Rule:
    return lambda x, dim, dtype=None: function(_wide(x, dtype), dim)


rule("cumsum.default")(_running(ops.cumsum))
rule("cumprod.default")(_running(ops.cumprod))


@rule("amax.default")
def amax(x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    return ops.amax(x, dims, keepdim)


@rule("amin.default")
def amin(x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    return ops.amin(x, dims, keepdim)


def _spread(function: Any) -> Rule:
    def over(
        x: Tensor, dims: Dims = None, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        return function(x, dims, _correction(correction), keepdim)

    return over


for _name in ("var", "std", "var_mean", "std_mean"):
    rule(f"{_name}.correction")(_spread(getattr(ops, _name)))


def _correction(value: float | None) -> int:
    """ATen allows fractions, which nobody uses; they stay with PyTorch."""
    number = 1 if value is None else value
    assert int(number) == number, f"correction {number} is no whole number"
    return int(number)


@rule("logcumsumexp.default")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return ops.logcumsumexp(x, dim) if x.ndim else x


@rule("sort.stable")
def stable_sort(
    x: Tensor, stable: bool | None = True, dim: int = -1, descending: bool = False
) -> Any:
    return ops.sort(x, dim, descending)


@source("sort.default")
def sort(at: Recorder, x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    _few_ties(at, x, dim)
    return ops.sort(x, dim, descending)


@source("topk.default")
def topk(
    at: Recorder, x: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    _few_ties(at, x, dim, stable=1)
    return ops.topk(x, static(k, "k"), dim, largest, sorted)


@source("kthvalue.default")
def kthvalue(at: Recorder, x: Tensor, k: Size, dim: int = -1, keepdim: bool = False) -> Any:
    _few_ties(at, x, dim, stable=1)
    if not x.ndim:
        return x, full_like(x, 0, i64)
    return ops.kthvalue(x, static(k, "k"), dim, keepdim)


def _few_ties(at: Recorder, x: Tensor, dim: int, stable: int = 16) -> None:
    """Which of equal elements comes first is PyTorch's own choice, but for up to 16 elements; it
    matters only where the places are results themselves."""
    length = extent(x, dim_of(x, dim)) if x.ndim else Index.of(1)
    short = length.is_constant and length.constant <= stable
    if not short and not (x.dtype.is_float and x.dtype.bytes >= 4) and at.shows(1):
        raise Unsupported("an unstable order of many equal elements")


@rule("median.dim")
def median_over(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    return ops.median(x, dim, keepdim) if x.ndim else (x, full_like(x, 0, i64))


@source("mode.default")
def mode(at: Recorder, x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    if x.ndim:
        _few_ties(at, x, dim)
    return ops.mode(x, dim, keepdim)


same("histc.default", ops.histc)


@rule("linalg_vector_norm.default")
def vector_norm(
    x: Tensor, order: float = 2, dims: Dims = None, keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    return ops.norm(_wide(x, dtype), float(order), dims, keepdim)


@rule("_softmax.default")
def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return (
        ops.softmax(x.cast(f32) if half_to_float else x, dim_of(x, dim))
        if x.ndim
        else (full_like(x, 1))
    )


@rule("_log_softmax.default")
def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    wide = x.cast(f32) if half_to_float else x
    return ops.log_softmax(wide, dim_of(x, dim)) if x.ndim else full_like(wide, 0)
