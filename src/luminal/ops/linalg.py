"""Products: a contraction is two views, a multiplication and a sum, at any rank and size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..graph.dtype import f32
from ..graph.index import Index
from ..graph.tensor import Tensor
from .base import (
    broadcast_shapes,
    dim_of,
    extent,
    full_like,
    operands,
    result_type,
    same_size,
    static,
)
from .elementwise import add, mul, reciprocal, sub
from .logic import eq, logical_and, where
from .reduction import norm, reduce


def contract(a: Tensor, b: Tensor, dims: Sequence[int]) -> Tensor:
    """sum of a b over dimensions, for operands of one shape and dtype; f16 and bf16 are added up in
    f32 and rounded once."""
    kept = a.dtype
    if kept.is_float and kept.bytes < 4:
        a, b = a.cast(f32), b.cast(f32)
    return reduce("sum", mul(a, b), tuple(dims)).cast(kept)


def _check_inner(name: str, a: Tensor, b: Tensor, m: Index, n: Index) -> None:
    if not same_size(m, n):
        raise ShapeError(f"{name}: inner sizes {m} and {n} differ, of {a} and {b}")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product over the last two dimensions; vectors and batches as in PyTorch.

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.matmul(x, cx.constant([[1.0], [10.0]])).numpy()
    array([[21.],
           [43.]], dtype=float32)
    """
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul: both operands need a dimension, got {a} and {b}")
    if a.ndim == 1:
        return matmul(a.unsqueeze(0), b).squeeze(-1 if b.ndim == 1 else -2)
    if b.ndim == 1:
        return matmul(a, b.unsqueeze(1)).squeeze(-1)
    _check_inner("matmul", a, b, extent(a, a.ndim - 1), extent(b, b.ndim - 2))
    kind = result_type(a, b)
    x, y = a.cast(kind).unsqueeze(-2), b.cast(kind).transpose(-1, -2).unsqueeze(-3)
    shape = broadcast_shapes(x.shape, y.shape)  # (..., m, n, k)
    return contract(x.expand(shape), y.expand(shape), [len(shape) - 1])


