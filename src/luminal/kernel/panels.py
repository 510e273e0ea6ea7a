"""Layouts of constants: panels of the register tile, in the order of the loops."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from .facts import Access, Facts
from .kernel import Value
from .outline import Outline
from .schedule import Layout, Path
from .score import Tile


def panels(
    found: Outline, tiles: Mapping[str, Tile], paths: Mapping[str, Path]
) -> dict[str, Layout]:
    """A layout for each constant that some value reads along its lanes, none where two disagree;
    and those that are settled."""
    settled = {b.name: b.layout for b in found.kernel.buffers if b.layout}
    layouts: dict[str, Layout] = {}
    clash: set[str] = set()
    for v in found.values:
        tile = tiles.get(v.name)
        if tile is None or not tile.lane or tile.reduced:
            continue
        for x in found.facts.accesses(v):
            if x.load is None or tile.lane not in x.axes or not x.packable:
                continue
            width = tile.width if read_once(found.facts, x, v) else tile.size(tile.lane)
            options = (tile.size(tile.lane), tile.width)
            width = found.facts.decisions.number(f"panel {x.name}", width, options)
            layout = _layout(x, v, tile, width, paths[v.name])
            if layouts.setdefault(x.name, layout) != layout:
                clash.add(x.name)
    return settled | {name: layout for name, layout in layouts.items() if name not in clash}


def read_once(facts: Facts, x: Access, value: Value) -> bool:
    """So little reuse that memory, not the cache, feeds it: then one stream for each vector."""
    uses = 1
    for a in set(value.axes) - x.axes:
        uses *= facts.size[a]
    return uses <= 8


def _layout(x: Access, value: Value, tile: Tile, width: int, path: Path) -> Layout:
    """Panels of the lane axis; inside them kept dimensions, then the reduced ones as the loops of
    the path walk them, lanes, and what an instruction collapses."""
    assert x.load is not None
    dim_of = {next(iter(i.names())): d for d, i in enumerate(x.load.index) if i.names()}
    loops = [loop for loop in path if loop.axis in value.over and loop.kind != "collapse"]
    walked = [(dim_of[loop.axis], loop.step) for loop in loops if loop.axis in dim_of]
    merged = [digit for digit, after in pairwise([*walked, (-1, 1)]) if digit[0] != after[0]]
    lane = dim_of[tile.lane]
    kept = [dim_of[a] for a in value.axes if a in dim_of and a != tile.lane]
    rest = {*range(len(x.load.index))} - {lane, *kept, *(d for d, _ in walked)}
    last = [
        (dim_of[loop.axis], 1) for loop in path if loop.kind == "collapse" and loop.axis in dim_of
    ]
    first = [(d, 1) for d in sorted(rest)]
    return (*first, (lane, width), *((d, 1) for d in kept), *merged, (lane, 1), *last)
