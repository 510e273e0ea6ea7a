"""The same elements in row-major order under another shape.

One size may be -1, and sizes may contain floors (s // 4), which a run must then satisfy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.infer import text
from ..graph.node import Shape, View, position
from ..graph.views import ONE, ZERO, product


def new_shape(graph: Graph, old: Shape, sizes: Shape) -> Shape:
    """The shape that these sizes mean. Raises ShapeError if they do not fit."""
    wanted = infer_size(graph, old, sizes)
    same = product(wanted) is product(old) or (_empty(old) and _empty(wanted))
    if not same and not _require_division(graph, old, wanted):
        raise ShapeError(f"reshape: {text(old)} has not as many elements as {text(wanted)}")
    return wanted


def infer_size(graph: Graph, old: Shape, sizes: Shape) -> Shape:
    """Sizes with -1 replaced by what is left of the number of elements."""
    unknown = [dim for dim, size in enumerate(sizes) if size == -1]
    if not unknown:
        return sizes
    left, given = list(old), [size for size in sizes if size != -1]
    for size in list(given):
        if size in left:
            left.remove(size)
            given.remove(size)
    known = product(given)
    if len(unknown) > 1 or known == 0:
        raise ShapeError(f"reshape: {text(sizes)} of {text(old)}: only one size can be inferred")
    quotient = graph.space.floor(product(left), known)
    return tuple(quotient if size == -1 else size for size in sizes)


def _empty(shape: Shape) -> bool:
    return any(size == 0 for size in shape)


def _require_division(graph: Graph, old: Shape, wanted: Shape) -> bool:
    """A size with a floor in it (s // 4): as many elements if it divides, which is required."""
    if not any("//" in size.text for size in wanted + old):
        return False
    difference = product(old) - product(wanted)
    for side in (difference, -difference):
        graph.require(side, f"reshape: {text(old)} must have as many elements as {text(wanted)}")
    return True


def reshaped(shape: Shape, sizes: Shape) -> View:
    """Dimensions are matched in groups of equal products; only inside a group is arithmetic."""
    if _empty(shape):
        return View(sizes, (ZERO,) * len(shape))
    index: list[Index] = []
    for olds, news in _groups(shape, sizes):
        flat = ZERO
        for dim in news:
            flat = flat * sizes[dim] + position(dim)
        index += _digits(flat, [shape[dim] for dim in olds])
    return View(sizes, tuple(index))


def _digits(flat: Index, sizes: Sequence[Index]) -> list[Index]:
    """The row-major position `flat` as one index for each size."""
    digits: list[Index] = []
    stride, quotient = ONE, flat
    for size in reversed(sizes[1:]):
        stride = stride * size
        above = flat // stride
        digits.append(quotient - above * size)
        quotient = above
    return ([quotient] if sizes else []) + digits[::-1]


def _groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Cut two shapes into the most pieces whose products are pairwise equal."""
    ends = {product(new[:end]): end for end in range(len(new), 0, -1)}
    groups, old_start, new_start = [], 0, 0
    total = ONE
    for end, size in enumerate(old, 1):
        total = total * size
        new_end = ends.get(total)
        last = end == len(old)
        if last:
            new_end = len(new)
        if new_end is not None and (new_end > new_start or last):
            groups.append((range(old_start, end), range(new_start, new_end)))
            old_start, new_start = end, new_end
    return groups
