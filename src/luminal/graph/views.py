"""Movement as index maps: each function gives the View of one movement of a shape.

A view says from where each element of the result comes: `index[d]`, over the positions i0, i1, ...
of the result, is the index along dimension d of the source. Views compose by substitution, so a
chain of movements is one map; `normal` writes it in its simplest form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ShapeError
from .index import Index
from .infer import text
from .node import Number, Shape, View, position
from .space import Space

ZERO, ONE = Index.of(0), Index.of(1)


def positions(count: int) -> tuple[Index, ...]:
    """i0, i1, ... of a result with this many dimensions."""
    return tuple(map(place, range(count)))


def place(dim: int) -> Index:
    """The position along a dimension of the result."""
    return Index.of(position(dim))


def number_key(value: Number | None) -> tuple[str, str]:
    """Tells numbers apart that compare equal: 1, 1.0, True; 0.0 and -0.0. Equal for NaNs."""
    return type(value).__name__, repr(value)


def product(sizes: Sequence[Index]) -> Index:
    total = ONE
    for size in sizes:
        total = total * size
    return total


def proven_empty(shape: Shape) -> bool:
    return any(size == 0 for size in shape)


# ---- normal form and composition


def normal(space: Space, view: View) -> View | None:
    """The view with simplified indices and only the conditions that are not proven.

    `space` knows the positions of the view's shape. None where some condition never holds.
    """
    ones = {position(d): ZERO for d, size in enumerate(view.shape) if size == 1}
    index = tuple(space.simplify(space.substitute(i, ones)) for i in view.index)
    conditions = space.domain(space.simplify(space.substitute(c, ones)) for c in view.conditions)
    if conditions is None:
        return None
    conditions = _irredundant(space, conditions)
    return View(view.shape, index, conditions, view.fill if conditions else None)


def _irredundant(space: Space, conditions: tuple[Index, ...]) -> tuple[Index, ...]:
    """Without those that another one implies."""
    kept = list(conditions)
    for condition in conditions:
        others = [c for c in kept if c is not condition]
        if condition in kept and space.implies(others, condition):
            kept = others
    return tuple(kept)


def compose(space: Space, outer: View, inner: View) -> View | None:
    """The outer view of what the inner view gives; None where two fills differ.

    `space` knows the positions of the outer view's shape.
    """
    if outer.conditions and inner.conditions and number_key(outer.fill) != number_key(inner.fill):
        return None
    mapping = {position(dim): index for dim, index in enumerate(outer.index)}
    conditions = outer.conditions + tuple(space.substitute(c, mapping) for c in inner.conditions)
    index = tuple(space.substitute(i, mapping) for i in inner.index)
    fill = outer.fill if outer.conditions else inner.fill
    return View(outer.shape, index, conditions, fill)


def is_identity(view: View, source: Shape) -> bool:
    """Whether a view in normal form changes nothing."""
    if view.shape != source or view.conditions:
        return False
    return all(
        index is (ZERO if size == 1 else place(dim))
        for dim, (index, size) in enumerate(zip(view.index, source))
    )


# ---- axes as they are: permute, expand, squeeze, repeat


def permute(shape: Shape, order: Sequence[int]) -> View:
    """Dimension d of the result is dimension order[d] of the source."""
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"permute: {tuple(order)} is no order of the dimensions of {text(shape)}")
    index = [ZERO] * len(shape)
    for dim, source in enumerate(order):
        index[source] = place(dim)
    return View(tuple(shape[source] for source in order), tuple(index))


def expand(shape: Shape, sizes: Sequence[Index]) -> View:
    """Repeat dimensions of size 1; new dimensions come first. -1 keeps a size."""
    new = len(sizes) - len(shape)
    if new < 0:
        raise ShapeError(f"expand: {text(tuple(sizes))} has fewer dimensions than {text(shape)}")
    result, index = list(sizes), []
    for dim, size in enumerate(shape, new):
        if sizes[dim] == -1:
            result[dim] = size
        elif size != 1 and size is not sizes[dim]:
            raise ShapeError(f"expand: {text(shape)} does not broadcast to {text(tuple(sizes))}")
        index.append(ZERO if size == 1 else place(dim))
    return View(tuple(result), tuple(index))


def repeat(shape: Shape, counts: Sequence[Index]) -> View:
    """The source side by side, counts[d] times along d; new dimensions come first (as in torch)."""
    new = len(counts) - len(shape)
    if new < 0:
        raise ShapeError(f"repeat: {len(counts)} counts for a tensor of shape {text(shape)}")
    padded = (ONE,) * new + shape
    result = tuple(size * count for size, count in zip(padded, counts))
    index = tuple(_modulo(place(dim), size) for dim, size in enumerate(padded))
    return View(result, index[new:])


def squeeze(shape: Shape, dims: Sequence[int]) -> View:
    """Drop these dimensions, all of size 1."""
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    index = [ZERO] * len(shape)
    for number, dim in enumerate(kept):
        index[dim] = place(number)
    return View(tuple(shape[dim] for dim in kept), tuple(index))


def unsqueeze(shape: Shape, dim: int) -> View:
    """A new dimension of size 1 before dimension `dim`."""
    index = tuple(place(d if d < dim else d + 1) for d in range(len(shape)))
    return View(shape[:dim] + (ONE,) + shape[dim:], index)


# ---- one dimension changed: `along` replaces the index of one dimension


def along(shape: Shape, dim: int, size: Index, index: Index) -> View:
    """Dimension `dim` gets a new size and reads the source at `index` (over its own position)."""
    indices = positions(len(shape))
    return View(
        shape[:dim] + (size,) + shape[dim + 1 :], indices[:dim] + (index,) + indices[dim + 1 :]
    )


def flip(shape: Shape, dims: Sequence[int]) -> View:
    """Backwards along these dimensions."""
    index = list(positions(len(shape)))
    for dim in dims:
        index[dim] = shape[dim] - 1 - index[dim]
    return View(shape, tuple(index))


def roll(shape: Shape, shift: Index, dim: int) -> View:
    """Element i goes to (i + shift) mod n."""
    return along(shape, dim, shape[dim], _modulo(place(dim) - shift, shape[dim]))


def _modulo(index: Index, size: Index) -> Index:
    """index mod size; 0 where the size is 0 and nothing is read."""
    return ZERO if size == 0 else index % size


def repeat_interleave(shape: Shape, count: Index, dim: int) -> View:
    """Each element `count` times in a row."""
    index = ZERO if count == 0 else place(dim) // count
    return along(shape, dim, shape[dim] * count, index)


def pad(shape: Shape, widths: Sequence[tuple[Index, Index]], fill: Number) -> View:
    """(before, after) elements of `fill` at each dimension; negative widths cut off."""
    sizes, indices, conditions = [], [], []
    for dim, (size, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        index = place(dim) - before
        sizes.append(size + before + after)
        indices.append(index)
        conditions += [index, size - 1 - index]
    return View(tuple(sizes), tuple(indices), tuple(conditions), fill)


def dilate(shape: Shape, dim: int, step: Index, fill: Number) -> View:
    """step - 1 elements of `fill` between neighbours along a dimension."""
    here = place(dim)
    view = along(shape, dim, (shape[dim] - 1) * step + 1, here // step)
    return replace(view, conditions=(-(here % step),), fill=fill)


# ---- windows and diagonals


def windows(
    shape: Shape, dims: Sequence[int], sizes: Sequence[Index], steps: Sequence[Index],
    dilations: Sequence[Index],
) -> View:  # fmt: skip
    """Sliding windows: each of `dims` counts windows, new last dimensions walk inside them."""
    rank = len(shape)
    result = list(shape) + list(sizes)
    index = list(positions(rank))
    for tap, (dim, size, step, dilation) in enumerate(zip(dims, sizes, steps, dilations)):
        reach = dilation * (size - 1) + 1
        result[dim] = (shape[dim] - reach) // step + 1
        index[dim] = index[dim] * step + place(rank + tap) * dilation
    return View(tuple(result), tuple(index))


def diagonal(shape: Shape, offset: int, first: int, second: int) -> View:
    """The elements (i, i + offset) of two dimensions, as a new last dimension."""
    others = [dim for dim in range(len(shape)) if dim not in (first, second)]
    rows, columns = shape[first] + min(0, offset), shape[second] - max(0, offset)
    length = rows.minimum(columns).maximum(0)
    index = [ZERO] * len(shape)
    for number, dim in enumerate(others):
        index[dim] = place(number)
    here = place(len(others))
    index[first], index[second] = here - min(0, offset), here + max(0, offset)
    return View(tuple(shape[dim] for dim in others) + (length,), tuple(index))


# ---- reshape


def reshape(shape: Shape, sizes: Shape) -> View:
    """The same elements in row-major order under another shape of as many elements.

    Dimensions are matched in groups of equal products; only inside a group is there arithmetic.
    """
    if proven_empty(shape):
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
