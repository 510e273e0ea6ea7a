"""Vectors rearranged in registers: square blocks turned over, every second element taken, all lanes
of several vectors added up.
"""

from __future__ import annotations

from ..kernel.program import Val
from .builder import Builder
from .place import Lanes

GROUP = 16  # bytes: within such a part of a vector lanes move in one cheap instruction


def turned(build: Builder, rows: list[Val], lanes: Lanes) -> list[Val]:
    """The transpose of n vectors of n lanes: log2(n) stages of exchanges. lanes: of a column."""
    key = ("turned", lanes, *(row.name for row in rows))
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
                lanes, high if i & distance else low,
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


def interleaved(build: Builder, rows: list[Val], lanes: Lanes) -> Val:
    """The first elements of all vectors, the second ones ...; their number is a power of two."""
    if len(rows) == 1:
        return rows[0]
    (axis, size), (short, count) = lanes
    half = (axis, size), (short, count // 2)
    a, b = (interleaved(build, rows[n::2], half) for n in (0, 1))
    width = size * count // 2
    picks = tuple(i + n for i in range(width) for n in (0, width))
    return build.emit("shuffle", (a, b), a.dtype, lanes, picks)


def joined(build: Builder, rows: list[Val], lanes: Lanes) -> Val:
    """All vectors one after another; their number is a power of two."""
    if len(rows) == 1:
        return rows[0]
    (axis, size), inner = lanes
    middle = len(rows) // 2
    a, b = (joined(build, part, ((axis, size // 2), inner))
            for part in (rows[:middle], rows[middle:]))  # fmt: skip
    return build.emit("shuffle", (a, b), a.dtype, lanes, tuple(range(2 * a.width)))


def every(build: Builder, vector: Val, number: int) -> Val:
    """Of a vector over an axis and a short one: the lanes at this number of the short one."""
    outer, (_, count) = vector.lanes
    picks = tuple(range(number, vector.width, count))
    return build.emit("shuffle", (vector, vector), vector.dtype, (outer,), picks)


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


def groups_of(vector: Val) -> int:
    """How many groups a vector has, if its lanes can be combined group by group; else 0."""
    if vector.dtype is None or vector.dtype.bytes < 4 or len(vector.lanes) != 1:
        return 0
    groups = vector.width * vector.dtype.bytes // GROUP
    return 0 if groups & (groups - 1) else groups


def across(build: Builder, op: str, rows: list[Val]) -> list[Val]:
    """All lanes of each vector combined by an operation, as scalars. Together they take fewer
    instructions: neighbours in pairs of vectors until a group has one lane of each, then groups."""
    first = rows[0]
    assert first.dtype is not None
    group = GROUP // first.dtype.bytes
    found: list[Val] = []
    for start in range(0, len(rows), group):
        mine = rows[start : start + group]
        mixed = [mine[i % len(mine)] for i in range(group)]
        while len(mixed) > 1:
            mixed = [_neighbours(build, op, a, b, group) for a, b in zip(mixed[::2], mixed[1::2])]
        (sums,) = mixed
        while sums.width > group:
            sums = _halves(build, op, sums)
        one = range(len(mine))
        found += [build.emit("shuffle", (sums, sums), first.dtype, (), (i,)) for i in one]
    return found


def _neighbours(build: Builder, op: str, a: Val, b: Val, group: int) -> Val:
    """Pairs of neighbouring lanes combined: in each group those of a, then those of b."""
    starts = [n + base for base in range(0, a.width, group) for n in (0, a.width)]
    even = tuple(start + i for start in starts for i in range(0, group, 2))
    odd = tuple(i + 1 for i in even)
    parts = [build.emit("shuffle", (a, b), a.dtype, a.lanes, picks) for picks in (even, odd)]
    return build.emit(op, tuple(parts), a.dtype, a.lanes)


def _halves(build: Builder, op: str, a: Val) -> Val:
    half = a.width // 2
    lanes = ((a.lanes[0][0], half),)
    low, high = (
        build.emit("shuffle", (a, a), a.dtype, lanes, tuple(range(start, start + half)))
        for start in (0, half)
    )
    return build.emit(op, (low, high), a.dtype, lanes)
