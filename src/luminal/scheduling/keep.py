"""Where a value lives that is kept for a later pass: in the buffer that its reader writes, in a
tile, or nowhere, where no tile is large enough for all sizes: its readers compute it again.
"""

from __future__ import annotations

from math import prod

from ..graph.index import Index
from ..kernel.kernel import Value
from ..kernel.schedule import Schedule
from ..lowering.tree import Tree, build, shared_depth
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
    wide = [v for v in kept if _bytes(draft, v, {}) > draft.target.l3]
    tree = build(draft.facts.kernel, Schedule(draft.paths)) if wide else None
    for v in wide:
        if tree and _bytes(draft, v, _cut(tree, v)) > draft.target.l3:
            del draft.paths[v.name]
            draft.tiles.pop(v.name, None)  # nor does a layout of a constant suit it


def _cut(tree: Tree, v: Value) -> dict[str, int]:
    """The steps of the loops that a value shares with all its readers."""
    path = tree.paths[v.name]
    depth = min(shared_depth(path, tree.paths[u.name]) for u in tree.readers(v.name))
    return {node.loop.axis: node.loop.step for node in path[:depth]}


def _bytes(draft: Draft, v: Value, cut: dict[str, int]) -> float:
    """Bytes of its tile where run-time sizes are as large as they may be."""
    return v.dtype.bytes * prod(cut.get(a, draft.facts.most(a)) for a in v.axes)


def _lends(draft: Draft, out: Value, v: Value) -> bool:
    """The reader writes each element where this value would lie, and nobody else touches it."""
    store = out.store
    assert store is not None
    buffer, lane = draft.facts.buffers[store.buffer], draft.facts.lane_of.get(v.name)
    plain = store.mode == "set" and not store.slots
    plain = plain and store.index == tuple(map(Index.of, out.axes)) and out.axes == v.axes
    touched = [x.name for u in draft.found.values for x in draft.facts.accesses(u)]
    touched += [u.store.buffer for u in draft.found.stored if u.store and u is not out]
    last = draft.facts.readers(v.name)[-1] is out
    stored = lane is None or draft.storable(out, lane)
    free = buffer.name not in touched and buffer.name not in draft.homes.values()
    return plain and stored and last and buffer.dtype is v.dtype and free


def _large(draft: Draft, v: Value) -> bool:
    """A row that would take a good part of the first cache, or more than half of what the threads
    of a unit share; or whose size is not known."""
    room = Room().add(*(x for x in draft.paths[v.name] if x.kind == "parallel"))
    rows = [a for a in v.axes if not room.point(a, draft.facts)]
    bytes_each = v.dtype.bytes * max([draft.size[a] for a in rows], default=0)
    alone = draft.target.group == 1
    large = bytes_each >= draft.target.l1 // 8 if alone else bytes_each > draft.target.shared // 2
    return large or any(not draft.facts.static[a] for a in rows)
