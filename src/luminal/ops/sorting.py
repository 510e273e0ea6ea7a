"""Sorting, always stable, with NaN as the largest value.

Up to 512 elements, or for a size known only at run time, the place of an element is counted: how
many stand before it. Longer dimensions are cut into blocks that are sorted so and then merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import ShapeError
from ..graph.dtype import DType, boolean, i64
from ..graph.index import Index
from ..graph.node import Composite
from ..graph.tensor import Tensor
from .base import count, dim_of, extent, full_like, named, positions, size_value
from .elementwise import add
from .logic import eq, isnan, logical_and, logical_not, logical_or, lt, ne, where
from .reduction import Extreme, reduce
from .shape import stack

COUNTING_LIMIT = 512
TOPK_BY_MAXIMA = 16  # so many maxima, one after the other, before a whole sort is cheaper
MAXIMA_IN_ONE = 10  # so many are one kernel: beyond, a short dimension is sorted in less time

Order = Callable[[Tensor, Tensor], Tensor]


def ascending(a: Tensor, b: Tensor) -> Tensor:
    """a is smaller; NaN is larger than any number."""
    if not a.dtype.is_float:
        return lt(a, b)
    return logical_or(lt(a, b), logical_and(isnan(b), logical_not(isnan(a))))


def descending(a: Tensor, b: Tensor) -> Tensor:
    """a is larger; NaN is larger than any number."""
    return ascending(b, a)


def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Extreme:
    """(values in order, where each stood). Always stable.

    >>> values, indices = ops.sort(cx.constant([3.0, 1.0, 2.0]), descending=True)
    >>> values.numpy(), indices.numpy()
    (array([3., 2., 1.], dtype=float32), array([0, 2, 1]))
    """
    if x.ndim == 0:
        return Extreme(x, full_like(x, 0, i64))
    dim = dim_of(x, dim)
    indices = _order(x.movedim(dim, -1), descending).movedim(-1, dim)
    return Extreme(x._gather(indices, dim), indices)


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Where each element of the sorted tensor stood.

    >>> ops.argsort(cx.constant([3.0, 1.0, 2.0])).numpy()
    array([1, 2, 0])
    """
    return sort(x, dim, descending).indices


def msort(x: Tensor) -> Tensor:
    """Sorted along the first dimension.

    >>> ops.msort(cx.constant([[3, 1], [2, 4]])).numpy()
    array([[2, 1],
           [3, 4]])
    """
    return sort(x, 0).values


def _order(x: Tensor, reverse: bool) -> Tensor:
    """The permutation that sorts the last dimension."""
    size = extent(x, x.ndim - 1)
    before = descending if reverse else ascending
    if size.is_constant and size.constant > COUNTING_LIMIT:
        return _merged(x, size.constant, before, _last_value(x.dtype, reverse))
    return _counted(x, before)


def _last_value(kind: DType, reverse: bool) -> float:
    """What no value comes after; of equal ones the earlier comes first, so padding stays last."""
    if reverse:
        return kind.lowest
    return float("nan") if kind.is_float else kind.highest


def _counted(x: Tensor, before: Order) -> Tensor:
    """Scatter each position to the number of elements that come before it."""
    last = x.ndim
    here, other = x.unsqueeze(-1), x.unsqueeze(-2)
    shape = [*x.shape, x.shape[-1]]
    earlier = lt(x.graph.iota(shape, Index.of(f"i{last}") - Index.of(f"i{last - 1}")), 0)
    ahead = where(earlier, logical_not(before(here, other)), before(other, here))
    rank = reduce("sum", ahead.cast(i64), -1)
    return full_like(rank, 0)._scatter(rank, positions(x, last - 1), last - 1, "set")


# ---- merging sorted blocks


