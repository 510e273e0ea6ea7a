"""Layouts of constants: panels of the register tile, in the order of the loops."""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise
from math import prod

from ..kernel.kernel import Value
from ..kernel.schedule import Layout, Path
from .facts import Access, Facts
from .outline import Outline
from .tile import Tile


def panels(
    found: Outline, tiles: Mapping[str, Tile], paths: Mapping[str, Path]
) -> dict[str, Layout]:
    """A layout for each constant that the lanes or the rows of a tile read, row-major where two
    disagree; and those that are settled."""
    settled = {b.name: b.layout for b in found.kernel.buffers if b.layout}
    layouts: dict[str, Layout] = {}
    for v in found.values:
        tile = tiles.get(v.name)
        if tile is None or not tile.lane:
            continue
        for x in found.facts.accesses(v):
            axis = _panel_axis(x, v, tile)
            if axis is None:
                continue
            if tile.reduced:
                layout = _turned(x, axis)
                layouts[x.name] = layout if layouts.get(x.name, layout) == layout else ()
                continue
            once = axis == tile.lane and read_once(found.facts, x, v)
            width = tile.width if once and not tile.matrices else tile.size(axis)
            options = (tile.size(axis), tile.width)[: 1 if tile.matrices else 2]
            width = found.facts.decisions.number(f"panel {x.name}", width, options)
            apart = frozenset.intersection(*(y.axes for y in found.facts.accesses(v)))
            layout = _layout(x, v, axis, width, paths[v.name], apart, axis == tile.rows)
            layouts[x.name] = layout if layouts.get(x.name, layout) == layout else ()
    return settled | layouts


def _panel_axis(x: Access, value: Value, tile: Tile) -> str | None:
    """The axis along which a tile reads elements of a constant side by side: that of its lanes, or
    of its rows, which would lie far apart and drive each other out of the cache."""
    if x.load is None or not x.packable:
        return None
    if tile.reduced:
        along = [i for i in x.load.index if tile.lane in i.names()]
        return tile.lane if len(along) == 1 and x.stride(tile.lane) > 1 else None
    if tile.lane in x.axes:
        return tile.lane
    rows = [a for a, n in tile.sizes.items() if n > 1 and a in x.axes and a in value.axes]
    return rows[0] if rows and x.axes & _reduced(value) else None


def _reduced(value: Value) -> set[str]:
    """The axes that the value sums up; that of a scan it keeps."""
    return set(value.over) - set(value.axes)


def read_once(facts: Facts, x: Access, value: Value) -> bool:
    """So little reuse that memory, not the cache, feeds it: then one stream for each vector."""
    return prod(facts.size[a] for a in set(value.axes) - x.axes) <= 8


def _turned(x: Access, axis: str) -> Layout:
    """What lies along the lanes of a sum side by side, all else in its order."""
    assert x.load is not None
    (last,) = (d for d, i in enumerate(x.load.index) if axis in i.names())
    return (*((d, 1) for d in range(len(x.load.index)) if d != last), (last, 1))


def _layout(
    x: Access, value: Value, axis: str, width: int, path: Path, batch: Set[str],
    rows: bool = False,
) -> Layout:  # fmt: skip
    """Products apart from each other, panels of the axis; inside them other kept dimensions, then
    the reduced ones as the loops of the path walk them, the axis, and what an instruction
    collapses: as far as it wants that together, but whole in its rows. batch: the axes of all that
    is multiplied."""
    assert x.load is not None
    dim_of = {next(iter(i.names())): d for d, i in enumerate(x.load.index) if i.names()}
    reduced = _reduced(value)
    loops = [loop for loop in path if loop.axis in reduced and
             (loop.kind != "collapse" or (loop.step > 1 and not rows))]  # fmt: skip
    walked = [(dim_of[loop.axis], loop.step) for loop in loops if loop.axis in dim_of]
    merged = [digit for digit, after in pairwise([*walked, (-1, 1)]) if digit[0] != after[0]]
    panel = dim_of[axis]
    kept = [dim_of[a] for a in value.axes if a in dim_of and a != axis]
    apart = [dim_of[a] for a in value.axes if a in dim_of and a != axis and a in batch]
    rest = {*range(len(x.load.index))} - {panel, *kept, *(d for d, _ in walked)}
    last = [
        (dim_of[loop.axis], 1) for loop in path
        if loop.kind == "collapse" and loop.step == 1 and loop.axis in dim_of
    ]
    first = [(d, 1) for d in sorted(rest)]
    outer = [(panel, width)] if width > 1 else []
    inner = [(d, 1) for d in kept if d not in apart]
    return (*first, *((d, 1) for d in apart), *outer, *inner, *merged, (panel, 1), *last)
