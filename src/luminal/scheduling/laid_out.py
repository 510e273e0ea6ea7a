"""The kernels that make an operand as its reader has laid it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from ..graph.index import Index
from ..kernel.domains import derive_domains
from ..kernel.kernel import Buffer, Constant, Guard, Kernel, Load, Store, Value
from ..kernel.layout import counts, outermost
from ..kernel.merge import merge_axes, substituted
from ..kernel.schedule import Layout


def makers_apart(parts: Sequence[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Those of some kernels that make operands for others, and the others."""
    free = {b.name for part in parts for b in part.buffers if b.constant}
    own = [{b.name for b in part.buffers if not b.constant} & {*part.outputs} for part in parts]
    makers = [part for part, outputs in zip(parts, own) if outputs & free]
    return makers, [part for part in parts if part not in makers]


def laid_out(maker: Kernel, layouts: Mapping[Buffer, Layout]) -> list[Kernel]:
    """The kernels that make an operand as its reader has laid it out: its dimensions are each one
    or several neighbouring ones of the maker's. Where a digit ends inside one of those the operand
    is made row by row, and then turned."""
    (name,) = maker.outputs
    read, layout = next((b, layout) for b, layout in layouts.items() if b.name == name)
    digits = _digits(maker.buffer(name).shape, read.shape, layout) if layout else ()
    if digits is not None:
        return [derive_domains(merge_axes(_in_digits(maker, digits)))]
    rows = f"{name}_rows"
    axes = {f"d{d}": extent for d, extent in enumerate(read.shape)}
    index, made = tuple(map(Index.of, axes)), replace(read, constant=False)
    copy = Value(name, tuple(axes), Load(rows, index, read.dtype), read.dtype,
                 store=Store(name, index))  # fmt: skip
    buffers = (replace(made, name=rows), made)
    turn = _in_digits(replace(maker, axes=axes, buffers=buffers, values=(copy,)), layout)
    return [derive_domains(merge_axes(each)) for each in (_renamed(maker, name, rows), turn)]


def _renamed(maker: Kernel, old: str, new: str) -> Kernel:
    (value,) = maker.values
    assert value.store is not None
    buffers = tuple(replace(b, name=new) if b.name == old else b for b in maker.buffers)
    return replace(
        maker, buffers=buffers, values=(replace(value, store=replace(value.store, buffer=new)),)
    )


def _digits(own: Sequence[Index], read: Sequence[Index], layout: Layout) -> Layout | None:
    """The layout over the maker's dimensions; None where a step ends inside one of them."""
    left, digits, above = list(enumerate(own)), list[tuple[int, int]](), dict[int, int]()
    groups = [_group(left, extent) for extent in read]
    for d, step in layout:
        each = 1  # elements between neighbours in a dimension
        part: list[tuple[int, int]] = []
        for dim, count in groups[d][::-1]:
            first = dim == groups[d][0][0]
            if not (first or count.is_constant):
                return None
            whole = None if first else each * int(count)
            if above.get(d, inf) > each and (whole is None or step < whole):
                if step > each and (step % each or (whole is not None and whole % step)):
                    return None
                part.insert(0, (dim, max(1, step // each)))
            each = whole or each
        digits += part
        above[d] = step
    return tuple(digits)


def _group(left: list[tuple[int, Index]], extent: Index) -> list[tuple[int, Index]]:
    """Takes the next dimensions that are one of this extent."""
    group, total = list[tuple[int, Index]](), Index.of(1)
    while total != extent:
        group.append(left.pop(0))
        total = total * group[-1][1]
    return group


def _in_digits(kernel: Kernel, layout: Layout) -> Kernel:
    """A kernel that stores its value at its axes, which stores it in this layout instead: each
    digit is an axis, and what pads the last block of a dimension is zero."""
    if not layout:
        return kernel
    (value,) = kernel.values
    assert value.store is not None
    names = [f"{value.axes[d]}_{step}" for d, step in layout]
    extents = counts([kernel.axes[a] for a in value.axes], layout)
    place = {
        axis: sum((Index.of(n) * s for n, (dim, s) in zip(names, layout) if dim == d), Index.of(0))
        for d, axis in enumerate(value.axes)
    }
    (inside,) = substituted(kernel, place).values
    padded = [(value.axes[d], step) for d, step in sorted(outermost(layout).items()) if step > 1]
    conditions = tuple(
        kernel.axes[a] - 1 - place[a] for a, step in padded
        if not kernel.axes[a].is_constant or int(kernel.axes[a]) % step
    )  # fmt: skip
    body = Guard(conditions, inside.body, Constant(0, value.dtype)) if conditions else inside.body
    store = replace(value.store, index=tuple(map(Index.of, names)))
    buffers = tuple(
        replace(b, shape=tuple(extents)) if b.name == store.buffer else b for b in kernel.buffers
    )
    made = replace(value, axes=tuple(names), body=body, store=store, domain={})
    return replace(kernel, axes=dict(zip(names, extents)), buffers=buffers, values=(made,))
