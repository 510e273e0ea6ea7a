"""Tensors like another: of its shape, of its dtype, cut as it is; and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..graph.dtype import dtype as dtype_of
from ..graph.node import Number
from ..graph.tensor import Tensor
from .base import Size, extent, full_like, literal
from .elementwise import mul
from .linalg import tensordot
from .movement import flat
from .reduction import reduce
from .shape import cat, diag, split, tensor_split


def _of_shape(x: Tensor, sizes: tuple[Any, ...], value: Number, dtype: Any) -> Tensor:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return literal(x.graph, value, kind).expand(x.graph.shape(flat(sizes)))


def new_zeros(x: Tensor, *sizes: Any, dtype: Any = None) -> Tensor:
    """0 everywhere, in the dtype of x.

    >>> ops.new_zeros(cx.constant([5]), 2).numpy()
    array([0, 0])
    """
    return _of_shape(x, sizes, 0, dtype)


def new_ones(x: Tensor, *sizes: Any, dtype: Any = None) -> Tensor:
    """1 everywhere, in the dtype of x.

    >>> ops.new_ones(cx.constant([5]), 2).numpy()
    array([1, 1])
    """
    return _of_shape(x, sizes, 1, dtype)


def new_full(x: Tensor, size: Sequence[Size], fill_value: Number, *, dtype: Any = None) -> Tensor:
    """One value everywhere, in the dtype of x.

    >>> ops.new_full(cx.constant([1.0]), (2,), 7).numpy()
    array([7., 7.], dtype=float32)
    """
    return _of_shape(x, (size,), fill_value, dtype)


def new_empty(x: Tensor, *sizes: Any, dtype: Any = None) -> Tensor:
    """As new_zeros: there is no memory whose contents do not matter.

    >>> ops.new_empty(cx.constant([1.0]), 2, 3).shape
    (2, 3)
    """
    return new_zeros(x, *sizes, dtype=dtype)


def new_tensor(x: Tensor, data: Any, *, dtype: Any = None) -> Tensor:
    """Known values, in the dtype of x.

    >>> ops.new_tensor(cx.constant([1.0]), [1, 2]).numpy()
    array([1., 2.], dtype=float32)
    """
    return x.graph.constant(data).cast(x.dtype if dtype is None else dtype_of(dtype))


def empty_like(x: Tensor, *, dtype: Any = None) -> Tensor:
    """As zeros_like.

    >>> ops.empty_like(cx.constant([1.0, 2.0])).shape
    (2,)
    """
    return full_like(x, 0, dtype)


def clone(x: Tensor) -> Tensor:
    """x: a tensor is a value, which nothing overwrites.

    >>> ops.clone(cx.constant([1.0, 2.0])).numpy()
    array([1., 2.], dtype=float32)
    """
    return x


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """With the shape of another tensor of as many elements.

    >>> ops.reshape_as(cx.constant([1, 2, 3, 4]), cx.tensor((2, 2))).numpy()
    array([[1, 2],
           [3, 4]])
    """
    return x.reshape(other.shape)


view_as = reshape_as


def ravel(x: Tensor) -> Tensor:
    """All elements in a vector.

    >>> ops.ravel(cx.constant([[1, 2], [3, 4]])).numpy()
    array([1, 2, 3, 4])
    """
    return x.flatten()


def narrow_copy(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """As narrow.

    >>> ops.narrow_copy(cx.constant([1, 2, 3, 4]), 0, 1, 2).numpy()
    array([2, 3])
    """
    return x.narrow(dim, start, length)


def fliplr(x: Tensor) -> Tensor:
    """Backwards along dimension 1.

    >>> ops.fliplr(cx.constant([[1, 2], [3, 4]])).numpy()
    array([[2, 1],
           [4, 3]])
    """
    return x.flip(1)


def flipud(x: Tensor) -> Tensor:
    """Backwards along dimension 0.

    >>> ops.flipud(cx.constant([[1, 2], [3, 4]])).numpy()
    array([[3, 4],
           [1, 2]])
    """
    return x.flip(0)


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on a diagonal.

    >>> ops.diagflat(cx.constant([[1], [2]])).numpy()
    array([[1, 0],
           [0, 2]])
    """
    return diag(x.flatten(), offset)


