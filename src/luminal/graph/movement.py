"""Movement of a tensor's elements: each method is one view, an index map without computation.

A view says from where each element of the result comes: `index[d]`, over the positions i0, i1, ...
of the result, is the index along dimension d of the source. Chains of views become one map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from .index import Index
from .indexing import basic_view
from .infer import text
from .node import Node, Number, View
from .parse import DimLike
from .reshape import infer_size, new_shape, reshape
from .views import ONE, ZERO, along, modulo, place, positions, product, selection

if TYPE_CHECKING:
    from .graph import Graph
    from .tensor import Tensor


def flat(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """f(1, 2) and f((1, 2)) mean the same."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        return tuple(given[0])
    return given


class Movement:
    """What `Tensor` can do without computing. Dimensions are counted from either end."""

    __slots__ = ()
    graph: Graph
    node: Node

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    def read(
        self, shape: Sequence[DimLike], index: Sequence[Index], conditions: Sequence[Index] = (),
        fill: Number | None = None,
    ) -> Tensor:  # fmt: skip
        """Any movement: out[i0, i1, ...] = self[index] where every condition is >= 0, else fill.

        The index must lie inside the tensor wherever the conditions hold.
        """
        return self._view(View(self.graph.shape(shape), tuple(index), tuple(conditions), fill))

    # ---- dimensions as they are

    def permute(self, *dims: Any) -> Tensor:
        """Dimension d of the result is dimension dims[d]."""
        order = [self._dim(dim) for dim in flat(dims)]
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(f"permute: {tuple(order)} is no order of the dimensions of {self}")
        return self._view(selection(self.node.shape, order))

    def transpose(self, first: int, second: int) -> Tensor:
        order = list(range(self.ndim))
        first, second = self._dim(first), self._dim(second)
        order[first], order[second] = second, first
        return self.permute(order)

    def movedim(self, source: int, target: int) -> Tensor:
        source, target = self._dim(source), self._dim(target)
        order = [dim for dim in range(self.ndim) if dim != source]
        return self.permute(order[:target] + [source] + order[target:])

    @property
    def T(self) -> Tensor:
        """All dimensions in reverse order."""
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """The last two dimensions swapped."""
        return self.transpose(-1, -2)

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Tensor:
        """Drop dimensions of size 1: all, or those given that have it."""
        given = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        gone = {d for d in map(self._dim, given) if self.node.shape[d] == 1}
        kept = [d for d in range(self.ndim) if d not in gone]
        return self._view(selection(self.node.shape, kept))

    def unsqueeze(self, dim: int) -> Tensor:
        """A new dimension of size 1."""
        new, shape = self._dim(dim, self.ndim + 1), self.node.shape
        index = tuple(place(d if d < new else d + 1) for d in range(self.ndim))
        return self._view(View((*shape[:new], ONE, *shape[new:]), index))

    def expand(self, *sizes: Any) -> Tensor:
        """Repeat dimensions of size 1; -1 keeps a size; new dimensions come first."""
        wanted = [self.graph.size(size) for size in flat(sizes)]
        new = len(wanted) - self.ndim
        if new < 0:
            raise ShapeError(f"expand: {text(tuple(wanted))} has fewer dimensions than {self}")
        index = []
        for dim, size in enumerate(self.node.shape, new):
            wanted[dim] = size if wanted[dim] == -1 else wanted[dim]
            if size != 1 and size is not wanted[dim]:
                raise ShapeError(f"expand: {self} does not broadcast to {text(tuple(wanted))}")
            index.append(ZERO if size == 1 else place(dim))
        return self._view(View(tuple(wanted), tuple(index)))

    broadcast_to = expand

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    # ---- another shape for the same elements

    def reshape(self, *sizes: Any) -> Tensor:
        """The same elements in row-major order under another shape; one size may be -1."""
        old = self.node.shape
        wanted = new_shape(self.graph, old, tuple(map(self.graph.size, flat(sizes))))
        return self._view(reshape(old, wanted))

    view = reshape

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Merge the dimensions start .. end into one."""
        if not self.ndim:
            return self.reshape(1)
        first, last, shape = self._dim(start), self._dim(end), self.node.shape
        return self.reshape(*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[DimLike]) -> Tensor:
        """Split a dimension into several; one size may be -1."""
        dim, shape = self._dim(dim), self.node.shape
        part = infer_size(self.graph, (shape[dim],), tuple(map(self.graph.size, sizes)))
        return self.reshape(*shape[:dim], *part, *shape[dim + 1 :])

    # ---- some of the elements

    def basic(self, key: Any) -> Tensor:
        """self[key], where no item of the key is an array or a tensor."""
        return self._view(basic_view(self.graph, self.node.shape, key))

    def select(self, dim: int, index: DimLike) -> Tensor:
        """One element along a dimension, which is dropped."""
        return self.basic((slice(None),) * self._dim(dim) + (index,))

    def narrow(self, dim: int, start: DimLike, length: DimLike) -> Tensor:
        """The elements start .. start + length - 1 along a dimension; all must be there."""
        dim, first, count = self._dim(dim), self.graph.size(start), self.graph.size(length)
        for bound in (first, count, self.node.shape[dim] - first - count):
            self.graph.require(bound, f"narrow: {first} .. {first + count} must lie inside {self}")
        return self._view(along(self.node.shape, dim, count, place(dim) + first))

    def diagonal(self, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
        """The elements (i, i + offset) of two dimensions, as a new last dimension."""
        row, column, shape = self._dim(first), self._dim(second), self.node.shape
        rows, columns = shape[row] + min(0, offset), shape[column] - max(0, offset)
        length = self.graph.space.simplify(rows.minimum(columns).maximum(0))
        others = selection(shape, [d for d in range(self.ndim) if d not in (row, column)])
        index, here = list(others.index), place(len(others.shape))
        index[row], index[column] = here - min(0, offset), here + max(0, offset)
        return self._view(View((*others.shape, length), tuple(index)))

    # ---- elements backwards, again, further apart

    def flip(self, *dims: Any) -> Tensor:
        """Backwards along these dimensions."""
        shape, index = self.node.shape, list(positions(self.ndim))
        for dim in map(self._dim, flat(dims)):
            index[dim] = shape[dim] - 1 - index[dim]
        return self._view(View(shape, tuple(index)))

    def roll(self, shift: DimLike, dim: int) -> Tensor:
        """Element i goes to (i + shift) mod n along a dimension."""
        dim, shape = self._dim(dim), self.node.shape
        index = modulo(place(dim) - self.graph.size(shift), shape[dim])
        return self._view(along(shape, dim, shape[dim], index))

    def repeat(self, *counts: Any) -> Tensor:
        """The tensor side by side, counts[d] times along dimension d (as torch.Tensor.repeat)."""
        wanted = [self.graph.size(count) for count in flat(counts)]
        new = len(wanted) - self.ndim
        if new < 0:
            raise ShapeError(f"repeat: {len(wanted)} counts for {self}")
        padded = (ONE,) * new + self.node.shape
        index = tuple(modulo(place(dim), size) for dim, size in enumerate(padded))
        return self._view(View(tuple(s * n for s, n in zip(padded, wanted)), index[new:]))

    def tile(self, *counts: Any) -> Tensor:
        """As repeat; missing counts at the front are 1."""
        wanted = flat(counts)
        return self.repeat((1,) * (self.ndim - len(wanted)) + wanted)

    def repeat_interleave(self, count: DimLike, dim: int) -> Tensor:
        """Each element `count` times in a row along a dimension."""
        times, dim, shape = self.graph.size(count), self._dim(dim), self.node.shape
        index = ZERO if times == 0 else place(dim) // times
        return self._view(along(shape, dim, shape[dim] * times, index))

    def dilate(self, step: DimLike, dim: int, value: Number = 0) -> Tensor:
        """step - 1 elements of `value` between neighbours along a dimension."""
        dim, size, shape = self._dim(dim), self.graph.size(step), self.node.shape
        here = place(dim)
        wide = along(shape, dim, (shape[dim] - 1) * size + 1, here // size)
        return self._view(View(wide.shape, wide.index, (-(here % size),), self._number(value)))

    def pad(self, widths: Sequence[Any], value: Number = 0) -> Tensor:
        """`value` around the tensor: a (before, after) pair for each dimension, or PyTorch's flat
        list (last dimension first). Negative widths cut off."""
        pairs = [tuple(w) if isinstance(w, (tuple, list)) else w for w in widths]
        if not all(isinstance(pair, tuple) for pair in pairs):
            last_first = list(zip(pairs[::2], pairs[1::2]))
            pairs = [(0, 0)] * (self.ndim - len(last_first)) + last_first[::-1]
        if len(pairs) != self.ndim:
            raise ShapeError(f"pad: {len(pairs)} pairs of widths for {self}")
        sizes, index, conditions = [], [], []
        for dim, (size, pair) in enumerate(zip(self.node.shape, pairs)):
            before, after = map(self.graph.size, pair)
            sizes.append(size + before + after)
            index.append(place(dim) - before)
            conditions += [index[-1], size - 1 - index[-1]]
        return self.read(sizes, index, conditions, self._number(value))

    # ---- windows

    def unfold(self, dim: int, size: DimLike, step: DimLike = 1) -> Tensor:
        """Windows along a dimension, as a new last dimension (as torch.Tensor.unfold)."""
        return self.windows([dim], [size], [step])

    def windows(
        self, dims: Sequence[int], sizes: Sequence[DimLike], steps: Sequence[DimLike],
        dilations: Sequence[DimLike] | None = None,
    ) -> Tensor:  # fmt: skip
        """Sliding windows: each of `dims` counts windows, new last dimensions walk inside them."""
        shape, index = list(self.node.shape), list(positions(self.ndim))
        spread = dilations or [1] * len(dims)
        for tap, (dim, *given) in enumerate(zip(map(self._dim, dims), sizes, steps, spread)):
            size, step, dilation = map(self.graph.size, given)
            room = self.node.shape[dim] - dilation * (size - 1) - 1
            self.graph.require(room, f"a window of {size} (dilation {dilation}) must fit {self}")
            shape[dim] = room // step + 1
            shape.append(size)
            index[dim] = index[dim] * step + place(self.ndim + tap) * dilation
        return self._view(View(tuple(shape), tuple(index)))

    # ---- help for the above

    def _view(self, view: View) -> Tensor:
        return self.graph.wrap(self.graph.view(self.node, view))

    def _dim(self, dim: int, count: int | None = None) -> int:
        """A dimension counted from the front."""
        rank = self.ndim if count is None else count
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShapeError(f"no dimension {dim} in {self}")
        return dim % rank

    def _number(self, value: Number) -> Number:
        """A fill value as the dtype holds it."""
        literal: Number = self.graph.literal(value, self.node.dtype).node.attribute
        return literal
