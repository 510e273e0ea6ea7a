"""Vectors rearranged in registers: square blocks turned over, every second element taken."""

from __future__ import annotations

from ..kernel.program import Val
from .builder import Builder


def turned(build: Builder, rows: list[Val]) -> list[Val]:
    """The transpose of n vectors of n lanes: log2(n) stages of exchanges."""
    key = ("turned", *(row.name for row in rows))
    depth = max(row.depth for row in rows)
    found: list[Val] | None = build.recall(key)
    if found is not None:
        return found
    size, distance = len(rows), 1
    while distance < size:
        low, high = _exchange(size, distance)
        rows = [
            build.emit(
                "shuffle", (rows[i & ~distance], rows[i | distance]), rows[i].dtype,
                rows[i].lanes, high if i & distance else low,
            )
            for i in range(size)
        ]  # fmt: skip
        distance *= 2
    build.remember(key, depth, rows)
    return rows


def _exchange(size: int, distance: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lanes of the pair of rows `distance` apart, numbered through, after one stage."""
    low = (i - distance + size if i & distance else i for i in range(size))
    high = (i + size if i & distance else i + distance for i in range(size))
    return tuple(low), tuple(high)


def every_second(build: Builder, first: Val, second: Val) -> Val:
    """Lanes two elements apart, out of the n elements from the first lane on and the n elements up
    to the last lane."""
    size = first.lanes[0][1]
    chosen = tuple(2 * i if 2 * i < size else 2 * i + 1 for i in range(size))
    return build.emit("shuffle", (first, second), first.dtype, first.lanes, chosen)


def between(build: Builder, mask: Val, first: int) -> Val:
    """For lanes two elements apart: the mask of n neighbouring elements, number `first` the first.
    An element between two lanes is looked at only if both are, since it may lie outside."""
    size = mask.lanes[0][1]
    around = [tuple((first + i + n) // 2 for i in range(size)) for n in (0, 1)]
    below, above = (
        build.emit("shuffle", (mask, mask), mask.dtype, mask.lanes, lanes) for lanes in around
    )
    return build.emit("and", (below, above), mask.dtype, mask.lanes)
