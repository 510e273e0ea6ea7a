"""Movement of a tensor's elements: each function is one view, an index map without computation.

A view says from where each element of the result comes: `index[d]`, over the positions i0, i1, ...
of the result, is the index along dimension d of the source. Chains of views become one map.
Dimensions are counted from either end; what takes several takes them in a list or one by one. All
of these are methods of tensors: `x.permute(1, 0)`, `x.T`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..graph.index import Index
from ..graph.infer import text
from ..graph.node import Number, Shape, View
from ..graph.parse import DimLike
from ..graph.tensor import Tensor
from ..graph.views import ONE, ZERO, place, positions, product
from .base import Dims
from .row_major import infer_size, new_shape, reshaped
from .slicing import basic_view, clamped


def flat(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """f(1, 2) and f((1, 2)) mean the same."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        return tuple(given[0])
    return given


# ---- dimensions as they are


def permute(x: Tensor, *dims: Any) -> Tensor:
    """Dimension d of the result is dimension dims[d].

    >>> ops.permute(cx.tensor((2, 3, 4)), 2, 0, 1).shape
    (4, 2, 3)
    """
    order = [x.dim_of(dim) for dim in flat(dims)]
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"permute: {tuple(order)} is no order of the dimensions of {x}")
    return x.moved(selection(x.node.shape, order))


def transpose(x: Tensor, first: int, second: int) -> Tensor:
    """Two dimensions exchanged.

    >>> ops.transpose(cx.constant([[1, 2], [3, 4]]), 0, 1).numpy()
    array([[1, 3],
           [2, 4]])
    """
    order = list(range(x.ndim))
    first, second = x.dim_of(first), x.dim_of(second)
    order[first], order[second] = second, first
    return permute(x, order)


def movedim(x: Tensor, source: int, destination: int) -> Tensor:
    """One dimension at another place.

    >>> ops.movedim(cx.tensor((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    source, target = x.dim_of(source), x.dim_of(destination)
    order = [dim for dim in range(x.ndim) if dim != source]
    return permute(x, order[:target] + [source] + order[target:])


def T(x: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    return permute(x, tuple(range(x.ndim))[::-1])


def mT(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    return transpose(x, -1, -2)


def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Drop dimensions of size 1: all, or those given that have it.

    >>> ops.squeeze(cx.tensor((2, 1, 3)), 1).shape
    (2, 3)
    """
    given = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d for d in map(x.dim_of, given) if x.node.shape[d] == 1}
    kept = [d for d in range(x.ndim) if d not in gone]
    return x.moved(selection(x.node.shape, kept))


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1.

    >>> ops.unsqueeze(cx.tensor((2, 3)), -1).shape
    (2, 3, 1)
    """
    new, shape = x.dim_of(dim, 1), x.node.shape
    index = tuple(place(d if d < new else d + 1) for d in range(x.ndim))
    return x.moved(View((*shape[:new], ONE, *shape[new:]), index))


def expand(x: Tensor, *sizes: Any) -> Tensor:
    """Repeat dimensions of size 1; -1 keeps a size; new dimensions come first.

    >>> ops.expand(cx.constant([[1], [2]]), 2, 3).numpy()
    array([[1, 1, 1],
           [2, 2, 2]])
    """
    wanted = [x.graph.size(size) for size in flat(sizes)]
    new = len(wanted) - x.ndim
    if new < 0:
        raise ShapeError(f"expand: {text(tuple(wanted))} has fewer dimensions than {x}")
    index = []
    for dim, size in enumerate(x.node.shape, new):
        wanted[dim] = size if wanted[dim] == -1 else wanted[dim]
        if size != 1 and size is not wanted[dim]:
            raise ShapeError(f"expand: {x} does not broadcast to {text(tuple(wanted))}")
        index.append(ZERO if size == 1 else place(dim))
    return x.moved(View(tuple(wanted), tuple(index)))


broadcast_to = expand


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """With the shape of another tensor."""
    return expand(x, other.shape)


# ---- another shape for the same elements


def reshape(x: Tensor, *sizes: Any) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1.

    >>> x = cx.tensor(("s", 6))
    >>> ops.reshape(x, "s", 2, -1).shape
    (s, 2, 3)
    """
    old = x.node.shape
    wanted = new_shape(x.graph, old, tuple(map(x.graph.size, flat(sizes))))
    return x.moved(reshaped(old, wanted))


