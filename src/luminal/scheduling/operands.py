"""Operands that become values of their own: copied into a good layout, or computed once.

A factor of a sum of products is copied where its layout is bad for the chosen lanes and it is read
again often enough; computed ones (dequantised, scaled, normalised) where they would be computed
eight times or more.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeAlias

from ..kernel.kernel import Apply, Expression, Kernel, Load, Read, Value, walk
from . import instructions
from .facts import Facts, weight
from .frames_matrices import kept_factors
from .frames_tiles import stream_tiles
from .loads import AGAIN
from .outline import Outline
from .score import LEAST_MADE, SPREAD
from .solver import Solver
from .tile import Tile

UNPACKED = 4.0  # work that a panel of narrow numbers may take each time that it is read

Made: TypeAlias = tuple[list[Value], set[str]]


def add_operands(found: Outline) -> tuple[Kernel, set[str]]:
    """The kernel with operand values before the sums that read them, and their names. The threads
    of a group read through their caches: what they shared would cost barriers, and room; of
    matrices each keeps its part."""
    values, names = list(found.kernel.values), set[str]()
    if found.target.group > 1:
        for name, factor in kept_factors(found).items():
            at = next(i for i, u in enumerate(values) if u.name == name)
            side = factor.name.endswith("b")
            values[at : at + 1] = [factor, _reader(values[at], [factor, None][:: 1 - 2 * side])]
            names.add(factor.name)
        return replace(found.kernel, values=tuple(values)), names
    tiles = stream_tiles(found)
    for v in found.heavy:
        if not v.factors:
            continue
        group = found.group if v in found.group else [v]
        decided = tiles.get(v.name) or (found.tile if v in found.group else None)
        tile = decided or Solver(found.facts).solve(group, found.lane)
        at = next(i for i, u in enumerate(values) if u.name == v.name)
        args = _arguments(found, v, tile, values[:at])
        made = [u for u in args if u is not None and u not in values]
        values[at:at] = made
        names |= {u.name for u in made}
        values[at + len(made)] = _reader(v, args)
    return replace(found.kernel, values=tuple(values)), names


def in_memory(found: Outline) -> bool:
    """The operands of matrices lie somewhere as they are multiplied."""
    (_, tile), facts = found.ruling, found.facts
    assert tile.pair is not None
    pair, rows = tile.pair, tile.rows

    def lies(number: int, e: Expression) -> bool:
        if isinstance(e, Read):
            return facts.by_name[e.value].reduction is None
        x = facts.access(e) if isinstance(e, Load) else None
        first = x and not number and instructions.lies(facts, x, pair, rows, tile.size(rows))
        return x is not None and (x.packable or bool(first))

    sides = [instructions.taken(facts, v, pair[0], rows) for v in found.group]
    return all(both and all(lies(n, e) for n, e in enumerate(both)) for both in sides)


def _arguments(found: Outline, value: Value, tile: Tile, before: list[Value]) -> list[Value | None]:
    """For each side of the product the value that takes its place, if any."""
    result: list[Value | None] = []
    for side, arg in zip("ab", value.factors):
        made = _operand(found, f"{value.name}_{side}", arg, value, tile)
        same = [u for u in before if made and (u.body, u.axes) == (made.body, made.axes)]
        result.append(same[0] if same else made)
    return result


def _reader(value: Value, args: list[Value | None]) -> Value:
    sides = tuple(
        arg if made is None else _widened(made, arg) for made, arg in zip(args, value.factors)
    )
    return replace(value, body=Apply("mul", sides, value.body.dtype))


def _widened(made: Value, arg: Expression) -> Expression:
    """The operand as it is read: a widening cast stays with the reader."""
    read = Read(made.name, made.dtype)
    return read if made.dtype is arg.dtype else Apply("cast", (read,), arg.dtype)


def _operand(found: Outline, name: str, arg: Expression, value: Value, tile: Tile) -> Value | None:
    """The argument as a value, if it is copied or computed for many tiles again and again."""
    facts = found.facts
    axes = facts.kernel.axes_of(arg)
    if not axes or isinstance(arg, Read) or not _worth(found, arg, axes, value, tile):
        return None
    if facts.decisions.of(f"copy {name}", "yes", ("yes", "no")) == "no":
        return None
    kept = [a for a in value.axes if a in axes and a != tile.lane]
    over = [a for a in value.over if a in axes and a != tile.lane]
    order = tuple(kept + over + [tile.lane] * (tile.lane in axes))
    unsized = {a for a in order if a not in found.common and not facts.static[a]}
    if not unsized <= set(found.streams):
        return None  # its tile would have no constant size
    body = _narrow(facts, arg, value, tile)
    domain = {a: ends for a, ends in value.domain.items() if a in axes}
    return Value(name, order, body, body.dtype, domain=domain)


def _worth(found: Outline, arg: Expression, axes: frozenset[str], value: Value, tile: Tile) -> bool:
    facts, copied = found.facts, {c.load for c in tile.copies}
    body = _narrow(facts, arg, value, tile)
    if tile.matrices and tile.pair and found.streams:  # behind the end of a stream are no zeros
        first = tile.lane not in axes and tile.pair[1] not in found.streams
        x = facts.access(body) if isinstance(body, Load) and first else None
        size = tile.size(tile.rows)
        return not (x and instructions.lies(facts, x, tile.pair, tile.rows, size))
    if any(e in copied for e in walk(arg) if isinstance(e, Load)):
        return True
    work = weight(body)
    if value.rescale and body.dtype is not arg.dtype:
        return True  # pairs of a stream: see `Facts._pairs_along`
    again = prod(-(-found.size[a] // tile.size(a)) for a in set(value.axes) - axes)
    given = [facts.buffers[e.buffer] for e in walk(arg) if isinstance(e, Load)]
    if given and all(buffer.constant for buffer in given):
        # whole vectors of a panel are unpacked as they are loaded, for all rows
        return work >= (UNPACKED if tile.pair else 1.0) and again >= AGAIN
    once = 1.0 if tile.lane in axes else 1 / tile.width  # by itself it is computed in lanes
    if tile.pair and tile.lane not in axes:
        work *= SPREAD
    return work >= 0.5 and work * (again - once) >= LEAST_MADE


def _narrow(facts: Facts, arg: Expression, value: Value, tile: Tile) -> Expression:
    """The argument as the tile's instruction takes it."""
    found = instructions.either(facts, value, tile.pair[0]) if tile.pair else None
    return found[value.factors.index(arg)] if found else arg