def _merged(x: Tensor, size: int, before: Order, last: float) -> Tensor:
    """The permutation: sort blocks by counting, then find the place of every element in every other
    block by bisection; its rank is the sum. `last` is a value that no other comes after."""
    block = 1 << round(math.log2(8 * math.sqrt(size)))
    blocks = -(-size // block)
    padded = x.pad([(0, 0)] * (x.ndim - 1) + [(0, blocks * block - size)], last)
    split = padded.unflatten(-1, (blocks, block))
    order = _counted(split, before)
    values = split._gather(order, split.ndim - 1).flatten(-2, -1)
    rank = reduce("sum", _places(values, blocks, block, before), -1)
    origin = add(order, _block_start(order, block)).flatten(-2, -1)
    sorted_origin = full_like(rank, 0)._scatter(rank, origin, rank.ndim - 1, "set")
    return sorted_origin.narrow(-1, 0, size)


def _block_start(order: Tensor, block: int) -> Tensor:
    return order.graph.iota(order.shape, Index.of(f"i{order.ndim - 2}") * block)


def _places(values: Tensor, blocks: int, block: int, before: Order) -> Tensor:
    """(..., blocks * block, blocks): how many elements of each block stand before each element, for
    the values of sorted blocks (..., blocks * block)."""
    graph, last = values.graph, values.ndim
    shape = [*values.shape, blocks]
    here, there = Index.of(f"i{last - 1}") // block, Index.of(f"i{last}")
    wanted = values.unsqueeze(-1).expand(shape)
    earlier = lt(graph.iota(shape, there - here), 0)
    start = graph.iota(shape, there * block)
    place = full_like(start, 0)
    for step in [block >> n for n in range(1, block.bit_length())] + [1]:
        index = add(start, add(place, step - 1)).flatten(-2, -1)
        probe = values._gather(index, last - 1).reshape(shape)
        ahead = where(earlier, logical_not(before(wanted, probe)), before(probe, wanted))
        place = where(ahead, add(place, step), place)
    own = graph.iota(shape, Index.of(f"i{last - 1}") - here * block)
    return where(eq(graph.iota(shape, there - here), 0), own, place)


# ---- selections


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:
    """The k largest (or smallest) elements in order, and where they stand.

    >>> values, indices = ops.topk(cx.constant([3.0, 1.0, 2.0]), 2)
    >>> values.numpy(), indices.numpy()
    (array([3., 2.], dtype=float32), array([0, 2]))
    """
    if x.ndim == 0:
        return Extreme(x, full_like(x, 0, i64))
    dim = dim_of(x, dim)
    size = extent(x, dim)
    if k < 0 or (size.is_constant and k > size.constant):
        raise ShapeError(f"topk: {k} elements of a dimension of size {size}")
    if _few(k, size):
        indices = _successive(x.movedim(dim, -1), k, largest).movedim(-1, dim)
    else:
        indices = argsort(x, dim, descending=largest).narrow(dim, 0, k)
    return Extreme(x._gather(indices, dim), indices)


def _few(k: int, size: Index) -> bool:
    """k maxima are found, and their kernels compiled, in less time than all is sorted."""
    short = size.is_constant and size.constant <= 3 * k
    return 0 < k <= (MAXIMA_IN_ONE if short else TOPK_BY_MAXIMA)


def _successive(x: Tensor, k: int, largest: bool) -> Tensor:
    """k times the first extreme element of those not taken yet."""
    last = x.ndim - 1
    at, taken = positions(x, last), full_like(x, False, boolean)
    end = size_value(x.graph, extent(x, last) - 1, i64)
    found: list[Tensor] = []
    for _ in range(k):
        best = _best_of_rest(x, taken, largest)
        index = reduce("min", where(logical_and(best, logical_not(taken)), at, end), last)
        found.append(index)
        taken = logical_or(taken, eq(at, index.unsqueeze(-1)))
    return stack(found, -1)


def _best_of_rest(x: Tensor, taken: Tensor, largest: bool) -> Tensor:
    """Whether each element equals the extreme of those not taken."""
    last = x.ndim - 1
    if largest:
        rest = where(taken, full_like(x, x.dtype.lowest), x)
        hit = eq(x, reduce("max", rest, last, keepdim=True))
        return logical_or(hit, isnan(x)) if x.dtype.is_float else hit
    rest = where(taken, full_like(x, x.dtype.highest), x)
    if not x.dtype.is_float:
        return eq(x, reduce("min", rest, last, keepdim=True))
    # NaN counts as largest: only when nothing else is left is it the smallest
    number = logical_and(logical_not(isnan(x)), logical_not(taken))
    some = reduce("max", number, last, keepdim=True)
    rest = where(number, x, full_like(x, x.dtype.highest))
    hit = eq(x, reduce("min", rest, last, keepdim=True))
    return where(some, hit, isnan(x))


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """The k-th smallest element (counted from 1), and where it stands.

    >>> value, place = ops.kthvalue(cx.constant([3.0, 1.0, 2.0]), 2)
    >>> float(value.numpy()), int(place.numpy())
    (2.0, 2)
    """
    dim = dim_of(x, dim)
    ordered = sort(x, dim)
    picked = [part.narrow(dim, k - 1, 1) for part in ordered]
    return Extreme(*(picked if keepdim else [part.squeeze(dim) for part in picked]))


def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | Extreme:
    """The middle element (the lower of two); NaN if there is one, or of nothing. With dim: (values,
    indices).

    >>> ops.median(cx.constant([3.0, 1.0, 2.0, 4.0])).numpy()
    array(2., dtype=float32)
    """
    if dim is None and any(size == 0 for size in x.node.shape):
        return full_like(x.sum(), math.nan).cast(x.dtype)
    if dim is None:
        return as_middle(_median(x.flatten(), 0, False).values, x)
    return _median(x, dim_of(x, dim), keepdim)


def as_middle(value: Tensor, x: Tensor) -> Tensor:
    """The middle of all elements: the slope is shared by those that equal it."""
    return named(value, Composite("middle", (x.node,), ())) if x.dtype.is_float else value


def _median(x: Tensor, dim: int, keepdim: bool) -> Extreme:
    middle = kthvalue(x, (int(extent(x, dim)) + 1) // 2, dim, keepdim=True)
    values, indices = middle
    if x.dtype.is_float:
        missing = reduce("max", isnan(x), dim, keepdim=True)
        size = size_value(x.graph, count(x, [dim]) - 1, i64)
        first = reduce("min", where(isnan(x), positions(x, dim), size), dim, keepdim=True)
        values, indices = where(missing, float("nan"), values), where(missing, first, indices)
    parts = [values, indices]
    return Extreme(*(parts if keepdim else [part.squeeze(dim) for part in parts]))


def quantile_positions(q: float, size: int) -> tuple[int, float]:
    """Index below the q-quantile of `size` sorted elements, and the fraction above it."""
    at = q * (size - 1)
    return int(at), at - int(at)


def quantile(x: Tensor, q: float, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The q-quantile, interpolated linearly; NaN if there is one.

    >>> ops.quantile(cx.constant([1.0, 2.0, 3.0, 4.0]), 0.5).numpy()
    array(2.5, dtype=float32)
    """
    if dim is None:
        return quantile(x.flatten(), q, 0)
    dim = dim_of(x, dim)
    low, weight = quantile_positions(q, int(extent(x, dim)))
    ordered = sort(x, dim).values
    first = ordered.narrow(dim, low, 1)
    high = min(low + 1, int(extent(x, dim)) - 1)
    value = add(first, (ordered.narrow(dim, high, 1) - first) * weight)
    missing = reduce("max", ne(x, x), dim, keepdim=True)
    value = where(missing, float("nan"), value)
    return value if keepdim else value.squeeze(dim)