view = reshape


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the dimensions start_dim .. end_dim into one.

    >>> ops.flatten(cx.tensor((2, 3, 4)), 1).shape
    (2, 12)
    """
    if not x.ndim:
        return reshape(x, 1)
    first, last, shape = x.dim_of(start_dim), x.dim_of(end_dim), x.node.shape
    return reshape(x, *shape[:first], product(shape[first : last + 1]), *shape[last + 1 :])


def unflatten(x: Tensor, dim: int, sizes: Sequence[DimLike]) -> Tensor:
    """Split a dimension into several; one size may be -1.

    >>> ops.unflatten(cx.constant([1, 2, 3, 4]), 0, (2, -1)).numpy()
    array([[1, 2],
           [3, 4]])
    """
    dim, shape = x.dim_of(dim), x.node.shape
    part = infer_size(x.graph, (shape[dim],), tuple(map(x.graph.size, sizes)))
    return reshape(x, *shape[:dim], *part, *shape[dim + 1 :])


# ---- some of the elements


def basic(x: Tensor, key: Any) -> Tensor:
    """x[key], where no item of the key is an array or a tensor."""
    return x.moved(basic_view(x.graph, x.node.shape, key))


def select(x: Tensor, dim: int, index: DimLike) -> Tensor:
    """One element along a dimension, which is dropped.

    >>> ops.select(cx.constant([[1, 2], [3, 4]]), 0, 1).numpy()
    array([3, 4])
    """
    return basic(x, (slice(None),) * x.dim_of(dim) + (index,))


def narrow(x: Tensor, dim: int, start: DimLike, length: DimLike) -> Tensor:
    """The elements start .. start + length - 1 along a dimension; all must be there.

    >>> ops.narrow(cx.constant([1, 2, 3, 4]), 0, 1, 2).numpy()
    array([2, 3])
    """
    dim, first, count = x.dim_of(dim), x.graph.size(start), x.graph.size(length)
    for bound in (first, count, x.node.shape[dim] - first - count):
        x.graph.require(bound, f"narrow: {first} .. {first + count} must lie inside {x}")
    return x.moved(along(x.node.shape, dim, count, place(dim) + first))


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements (i, i + offset) of two dimensions, as a new last dimension.

    >>> ops.diagonal(cx.constant([[1, 2], [3, 4]])).numpy()
    array([1, 4])
    """
    row, column, shape = x.dim_of(dim1), x.dim_of(dim2), x.node.shape
    rows, columns = shape[row] + min(0, offset), shape[column] - max(0, offset)
    length = clamped(x.graph, clamped(x.graph, rows, rows, columns), ZERO, None)
    others = selection(shape, [d for d in range(x.ndim) if d not in (row, column)])
    index, here = list(others.index), place(len(others.shape))
    index[row], index[column] = here - min(0, offset), here + max(0, offset)
    return x.moved(View((*others.shape, length), tuple(index)))


# ---- elements backwards, again, further apart


def flip(x: Tensor, *dims: Any) -> Tensor:
    """Backwards along these dimensions; a number stays as it is, as in PyTorch.

    >>> ops.flip(cx.constant([1.0, 2.0, 3.0]), 0).numpy()
    array([3., 2., 1.], dtype=float32)
    """
    shape, index = x.node.shape, list(positions(x.ndim))
    for dim in map(x.dim_of, flat(dims) if x.ndim else ()):
        index[dim] = shape[dim] - 1 - index[dim]
    return x.moved(View(shape, tuple(index)))


def roll(x: Tensor, shifts: DimLike | Sequence[DimLike], dims: Dims = None) -> Tensor:
    """Element i goes to (i + shift) mod n along dimensions; without any in the flattened tensor.

    >>> ops.roll(cx.constant([1, 2, 3, 4]), 1, 0).numpy()
    array([4, 1, 2, 3])
    """
    if dims is None or not flat((dims,)):
        return reshape(roll(flatten(x), shifts, 0), x.shape)
    shape = x.node.shape
    for shift, dim in zip(flat((shifts,)), map(x.dim_of, flat((dims,))), strict=True):
        index = modulo(place(dim) - x.graph.size(shift), shape[dim])
        x = x.moved(along(shape, dim, shape[dim], index))
    return x


def repeat(x: Tensor, *counts: Any) -> Tensor:
    """The tensor side by side, counts[d] times along dimension d (as torch.Tensor.repeat)."""
    wanted = [x.graph.size(count) for count in flat(counts)]
    new = len(wanted) - x.ndim
    if new < 0:
        raise ShapeError(f"repeat: {len(wanted)} counts for {x}")
    padded = (ONE,) * new + x.node.shape
    index = tuple(modulo(place(dim), size) for dim, size in enumerate(padded))
    return x.moved(View(tuple(s * n for s, n in zip(padded, wanted)), index[new:]))