def hsplit(x: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """tensor_split along dimension 1, or 0 of vectors.

    >>> [part.shape for part in ops.hsplit(ops.zeros(cx, (2, 4)), [1])]
    [(2, 1), (2, 3)]
    """
    return tensor_split(x, sections, 0 if x.ndim == 1 else 1)


def vsplit(x: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """tensor_split along dimension 0.

    >>> [part.shape for part in ops.vsplit(ops.zeros(cx, (4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return tensor_split(x, sections, 0)


def dsplit(x: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """tensor_split along dimension 2.

    >>> [part.shape for part in ops.dsplit(ops.zeros(cx, (1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return tensor_split(x, sections, 2)


def split_with_sizes(x: Tensor, split_sizes: Sequence[Size], dim: int = 0) -> list[Tensor]:
    """Pieces of the sizes listed.

    >>> [part.numpy().tolist() for part in ops.split_with_sizes(cx.constant([1, 2, 3]), [1, 2])]
    [[1], [2, 3]]
    """
    return split(x, split_sizes, dim)


def sum_to_size(x: Tensor, *sizes: Any) -> Tensor:
    """Sums over what broadcasting from these sizes had added.

    >>> ops.sum_to_size(cx.constant([[1, 2], [3, 4]]), 1, 2).numpy()
    array([[4, 6]])
    """
    wanted = x.graph.shape(flat(sizes))
    more = x.ndim - len(wanted)
    if more < 0:
        raise ShapeError(f"sum_to_size: {x} has fewer dimensions than {wanted}")
    extra = [d for d in range(more, x.ndim) if wanted[d - more] == 1 and extent(x, d) != 1]
    total = reduce("sum", x, tuple([*range(more), *extra])) if more or extra else x
    return total.reshape(wanted)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The sums of the products along the last dimensions of both.

    >>> ops.inner(cx.constant([[1, 2], [3, 4]]), cx.constant([1, 10])).numpy()
    array([21, 43])
    """
    if not a.ndim or not b.ndim:
        return mul(a, b)
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1]))


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """One behind the other: along dimension 2.

    >>> ops.dstack([cx.constant([1, 2]), cx.constant([3, 4])]).numpy()
    array([[[1, 3],
            [2, 4]]])
    """
    return cat([atleast_3d(t) for t in tensors], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side, vectors being columns.

    >>> ops.column_stack([cx.constant([1, 2]), cx.constant([3, 4])]).numpy()
    array([[1, 3],
           [2, 4]])
    """
    return cat([t.reshape((-1, 1)) if t.ndim < 2 else t for t in tensors], 1)


def atleast_1d(x: Tensor) -> Tensor:
    """A scalar as a vector of one element.

    >>> ops.atleast_1d(cx.constant(2.0)).shape
    (1,)
    """
    return x if x.ndim else x.reshape(1)


def atleast_2d(x: Tensor) -> Tensor:
    """A vector as a row.

    >>> ops.atleast_2d(cx.constant([1.0, 2.0])).shape
    (1, 2)
    """
    return x if x.ndim > 1 else atleast_1d(x).unsqueeze(0)


def atleast_3d(x: Tensor) -> Tensor:
    """A vector or a matrix with dimensions of size 1: (1, n, 1), (n, m, 1).

    >>> ops.atleast_3d(cx.constant([1.0, 2.0])).shape
    (1, 2, 1)
    """
    return x if x.ndim > 2 else atleast_2d(x).unsqueeze(-1)


# ---- what is known of a tensor


def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Both have one shape.

    >>> ops.is_same_size(cx.constant([1, 2]), cx.constant([3, 4]))
    True
    """
    return x.node.shape == other.node.shape


def is_floating_point(x: Tensor) -> bool:
    """Of a float dtype.

    >>> ops.is_floating_point(cx.constant([1]))
    False
    """
    return x.dtype.is_float


def is_complex(x: Tensor) -> bool:
    """False: complex numbers are pairs of tensors.

    >>> ops.is_complex(cx.constant([1.0]))
    False
    """
    return False


def is_signed(x: Tensor) -> bool:
    """Of a dtype with negative numbers.

    >>> ops.is_signed(cx.tensor(1, "u8"))
    False
    """
    return x.dtype.is_signed or x.dtype.is_float


def element_size(x: Tensor) -> int:
    """Bytes of an element.

    >>> ops.element_size(cx.tensor(3, "f16"))
    2
    """
    return x.dtype.bytes
