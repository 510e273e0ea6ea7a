"""Joining, cutting, padding, turning. (What is one view is in `movement`.)"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError, Unsupported
from ..graph.dtype import boolean, i64
from ..graph.index import Index
from ..graph.node import Number
from ..graph.tensor import Tensor
from .base import Size, dim_of, extent, literal, result_type, same_size, size_value
from .logic import lt, where

# ---- joining


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along a dimension.

    >>> x = cx.constant([[1.0, 2.0]])
    >>> ops.cat([x, x * 10.0], 0).numpy()
    array([[ 1.,  2.],
           [10., 20.]], dtype=float32)
    """
    if not tensors:
        raise ShapeError("cat needs at least one tensor")
    kind, dim = result_type(*tensors), dim_of(tensors[0], dim)
    parts = [t.cast(kind) for t in tensors if not (t.ndim == 1 and extent(t, 0) == 0)]
    parts = parts or [tensors[0].cast(kind)]
    for part in parts[1:]:
        _check_joined(parts[0], part, dim)
    return _join([p for p in parts if extent(p, dim) != 0] or parts[:1], dim)


concat = concatenate = cat


def _check_joined(first: Tensor, other: Tensor, dim: int) -> None:
    fits = first.ndim == other.ndim and all(
        d == dim or same_size(extent(first, d), extent(other, d)) for d in range(first.ndim)
    )
    if not fits:
        raise ShapeError(f"cat along dimension {dim}: {other} does not fit {first}")


