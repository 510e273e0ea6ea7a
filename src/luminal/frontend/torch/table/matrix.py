"""Matrix products. Narrow floats are added up in f32 with what follows, rounded once."""

from __future__ import annotations

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.tensor import Tensor
from ....ops.base import extent, result_type, static
from ....ops.linalg import inverse_of_lower
from .base import rule, same

LARGEST_TRIANGLE = 256  # rows; its inverse takes more work than PyTorch's substitution

same("mm.default", ops.mm)
same("bmm.default", ops.bmm)
same("mv.default", ops.mv)
same("dot.default vdot.default", ops.dot)


@rule("addmm.default", "baddbmm.default")
def addmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha a b; x does not count where beta is 0."""
    kind = result_type(a, b)
    if kind.is_float and kind.bytes < 4:
        x, a, b = x.cast(f32), a.cast(f32), b.cast(f32)
    elif not kind.is_float:
        beta, alpha = int(beta), int(alpha)
    product = ops.matmul(a, b)
    product = product if alpha == 1 else ops.mul(product, alpha)
    if beta != 0:
        product = ops.add(product, x if beta == 1 else ops.mul(x, beta))
    return product.cast(kind)


@rule("addmv.default")
def addmv(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return addmm(x, a, b, beta, alpha)


@rule("addbmm.default")
def addbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """The products of a batch, added up."""
    rows = a.transpose(0, 1).reshape((a.shape[1], -1))
    return addmm(x, rows, b.reshape((-1, b.shape[2])), beta, alpha)


@rule("_cdist_forward.default")
def cdist(a: Tensor, b: Tensor, p: float, mode: int | None = None) -> Tensor:
    return ops.cdist(a, b, p)


@rule("_pdist_forward.default")
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """The distances between all pairs of rows."""
    pairs = np.triu_indices(static(extent(x, 0), "the number of rows"), 1)
    if not pairs[0].size:
        return ops.sum(x, -1)[:0]
    first, second = (ops.index_select(x, 0, x.graph.constant(side)) for side in pairs)
    return ops.norm(ops.sub(first, second), p, -1)


@rule("linalg_solve_triangular.default")
def solve_triangular(
    a: Tensor, b: Tensor, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """x with a x = b, or x a = b: b times the inverse of a triangle."""
    if static(extent(a, a.ndim - 1), "a triangle") > LARGEST_TRIANGLE:
        raise Unsupported("a large triangle")
    lower = a.mT if upper else a
    inverse = inverse_of_lower(lower, unitriangular)
    inverse = inverse.mT if upper else inverse
    return ops.matmul(inverse, b) if left else ops.matmul(b, inverse)


@rule("_int_mm.default")
def int_mm(a: Tensor, b: Tensor) -> Tensor:
    return ops.matmul(a.cast("i32"), b.cast("i32"))
