"""Tensors made from nothing but sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..graph.dtype import dtype as dtype_of
from ..graph.dtype import f32, f64, i64
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.node import Number
from ..graph.tensor import Tensor
from .base import Size, full_like, holding, literal, number_dtype
from .elementwise import add, mul, sub
from .logic import eq, where
from .powers import pow


def full(graph: Graph, shape: Size | Sequence[Size], value: Number, dtype: Any = None) -> Tensor:
    """One value everywhere; the dtype by default that of the Python number.

    >>> ops.full(cx, (2,), 3.0).numpy()
    array([3., 3.], dtype=float32)
    """
    kind = number_dtype(value) if dtype is None else dtype_of(dtype)
    return literal(graph, holding(value, kind), kind).expand(graph.shape(shape))


def zeros(graph: Graph, shape: Size | Sequence[Size], dtype: Any = "f32") -> Tensor:
    """0 everywhere.

    >>> ops.zeros(cx, (2, 3)).numpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return full(graph, shape, 0, dtype)


def ones(graph: Graph, shape: Size | Sequence[Size], dtype: Any = "f32") -> Tensor:
    """1 everywhere.

    >>> ops.ones(cx, (2, 3)).numpy()
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    return full(graph, shape, 1, dtype)


def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """0, with the shape and dtype of x.

    >>> ops.zeros_like(cx.constant([5.0, 6.0])).numpy()
    array([0., 0.], dtype=float32)
    """
    return full_like(x, 0, dtype)


def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """1, with the shape and dtype of x.

    >>> ops.ones_like(cx.constant([5.0, 6.0])).numpy()
    array([1., 1.], dtype=float32)
    """
    return full_like(x, 1, dtype)


def arange(
    graph: Graph, start: Size | float, end: Size | float | None = None, step: int | float = 1,
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    """start, start + step, ... before end. Integers may be sizes; floats are numbers.

    >>> ops.arange(cx, 1, 10, 3).numpy()
    array([1, 4, 7])
    """
    if end is None:
        start, end = 0, start
    if isinstance(start, float) or isinstance(end, float) or isinstance(step, float):
        return _arange_float(graph, float(start), float(end), float(step), dtype)  # type: ignore[arg-type]
    first, last = graph.size(start), graph.size(end)
    distance = last - first if step > 0 else first - last
    count = distance.ceil_div(abs(step))
    if count.is_constant:
        count = count.maximum(0)
    index = first + Index.of("i0") * step
    kind = i64 if dtype is None else dtype_of(dtype)
    values = graph.iota((count,), index, kind if kind.is_integer else i64)
    return values.cast(kind)


def _arange_float(graph: Graph, start: float, end: float, step: float, dtype: Any) -> Tensor:
    count = max(0, math.ceil((end - start) / step))
    kind = f32 if dtype is None else dtype_of(dtype)
    return add(mul(graph.iota((count,), "i0").cast(kind), step), start)


def linspace(graph: Graph, start: float, end: float, steps: int, dtype: Any = "f32") -> Tensor:
    """`steps` numbers from start to end, both included; counted from the nearer end. Integers are
    the whole parts of the f64 numbers.

    >>> ops.linspace(cx, 0.0, 1.0, 5).numpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    kind = dtype_of(dtype)
    if not kind.is_float:
        return linspace(graph, start, end, steps, f64).cast(kind)
    if steps == 1:
        return full(graph, (1,), start, kind)
    step = (end - start) / (steps - 1)
    position = graph.iota((steps,), "i0").cast(kind)
    from_end = graph.iota((steps,), Index.of(steps - 1) - Index.of("i0")).cast(kind)
    near_start = add(mul(position, step), start)
    near_end = sub(full(graph, (steps,), end, kind), mul(from_end, step))
    return where(position < steps // 2, near_start, near_end)


def logspace(
    graph: Graph, start: float, end: float, steps: int, base: float = 10.0, dtype: Any = "f32"
) -> Tensor:
    """base to the powers of linspace. Integers are the whole parts of the f64 numbers.

    >>> ops.logspace(cx, 0, 2, 3).numpy().round(3)
    array([  1.,  10., 100.], dtype=float32)
    """
    kind = dtype_of(dtype)
    exponents = linspace(graph, start, end, steps, kind if kind.is_float else f64)
    return pow(full_like(exponents, base), exponents).cast(kind)


def eye(graph: Graph, n: Size, m: Size | None = None, dtype: Any = "f32") -> Tensor:
    """1 on the diagonal of an n by m matrix, else 0.

    >>> ops.eye(cx, 2, 3).numpy()
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    shape = graph.shape((n, n if m is None else m))
    return eq(graph.iota(shape, Index.of("i1") - Index.of("i0")), 0).cast(dtype_of(dtype))


def tri(graph: Graph, n: Size, m: Size | None = None, diagonal: int = 0) -> Tensor:
    """True on and below a diagonal of an n by m matrix.

    >>> ops.tri(cx, 2, 3).numpy()
    array([[ True, False, False],
           [ True,  True, False]])
    """
    shape = graph.shape((n, n if m is None else m))
    return graph.iota(shape, Index.of("i1") - Index.of("i0") - diagonal) < 1


def tril_indices(graph: Graph, rows: int, columns: int, offset: int = 0) -> Tensor:
    """(2, count): the places on and below a diagonal, row by row.

    >>> ops.tril_indices(cx, 2, 2).numpy()
    array([[0, 1, 1],
           [0, 0, 1]])
    """
    import numpy as np

    return graph.constant(np.stack(np.tril_indices(rows, offset, columns)).astype(np.int64))


def size_tensor(graph: Graph, size: Size, dtype: Any = "i64") -> Tensor:
    """A run-time size as a scalar tensor.

    >>> ops.size_tensor(cx, 5).numpy()
    array(5)
    """
    kind = dtype_of(dtype)
    if not kind.is_integer and not kind.is_float:
        raise ShapeError(f"a size has a number dtype, not {kind}")
    return graph.iota((), graph.size(size), i64).cast(kind)