def tile(x: Tensor, *counts: Any) -> Tensor:
    """As repeat; missing counts at the front are 1.

    >>> ops.tile(cx.constant([1, 2]), 2, 2).numpy()
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    wanted = flat(counts)
    return repeat(x, (1,) * (x.ndim - len(wanted)) + wanted)


def repeat_interleave(x: Tensor, repeats: DimLike, dim: int | None = None) -> Tensor:
    """Each element `repeats` times in a row along a dimension; without one, of all elements.

    >>> ops.repeat_interleave(cx.constant([1, 2]), 2, 0).numpy()
    array([1, 1, 2, 2])
    """
    if dim is None:
        return repeat_interleave(flatten(x), repeats, 0)
    times, dim, shape = x.graph.size(repeats), x.dim_of(dim), x.node.shape
    x.graph.require(times, f"repeat_interleave: {times} times")
    index = ZERO if times == 0 else place(dim) // times
    return x.moved(along(shape, dim, shape[dim] * times, index))


def dilate(x: Tensor, step: DimLike, dim: int, value: Number = 0) -> Tensor:
    """step - 1 elements of `value` between neighbours along a dimension."""
    dim, size, shape = x.dim_of(dim), x.graph.size(step), x.node.shape
    x.graph.require(size - 1, f"dilate: a step of {size}")
    here = place(dim)
    wide = along(shape, dim, (shape[dim] - 1) * size + 1, here // size)
    return x.read(wide.shape, wide.index, [-(here % size)], value)


def pad(x: Tensor, widths: Sequence[Any], value: Number = 0) -> Tensor:
    """`value` around the tensor: a (before, after) pair for each dimension, or PyTorch's flat
    list (last dimension first). Negative widths cut off."""
    pairs = [tuple(w) if isinstance(w, (tuple, list)) else w for w in widths]
    if not all(isinstance(pair, tuple) for pair in pairs):
        last_first = list(zip(pairs[::2], pairs[1::2]))
        pairs = [(0, 0)] * (x.ndim - len(last_first)) + last_first[::-1]
    if len(pairs) != x.ndim:
        raise ShapeError(f"pad: {len(pairs)} pairs of widths for {x}")
    sizes, index, conditions = [], [], []
    for dim, (size, pair) in enumerate(zip(x.node.shape, pairs)):
        before, after = map(x.graph.size, pair)
        sizes.append(size + before + after)
        index.append(place(dim) - before)
        conditions += [index[-1], size - 1 - index[-1]]
    return x.read(sizes, index, conditions, value)


# ---- windows


def unfold(x: Tensor, dim: int, size: DimLike, step: DimLike = 1) -> Tensor:
    """Windows along a dimension, as a new last dimension (as torch.Tensor.unfold)."""
    return windows(x, [dim], [size], [step])


def windows(
    x: Tensor, dims: Sequence[int], sizes: Sequence[DimLike], steps: Sequence[DimLike],
    dilations: Sequence[DimLike] | None = None,
) -> Tensor:  # fmt: skip
    """Sliding windows: each of `dims` counts windows, new last dimensions walk inside them."""
    shape, index = list(x.node.shape), list(positions(x.ndim))
    spread = dilations or [1] * len(dims)
    for tap, (dim, *given) in enumerate(zip(map(x.dim_of, dims), sizes, steps, spread)):
        size, step, dilation = map(x.graph.size, given)
        for least, number in ((1, step), (1, dilation), (0, size)):
            x.graph.require(number - least, f"a window of {size}, step {step}, dilation {dilation}")
        room = x.node.shape[dim] - dilation * (size - 1) - 1
        x.graph.require(room, f"a window of {size} (dilation {dilation}) must fit {x}")
        shape[dim] = room // step + 1
        shape.append(size)
        index[dim] = index[dim] * step + place(x.ndim + tap) * dilation
    return x.moved(View(tuple(shape), tuple(index)))


# ---- pieces of views


def selection(shape: Shape, dims: Sequence[int]) -> View:
    """Dimension d of the result is dimension dims[d]; those left out are read at 0."""
    index = [ZERO] * len(shape)
    for dim, source in enumerate(dims):
        index[source] = place(dim)
    return View(tuple(shape[source] for source in dims), tuple(index))


def along(shape: Shape, dim: int, size: Index, index: Index) -> View:
    """Dimension `dim` gets a new size and reads the source at `index` (over its own position)."""
    indices = positions(len(shape))
    return View(
        shape[:dim] + (size,) + shape[dim + 1 :], indices[:dim] + (index,) + indices[dim + 1 :]
    )


def modulo(index: Index, size: Index) -> Index:
    """index mod size; 0 where the size is 0 and nothing is read."""
    return ZERO if size == 0 else index % size
