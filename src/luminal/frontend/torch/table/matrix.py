"""Matrix products. Narrow floats are added up in f32 with what follows, rounded once."""

from __future__ import annotations

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.tensor import Tensor
from ....ops.base import extent, static
from ....ops.linalg import inverse_of_lower
from .base import rule, same

LARGEST_TRIANGLE = 256  # rows; its inverse takes more work than PyTorch's substitution

same("mm.default", ops.mm)
same("bmm.default", ops.bmm)
same("mv.default", ops.mv)
same("addmm.default baddbmm.default addmv.default", ops.addmm)
same("addbmm.default", ops.addbmm)
same("dot.default vdot.default", ops.dot)


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
