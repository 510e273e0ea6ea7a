"""Layouts of constants: panels of the register tile, in the order of the loops."""

from __future__ import annotations

from collections.abc import Mapping

from .facts import Access, Facts
from .kernel import Value
from .outline import Outline
from .schedule import Layout, Path
from .score import Tile


def panels(
    found: Outline, tiles: Mapping[str, Tile], paths: Mapping[str, Path], taps: frozenset[str]
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
            layout = _layout(x, v, tile, width, paths[v.name] if taps else (), found.facts)
            if layouts.setdefault(x.name, layout) != layout:
                clash.add(x.name)
    return settled | {name: layout for name, layout in layouts.items() if name not in clash}


def read_once(facts: Facts, x: Access, value: Value) -> bool:
    """So little reuse that memory, not the cache, feeds it: then one stream for each vector."""
    uses = 1
    for a in set(value.axes) - x.axes:
        uses *= facts.size[a]
    return uses <= 8


def _layout(x: Access, value: Value, tile: Tile, width: int, path: Path, facts: Facts) -> Layout:
    """Panels of the lane axis; inside them kept dimensions, then the reduced in loop order."""
    assert x.load is not None
    dim_of = {next(iter(i.names())): d for d, i in enumerate(x.load.index) if i.names()}
    fixed = [(d, 1) for d, i in enumerate(x.load.index) if not i.names()]
    lane, pair = dim_of[tile.lane], tile.pair if tile.pair and tile.pair[1] in dim_of else None
    digits: list[tuple[int, int]] = [*fixed, (lane, width)]
    order = [a for a in value.axes if a != tile.lane] + list(value.over)
    if path:
        digits += _walked(path, dim_of, tile, pair is not None, order)
    else:
        for a in order:
            if a in dim_of:
                step = pair[0].collapse if pair and a == pair[1] else 1
                digits.append((dim_of[a], step))
    digits.append((lane, 1))
    return tuple([*digits, (dim_of[pair[1]], 1)] if pair else digits)


def _walked(
    path: Path, dim_of: Mapping[str, int], tile: Tile, paired: bool, order: list[str]
) -> list[tuple[int, int]]:
    """The digits in the order in which the loops of a path walk them."""
    loops = [loop for loop in path if loop.axis in dim_of and loop.axis != tile.lane]
    if paired and tile.pair:
        loops = [loop for loop in loops if (loop.axis, loop.step) != (tile.pair[1], 1)]
    digits = [(dim_of[loop.axis], loop.step) for loop in loops]
    seen = {loop.axis for loop in loops}
    missing = [(dim_of[a], 1) for a in order if a in dim_of and a not in seen]
    return missing + digits
