"""Whether a kernel may write over what it reads."""

from __future__ import annotations

from ..graph.index import Index
from ..kernel.kernel import Kernel
from ..kernel.schedule import Schedule
from ..lowering.legal import ordered
from ..lowering.tree import build


def in_place(kernel: Kernel, schedule: Schedule, old: str, new: str) -> bool:
    """Whether two of the buffers may be one: each element of the old one is read, if at all, at the
    points whose value replaces it or before, and nothing else is ever written there."""
    if not schedule.paths or new in schedule.homes.values():
        return False
    tree = build(kernel, schedule)
    order = {v.name: place for place, v in enumerate(tree.values)}
    writers = [v for v in tree.values if v.store and v.store.buffer == new]
    if len(writers) != 1 or any(e.buffer == new for v in tree.values for e in v.loads):
        return False
    (writer,), store = writers, writers[0].store
    assert store is not None
    summed = any(v.reduction for v in kernel.values if v.store == store)
    if store.mode != "set" or store.slots or summed:
        return False
    walked = {n.loop.axis for n in tree.paths[writer.name]}
    if not {Index.of(axis) for axis in walked.union(writer.axes)} <= set(store.index):
        return False
    for reader in tree.values:
        touches = [(False, e.index) for e in reader.loads if e.buffer == old]
        if any(index != store.index for _, index in touches):
            return False
        if not touches or reader is writer:
            continue
        before = order[reader.name] < order[writer.name]
        if not before or not ordered(tree, reader, writer, [*touches, (True, store.index)]):
            return False
    return True