def _join(parts: Sequence[Tensor], dim: int) -> Tensor:
    """select(position < size of the left half, left, right), halves joined the same way."""
    if len(parts) == 1:
        return parts[0]
    left, right = _join(parts[: len(parts) // 2], dim), _join(parts[len(parts) // 2 :], dim)
    n, m = extent(left, dim), extent(right, dim)
    none = [(0, 0)] * left.ndim
    wide_left = left.pad([*none[:dim], (0, m), *none[dim + 1 :]])
    wide_right = right.pad([*none[:dim], (n, 0), *none[dim + 1 :]])
    graph = left.graph
    position = graph.iota(wide_left.shape, Index.of(f"i{dim}"), i64)
    first = lt(position, size_value(graph, n, i64))
    return graph.apply("select", [first, wide_left, wide_right])


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors along a new dimension.

    >>> x = cx.constant([1.0, 2.0])
    >>> ops.stack([x, -x], 1).numpy()
    array([[ 1., -1.],
           [ 2., -2.]], dtype=float32)
    """
    dim = dim_of(tensors[0], dim, extra=1)
    return cat([t.unsqueeze(dim) for t in tensors], dim)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side: along dimension 1, or 0 of vectors.

    >>> ops.hstack([cx.constant([1, 2]), cx.constant([3])]).numpy()
    array([1, 2, 3])
    """
    parts = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One above the other: along dimension 0, vectors being rows.

    >>> ops.row_stack([cx.constant([1, 2]), cx.constant([3, 4])]).numpy()
    array([[1, 2],
           [3, 4]])
    """
    return cat([t.reshape((1, -1)) if t.ndim < 2 else t for t in tensors], 0)


# ---- cutting


def split(x: Tensor, sizes: Size | Sequence[Size], dim: int = 0) -> list[Tensor]:
    """Pieces of a size (the last may be smaller), or of the sizes listed.

    >>> first, last = ops.split(cx.constant([1.0, 2.0, 3.0]), 2)
    >>> last.numpy()
    array([3.], dtype=float32)
    """
    dim = dim_of(x, dim)
    if isinstance(sizes, int):
        n = int(extent(x, dim))
        if sizes < 1 and n:
            raise ShapeError(f"split: pieces of {sizes}")
        sizes = [min(sizes, n - start) for start in range(0, n, sizes)] or [0]
    if isinstance(sizes, (str, Index)):
        raise ShapeError(f"split: a symbolic size {sizes} does not tell how many pieces; list them")
    return _pieces(x, [x.graph.size(s) for s in sizes], dim)


def _pieces(x: Tensor, sizes: Sequence[Index], dim: int) -> list[Tensor]:
    total, pieces = Index.of(0), []
    for size in sizes:
        pieces.append(x.narrow(dim, total, size))
        total = total + size
    rest = extent(x, dim) - total
    for side in (rest, -rest):  # sizes of a run are added up when it starts
        x.graph.require(side, f"split: sizes {list(sizes)} add up to {total}, not {extent(x, dim)}")
    return pieces


def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """At most `chunks` pieces of equal size (the last may be smaller).

    >>> first, last = ops.chunk(cx.constant([1.0, 2.0, 3.0]), 2)
    >>> first.numpy()
    array([1., 2.], dtype=float32)
    """
    dim = dim_of(x, dim)
    size = extent(x, dim)
    if chunks < 1:
        raise ShapeError(f"chunk: {chunks} pieces")
    if size.is_constant:
        return split(x, max(1, -(-size.constant // chunks)), dim)
    each = x.graph.space.floor(size, chunks)
    return _pieces(x, [each] * chunks, dim)


def tensor_split(x: Tensor, sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Pieces as equal as possible, or cut at the positions listed.

    >>> [part.numpy().tolist() for part in ops.tensor_split(cx.constant([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    dim = dim_of(x, dim)
    n = int(extent(x, dim))
    if isinstance(sections, int):
        sizes = [n // sections + (i < n % sections) for i in range(sections)]
    else:
        ends = [min(max(e if e >= 0 else e + n, 0), n) for e in [*sections, n]]
        sizes = [max(0, end - start) for start, end in zip([0, *ends[:-1]], ends)]
    return split(x, sizes, dim)


def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """All slices along a dimension.

    >>> [part.numpy().tolist() for part in ops.unbind(cx.constant([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return [x.select(dim, i) for i in range(int(extent(x, dim_of(x, dim))))]


# ---- turning and repeating


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """k quarter turns in the plane of two dimensions.

    >>> ops.rot90(cx.constant([[1, 2], [3, 4]])).numpy()
    array([[2, 4],
           [1, 3]])
    """
    first, second = dims
    for _ in range(k % 4):
        x = x.flip(second).transpose(first, second)
    return x


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> list[Tensor]:
    """Each vector along a dimension of its own, expanded over the others.

    >>> rows, columns = ops.meshgrid(cx.constant([1, 2]), cx.constant([3, 4]))
    >>> rows.numpy(), columns.numpy()
    (array([[1, 1],
           [2, 2]]), array([[3, 4],
           [3, 4]]))
    """
    if indexing == "xy" and len(tensors) > 1:
        swapped = meshgrid(tensors[1], tensors[0], *tensors[2:])
        return [swapped[1], swapped[0], *swapped[2:]]
    shape = [extent(t, 0) for t in tensors]
    grids = []
    for d, tensor in enumerate(tensors):
        ones: list[Size] = [1] * len(tensors)
        ones[d] = shape[d]
        grids.append(tensor.reshape(ones).expand(shape))
    return grids


# ---- padding


def pad(x: Tensor, widths: Sequence[int], mode: str = "constant", value: Number = 0) -> Tensor:
    """As `torch.nn.functional.pad`: (before, after) pairs, last dimension first; mode constant,
    reflect, replicate or circular.

    >>> ops.pad(cx.constant([1.0, 2.0]), (1, 2), value=9.0).numpy()
    array([9., 1., 2., 9., 9.], dtype=float32)
    """
    if mode == "constant":
        return x.pad(list(widths), value)
    pairs = list(zip(widths[::2], widths[1::2]))
    for d, (before, after) in enumerate(pairs, 1):
        if (before, after) != (0, 0):
            x = _pad_mode(x, x.ndim - d, before, after, mode)
    return x


def _pad_mode(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    if mode == "circular":  # what is cut off does not come back at the other end
        cut = [max(-width, 0) if isinstance(width, int) else 0 for width in (before, after)]
        x = x.narrow(dim, cut[0], extent(x, dim) - cut[0] - cut[1])
        before, after = before + cut[0], after + cut[1]
    n = extent(x, dim)
    if mode in ("circular", "reflect"):
        most = n if mode == "circular" else n - 1
        for width in (before, after):
            x.graph.require(most - width, f"{mode} padding by {width}: at most {most} of {x}")
    at = Index.of(f"i{dim}") - before
    if mode == "replicate":
        at = at.maximum(0).minimum(n - 1)
    elif mode == "circular":
        at = at % n
    elif mode == "reflect":
        at = at.maximum(-at)
        at = at.minimum((n - 1) * 2 - at)
    else:
        raise Unsupported(f"pad mode {mode!r}; there are constant, reflect, replicate, circular")
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = at
    return x.read([*x.shape[:dim], n + before + after, *x.shape[dim + 1 :]], index)


# ---- triangles and diagonals


def _triangle(x: Tensor, diagonal: int, lower: bool) -> Tensor:
    row, column = Index.of(f"i{x.ndim - 2}"), Index.of(f"i{x.ndim - 1}")
    distance = column - row - diagonal
    graph = x.graph
    if lower:  # column <= row + diagonal
        kept = lt(graph.iota(x.shape, distance), 1)
    else:
        kept = lt(graph.iota(x.shape, -distance), 1)
    return where(kept, x, literal(graph, 0, x.dtype))


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero above a diagonal of the last two dimensions.

    >>> ops.tril(cx.constant([[1, 2], [3, 4]])).numpy()
    array([[1, 0],
           [3, 4]])
    """
    return _triangle(x, diagonal, lower=True)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero below a diagonal of the last two dimensions.

    >>> ops.triu(cx.constant([[1, 2], [3, 4]])).numpy()
    array([[1, 2],
           [0, 4]])
    """
    return _triangle(x, diagonal, lower=False)


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with this diagonal, or the diagonal of a matrix.

    >>> ops.diag(cx.constant([1, 2])).numpy()
    array([[1, 0],
           [0, 2]])
    """
    return x.diagonal(diagonal) if x.ndim == 2 else diag_embed(x, diagonal)


def diag_embed(x: Tensor, offset: int = 0) -> Tensor:
    """The last dimension as a diagonal of two new ones.

    >>> ops.diag_embed(cx.constant([[1, 2]])).numpy()
    array([[[1, 0],
            [0, 2]]])
    """
    n = extent(x, x.ndim - 1) + abs(offset)
    row, column = Index.of(f"i{x.ndim - 1}"), Index.of(f"i{x.ndim}")
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[-1] = row + min(0, offset)
    off = column - row - offset
    last = extent(x, x.ndim - 1) - 1 - index[-1]
    shape = [*x.shape[:-1], n, n]
    zero = False if x.dtype is boolean else 0.0 if x.dtype.is_float else 0
    return x.read(shape, index, [off, -off, index[-1], last], zero)


def trace(x: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    >>> ops.trace(cx.constant([[1, 2], [3, 4]])).numpy()
    array(5)
    """
    from .reduction import sum

    return sum(x.diagonal())