def mm(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices.

    >>> ops.mm(cx.constant([[1.0, 2.0]]), cx.constant([[3.0], [4.0]])).numpy()
    array([[11.]], dtype=float32)
    """
    return _ranked("mm", a, b, 2, 2)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """The products of two batches of matrices.

    >>> ops.bmm(cx.tensor(("b", 2, 3)), cx.tensor(("b", 3, 4))).shape
    (b, 2, 4)
    """
    return _ranked("bmm", a, b, 3, 3)


def mv(a: Tensor, b: Tensor) -> Tensor:
    """A matrix times a vector.

    >>> ops.mv(cx.constant([[1, 2], [3, 4]]), cx.constant([1, 10])).numpy()
    array([21, 43])
    """
    return _ranked("mv", a, b, 2, 1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of two vectors.

    >>> ops.dot(cx.constant([1.0, 2.0]), cx.constant([3.0, 4.0])).numpy()
    array(11., dtype=float32)
    """
    return _ranked("dot", a, b, 1, 1)


def _ranked(name: str, a: Tensor, b: Tensor, first: int, second: int) -> Tensor:
    if a.ndim != first or b.ndim != second:
        raise ShapeError(f"{name} takes {first} and {second} dimensions, got {a} and {b}")
    return matmul(a, b)


vdot = dot  # nothing is complex


def outer(a: Tensor, b: Tensor) -> Tensor:
    """The products of all pairs of elements of two vectors.

    >>> ops.outer(cx.constant([1.0, 2.0]), cx.constant([3.0, 4.0])).numpy()
    array([[3., 4.],
           [6., 8.]], dtype=float32)
    """
    return mul(a.unsqueeze(1), b.unsqueeze(0))


def addmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha (a @ b), narrow floats in f32 and rounded once; x does not count, not even as
    NaN, where beta is 0. Integers take the whole part of both factors.

    >>> a = cx.constant([1.0, 2.0])
    >>> b = cx.constant([[1.0, 0.0]])
    >>> c = cx.constant([[3.0, 4.0], [5.0, 6.0]])
    >>> ops.addmm(a, b, c, alpha=10).numpy()
    array([[31., 42.]], dtype=float32)
    """
    kind = result_type(a, b)
    if kind.is_float and kind.bytes < 4:
        x, a, b = x.cast(f32), a.cast(f32), b.cast(f32)
    elif not kind.is_float:
        beta, alpha = int(beta), int(alpha)
    product = matmul(a, b)
    product = product if alpha == 1 else mul(product, alpha)
    if beta != 0:
        product = add(product, x if beta == 1 else mul(x, beta))
    return product.expand(broadcast_shapes(product.shape, x.shape)).cast(kind)


baddbmm = addmv = addmm


def addbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the sum of the products of two batches of matrices.

    >>> a = cx.constant([[1.0]])
    >>> b = cx.constant([[[2.0]], [[3.0]]])
    >>> c = cx.constant([[[10.0]], [[100.0]]])
    >>> ops.addbmm(a, b, c).numpy()
    array([[321.]], dtype=float32)
    """
    rows = a.transpose(0, 1).flatten(1, 2)
    return addmm(x, rows, b.flatten(0, 1), beta, alpha)


def addr(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the products of all pairs of elements of two vectors.

    >>> ops.addr(cx.constant([[0.0, 1.0]]), cx.constant([2.0]), cx.constant([3.0, 4.0])).numpy()
    array([[6., 9.]], dtype=float32)
    """
    return addmm(x, a.unsqueeze(1), b.unsqueeze(0), beta, alpha)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight^T + bias. x: (..., in), weight: (out, in), bias: (out,).

    >>> weight = cx.constant([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    >>> ops.linear(cx.constant([[1.0, 1.0]]), weight).numpy()
    array([[3., 1., 3.]], dtype=float32)
    """
    _check_inner("linear", x, weight, extent(x, x.ndim - 1), extent(weight, weight.ndim - 1))
    if weight.ndim == 1:
        product = matmul(x, weight)
    else:
        product = matmul(x, weight.transpose(0, 1))
    return product if bias is None else add(product, bias)


def bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """a^T W_o b for each output o. a: (..., m), b: (..., n), weight: (out, m, n).

    >>> a, b, c = cx.constant([1.0, 2.0]), cx.constant([3.0]), cx.constant([[[10.0], [1.0]]])
    >>> ops.bilinear(a, b, c).numpy()
    array([36.], dtype=float32)
    """
    product = einsum("...m,omn,...n->...o", a, weight, b)
    return product if bias is None else add(product, bias)


def tensordot(a: Tensor, b: Tensor, dims: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum over pairs of dimensions: the last of a with the first of b, or those listed.

    >>> ops.tensordot(cx.constant([[1, 2], [3, 4]]), cx.constant([[1, 0], [0, 1]])).numpy()
    array(5)
    """
    if isinstance(dims, int):
        dims = (range(a.ndim - dims, a.ndim), range(dims))
    first, second = [dim_of(a, d) for d in dims[0]], [dim_of(b, d) for d in dims[1]]
    rest_a = [d for d in range(a.ndim) if d not in first]
    rest_b = [d for d in range(b.ndim) if d not in second]
    for i, j in zip(first, second):
        _check_inner("tensordot", a, b, extent(a, i), extent(b, j))
    x = a.permute(rest_a + first)
    y = b.permute(rest_b + second)
    for _ in rest_b:
        x = x.unsqueeze(len(rest_a))
    x, y = operands(x, y)
    return contract(x, y, range(len(rest_a) + len(rest_b), x.ndim))


def cdist(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows: (..., n, d), (..., m, d)
    to (..., n, m).

    >>> ops.cdist(cx.constant([[0.0, 0.0]]), cx.constant([[3.0, 4.0], [0.0, 1.0]])).numpy()
    array([[5., 1.]], dtype=float32)
    """
    return norm(sub(a.unsqueeze(-2), b.unsqueeze(-3)), p, -1)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows (n, d), n fixed: (n (n - 1) / 2,).

    >>> ops.pdist(cx.constant([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).numpy().round(3)
    array([5.   , 1.   , 4.243], dtype=float32)
    """
    pairs = np.triu_indices(static(extent(x, 0), "the number of rows"), 1)
    if not pairs[0].size:
        return reduce("sum", x, 1).narrow(0, 0, 0)
    first, second = (x.graph.constant(side.astype(np.int64)) for side in pairs)
    return norm(sub(x[first], x[second]), p, -1)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """The Kronecker product; the tensor of lower rank has dimensions of size 1 at the front.

    >>> ops.kron(cx.constant([1, 10]), cx.constant([1, 2])).numpy()
    array([ 1,  2, 10, 20])
    """
    x = a.reshape((*(1,) * (b.ndim - a.ndim), *a.shape))
    y = b.reshape((*(1,) * (a.ndim - b.ndim), *b.shape))
    rank = x.ndim
    for d in range(rank):
        x, y = x.unsqueeze(2 * d + 1), y.unsqueeze(2 * d)
    product = mul(x, y)
    for d in range(rank):
        product = product.flatten(d, d + 1)
    return product


def cross(a: Tensor, b: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along a dimension of size 3, by default the first of that size.

    >>> ops.cross(cx.constant([1.0, 0.0, 0.0]), cx.constant([0.0, 1.0, 0.0])).numpy()
    array([0., 0., 1.], dtype=float32)
    """
    x, y = operands(a, b)
    if dim is None:
        dim = next((d for d in range(x.ndim) if extent(x, d) == 3), 0)
    dim = dim_of(x, dim)
    if not x.ndim or extent(x, dim) != 3:
        raise ShapeError(
            f"cross: a dimension of size 3 is needed, got {a} and {b}, dimension {dim}"
        )
    turned = [(t.roll(-1, dim), t.roll(-2, dim)) for t in (x, y)]
    (x1, x2), (y1, y2) = turned
    return sub(mul(x1, y2), mul(x2, y1))


# ---- triangular matrices


def inverse_of_lower(a: Tensor, unit: bool = False) -> Tensor:
    """The inverse of the lower triangles of a (..., n, n), n static; unit: ones on the diagonals.

    X inverts the diagonal blocks of one size; E holds the blocks under every other of them. Blocks
    of twice the size have the inverse X - X E X, as (X E)^2 = 0.
    """
    n = int(extent(a, a.ndim - 1))
    row, column = Index.of(f"i{a.ndim - 2}"), Index.of(f"i{a.ndim - 1}")
    on = eq(a.graph.iota(a.shape, row - column), 0)
    result = where(on, 1.0 if unit else reciprocal(a), full_like(a, 0))
    size = 1
    while size < n:
        pair = row // (2 * size) - column // (2 * size)
        place = row // size - column // size  # 1 in the same pair: below the diagonal
        under = logical_and(eq(a.graph.iota(a.shape, pair), 0), eq(a.graph.iota(a.shape, place), 1))
        below = where(under, a, full_like(a, 0))
        result = sub(result, matmul(result, matmul(below, result)))
        size *= 2
    return result


# ---- einsum


def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """Einstein summation, as `torch.einsum`: "bhqd,bhkd->bhqk", "...ij,...jk", "ii->i".

    >>> x = cx.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> ops.einsum("ij,kj->ik", x, x).numpy()
    array([[ 5., 11.],
           [11., 25.]], dtype=float32)
    """
    inputs, output = _parse(equation.replace(" ", ""), tensors)
    terms = [_diagonals(t, letters) for t, letters in zip(tensors, inputs)]
    current, letters = terms[0]
    for position, (other, more) in enumerate(terms[1:], 1):
        needed = set(output).union(*(later for _, later in terms[position + 1 :]))
        current, letters = _pair(current, letters, other, more, needed)
    current, letters = _sum_out(current, letters, set(output))
    return current.permute([letters.index(c) for c in output]) if output else current


def _parse(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """One letter for each dimension of each operand; the dimensions of `...` become capitals
    that the equation does not use, aligned at the end."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        raise ShapeError(f"einsum {equation!r} names {len(parts)} operands, got {len(tensors)}")
    unused = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation]
    ranks = [t.ndim - len(p.replace("...", "")) for p, t in zip(parts, tensors)]
    most = max((r for p, r in zip(parts, ranks) if "..." in p), default=0)
    dots = "".join(unused[:most])
    inputs = []
    for part, rank, tensor in zip(parts, ranks, tensors):
        part = part.replace("...", dots[most - rank :] if rank > 0 else "")
        if len(part) != tensor.ndim:
            raise ShapeError(f"einsum {equation!r}: {part!r} does not fit {tensor}")
        inputs.append(part)
    if not arrow:
        letters = "".join(inputs)
        once = [c for c in letters if letters.count(c) == 1 and c not in dots]
        right = "..." + "".join(sorted(once))
    return inputs, right.replace("...", dots)


def _diagonals(tensor: Tensor, letters: str) -> tuple[Tensor, str]:
    """A letter that stands twice means the diagonal of its two dimensions."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            tensor = tensor.diagonal(0, first, second)
            letters = "".join(c for d, c in enumerate(letters) if d not in (first, second)) + letter
    return tensor, letters


def _sum_out(tensor: Tensor, letters: str, needed: set[str]) -> tuple[Tensor, str]:
    """Sum over the dimensions that nothing else needs."""
    dims = tuple(d for d, c in enumerate(letters) if c not in needed)
    if not dims:
        return tensor, letters
    return reduce("sum", tensor, dims), "".join(c for c in letters if c in needed)


def _pair(a: Tensor, first: str, b: Tensor, second: str, needed: set[str]) -> tuple[Tensor, str]:
    """The product of two operands, summed over what no later operand and no result needs."""
    a, first = _sum_out(a, first, needed | set(second))
    b, second = _sum_out(b, second, needed | set(first))
    letters = [c for c in dict.fromkeys(first + second) if c in needed]
    inner = [c for c in dict.fromkeys(first + second) if c not in needed]
    order = "".join(letters + inner)
    x, y = operands(_align(a, first, order), _align(b, second, order))
    dims = range(len(letters), len(order))
    return (contract(x, y, dims) if inner else mul(x, y)), "".join(letters)


def _align(tensor: Tensor, letters: str, order: str) -> Tensor:
    """Dimensions in a given order, size 1 where the tensor has none."""
    tensor = tensor.permute([letters.index(c) for c in order if c in letters])
    for d, letter in enumerate(order):
        if letter not in letters:
            tensor = tensor.unsqueeze(d)
    return tensor
