"""Movement: views, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import boolean
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops import movement
from ....ops.base import Size, dim_of, extent, result_type, same_size, tensor_of
from ....ops.slicing import clamped
from ..arrays import inverse
from .base import rule, same, source

if TYPE_CHECKING:
    from ..record import Recorder

END = 2**63 - 1  # ATen's word for "to the end"

same("permute.default permute_copy.default", ops.permute)
same("unsqueeze.default", ops.unsqueeze)
same("expand.default", ops.expand)
same("repeat.default", movement.repeat)
same("select.int", ops.select)
same("split.Tensor split_with_sizes.default", ops.split)
same("unbind.int", ops.unbind)
same("flip.default", ops.flip)
same("diagonal.default", ops.diagonal)
same("stack.default", ops.stack)
same("tril.default", ops.tril)
same("triu.default", ops.triu)
same("roll.default", ops.roll)


@rule("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default",
      "contiguous.default", "lift_fresh.default", "_conj.default", "_conj_physical.default",
      "conj_physical.default", "resolve_conj.default", "resolve_neg.default")  # fmt: skip
def clone(x: Tensor) -> Tensor:
    return x


@rule("cat.default")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Vectors of no elements do not count, whatever the others' rank."""
    real = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    kind = result_type(*tensors)
    return ops.cat([t.cast(kind) for t in real], dim)


@rule("view.default", "_unsafe_view.default", "reshape.default", "_reshape_copy.default",
      "view_copy.default")  # fmt: skip
def view(x: Tensor, shape: Sequence[Size]) -> Tensor:
    if any(size == 0 for size in x.shape):
        shape = [0 if size == -1 else size for size in shape]
    return x.reshape(tuple(shape))


@rule("view.dtype")
def view_as(x: Tensor, kind: Any) -> Tensor:
    if kind is not x.dtype:
        raise Unsupported("bits read as another dtype")
    return x


@rule("squeeze.dim", "squeeze.dims", "squeeze.default")
def squeeze(x: Tensor, dims: int | Sequence[int] | None = None) -> Tensor:
    if not x.ndim:
        return x
    listed = range(x.ndim) if dims is None else (dims,) if isinstance(dims, int) else dims
    return x.squeeze([dim_of(x, d) for d in listed])


@rule("transpose.int")
def transpose(x: Tensor, first: int, second: int) -> Tensor:
    return x.transpose(first, second) if x.ndim else x


@rule("t.default")
def t(x: Tensor) -> Tensor:
    return x.T if x.ndim == 2 else x


@rule("slice.Tensor")
def slice_of(
    x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Tensor:
    dim = dim_of(x, dim)
    stop = None if isinstance(end, int) and end >= END else end
    first, last = (_bound(x, dim, e) if isinstance(e, Index) else e for e in (start, stop))
    return x[(slice(None),) * dim + (slice(first, last, step),)]


@rule("narrow_copy.default", "narrow.default")
def narrow(x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    dim = dim_of(x, dim)
    first = extent(x, dim) + start if isinstance(start, int) and start < 0 else start
    return x.narrow(dim, first, length)


@rule("unfold.default")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    return x.unfold(dim, size, step) if x.ndim else x.reshape(1)


@rule("constant_pad_nd.default")
def constant_pad(x: Tensor, widths: Sequence[Size], value: float = 0) -> Tensor:
    if x.dtype.is_integer:
        value = int(value)
    return x.pad(list(widths), value)


@source("as_strided.default")
def as_strided(
    at: Recorder, x: Tensor, shape: Sequence[Size], strides: Sequence[Size], offset: Size = 0
) -> Tensor:
    index = Index.of(offset or 0)
    for d, stride in enumerate(strides):
        index = index + Index.of(f"i{d}") * Index.of(stride)
    return x.permute(at.memory_order()).reshape(-1).read(tuple(shape), [index])


# ---- a tensor with a part replaced


@source("as_strided_scatter.default")
def as_strided_scatter(
    at: Recorder, x: Tensor, values: Tensor, shape: Sequence[Size], strides: Sequence[Size],
    offset: Size = 0,
) -> Tensor:  # fmt: skip
    order = at.memory_order()
    place = Index.of(offset or 0)
    for d, stride in enumerate(strides):
        place = place + Index.of(f"i{d}") * Index.of(stride)
    places = x.graph.iota(tuple(shape), place)
    written = values.cast(x.dtype).reshape(-1)
    laid = x.permute(order)
    made = ops.scatter(laid.reshape(-1), 0, places.reshape(-1), written)
    return made.reshape(laid.shape).permute(inverse(order))


@rule("select_scatter.default")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    dim = dim_of(x, dim)
    if isinstance(index, int) and index < 0:
        first: Size = extent(x, dim) + index
    else:
        first = index
    return slice_scatter(x, source.unsqueeze(dim), dim, first, Index.of(first) + 1)


@rule("slice_scatter.default")
def slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """x with a slice replaced: what was written where the position is one of the slice's."""
    dim = dim_of(x, dim)
    size = extent(x, dim)
    first = _bound(x, dim, 0 if start is None else start)
    count = extent(source, dim)
    if same_size(count, size) and step == 1:
        return source
    here = Index.of(f"i{dim}") - first
    inside = [here, (count - 1) * step - here]
    if step != 1:
        inside += [-(here % step)]
    index = [Index.of(f"i{d}") for d in range(x.ndim)]
    index[dim] = here // step
    written = source.cast(x.dtype).read(x.shape, index, inside, 0)
    there = tensor_of(x.graph, True, boolean).expand(source.shape)
    return ops.where(there.read(x.shape, index, inside, False), written, x)


def _bound(x: Tensor, dim: int, value: Size) -> Index:
    """An end of a slice as ATen reads it: negative ones count from the end, all are cut to x. Of a
    size of a run PyTorch's guards fix the sign."""
    graph, size, bound = x.graph, extent(x, dim), Index.of(value)
    if bound.evaluate(graph.space.usual(2)) < 0:
        graph.require(-1 - bound, f"slice bound {bound} must be negative")
        bound = size + bound
    return clamped(graph, bound, Index.of(0), size)


@rule("diagonal_scatter.default")
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, a: int = 0, b: int = 1) -> Tensor:
    a, b = dim_of(x, a), dim_of(x, b)
    row, column = Index.of(f"i{a}"), Index.of(f"i{b}")
    on = column - row - offset
    rest = [Index.of(f"i{d}") for d in range(x.ndim) if d not in (a, b)]
    along = row if offset >= 0 else column
    written = source.cast(x.dtype).read(x.shape, [*rest, along], [on, -on], 0)
    there = tensor_of(x.graph, True, boolean).expand(source.shape)
    return ops.where(there.read(x.shape, [*rest, along], [on, -on], False), written, x)


@rule("copy.default")
def copy(x: Tensor, source: Tensor) -> Tensor:
    return source.cast(x.dtype).expand(x.shape)
