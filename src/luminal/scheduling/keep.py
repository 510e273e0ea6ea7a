"""Where a value lives that is kept for a later pass: in the buffer that its reader writes, in a
tile, or nowhere, where no tile is large enough for all sizes: its readers compute it again.
"""

from __future__ import annotations

from math import prod

from ..graph.index import Index
from ..kernel.kernel import Value
from ..lowering.homes import tile_bytes
from ..lowering.legal import lent
from .draft import Draft
from .paths import Room


def keep_values(draft: Draft) -> None:
    """Decide it for all values of a draft that are neither reduced nor stored."""
    mapped = [v for v in draft.found.values if not v.reduction and not v.store]
    tile, group = draft.found.tile, draft.found.group
    whole = set[str]().union(*(v.reads() for v in group if tile and tile.matrices))
    for v in (v for v in mapped if v.name not in whole):  # whose rows may be more than there are
        for out in draft.found.stored:
            if v.name in out.reads() and _lends(draft, out, v) and _large(draft, v):
                assert out.store is not None
                if draft.facts.decisions.of(f"lend {v.name}", "yes", ("yes", "no")) == "yes":
                    draft.homes[v.name] = out.store.buffer
    kept = [v for v in mapped if v.name not in draft.homes and not draft.facts.running(v)]
    most = draft.target.l3
    wide = [v for v in kept if v.dtype.bytes * prod(map(draft.facts.most, v.axes)) > most]
    taken = tile_bytes(*draft.so_far()) if wide else {}
    for v in wide:
        if taken[v.name] > most:
            del draft.paths[v.name]
            draft.tiles.pop(v.name, None)  # nor does a layout of a constant suit it


def kept_bytes(draft: Draft) -> float:
    """Of values that those who read them find in tiles."""
    return sum(tile_bytes(*draft.so_far()).values())


def _lends(draft: Draft, out: Value, v: Value) -> bool:
    """The reader, the last one, writes each element where this value would lie."""
    store, kernel = out.store, draft.facts.kernel
    assert store is not None
    lane, last = draft.facts.lane_of.get(v.name), draft.facts.readers(v.name)[-1]
    plain = store.index == tuple(map(Index.of, out.axes)) and out.axes == v.axes and last is out
    stored = lane is None or draft.storable(out, lane)
    free = store.buffer not in draft.homes.values()
    return plain and stored and free and not any(lent(kernel, kernel.values, v.name, store.buffer))


def _large(draft: Draft, v: Value) -> bool:
    """A row that would take a good part of the first cache, or more than half of what the threads
    of a unit share; or whose size is not known."""
    room = Room().add(*(x for x in draft.paths[v.name] if x.kind == "parallel"))
    rows = [a for a in v.axes if not room.point(a, draft.facts)]
    bytes_each = v.dtype.bytes * max([draft.size[a] for a in rows], default=0)
    alone = draft.target.group == 1
    large = bytes_each >= draft.target.l1 // 8 if alone else bytes_each > draft.target.shared // 2
    return large or any(not draft.facts.static[a] for a in rows)
