"""Rules that a schedule must keep before it is lowered. A lowering that trusted its input would
make programs that run and are wrong (a softmax does not even see a maximum that is too small).

`check` raises Illegal with the first rule that is broken; `problems` gives all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..errors import Illegal
from ..graph.index import Index
from ..graph.space import Space
from ..kernel.kernel import Kernel, Store, Value
from ..kernel.layout import check_layout
from ..kernel.schedule import TAILS, Schedule
from .library import libraries
from .tree import Node, Tree, build, shared_depth

INSIDE = {("collapse", "collapse"), ("vector", "partial")}  # of an axis in lanes, and inside them


def check(kernel: Kernel, schedule: Schedule) -> None:
    """Raise Illegal if the schedule of a kernel breaks a rule."""
    for problem in problems(kernel, schedule):
        raise Illegal(problem)


def problems(kernel: Kernel, schedule: Schedule) -> Iterator[str]:
    """Reasons why a schedule is illegal."""
    if schedule.library:
        if schedule.library not in libraries(kernel, (schedule.library,)):
            yield f"{schedule.library} does not compute this kernel"
        return
    yield from _names(kernel, schedule)
    yield from _moved(kernel, schedule)
    tree = build(kernel, schedule)
    for value in tree.values:
        yield from _steps(kernel, tree, value)
        yield from _kinds(tree, value)
        if value.reduction is not None:
            yield from _reduction(tree, value)
        if value.store is not None:
            yield from _store(tree, value, value.store)
        yield from _streams(tree, value)
        yield from _claims(tree, value)
    yield from _memory(kernel, schedule, tree)


# ---- names and layouts


def _names(kernel: Kernel, schedule: Schedule) -> Iterator[str]:
    values = {v.name: v for v in kernel.values}
    for name, path in schedule.paths.items():
        if name not in values:
            yield f"a path for {name}, which is no value"
        for loop in path:
            if loop.axis not in kernel.axes or loop.step < 1:
                yield f"{name}: no loop {loop}"
    buffers = {b.name: b for b in kernel.buffers}
    for name, layout in schedule.layouts.items():
        if name in buffers:
            if not buffers[name].constant:
                yield f"a layout for {name}, which is no constant"
            check_layout(layout, len(buffers[name].shape))
        elif name in values:
            check_layout(layout, len(values[name].axes))
        else:
            yield f"a layout for {name}, which is nothing"
    for axis, kind in schedule.tails.items():
        if kind not in TAILS or axis not in kernel.axes:
            yield f"no tail {kind} of {axis}"


def _moved(kernel: Kernel, schedule: Schedule) -> Iterator[str]:
    """A value without a path moves to its readers: not past a reduction that it sees running."""
    order = {v.name: i for i, v in enumerate(kernel.values)}
    early: dict[str, frozenset[str]] = {}  # moved value -> reductions that start after it
    for value in kernel.values:
        seen = value.reads(so_far=True).union(*(early.get(n, ()) for n in value.reads()))
        here = order[value.name]
        for name in sorted(n for n in value.reads() if n in early):
            if any(order[running] < here for running in early[name]):
                yield f"{name} has no path and would move behind a reduction that it sees running"
        if value.name not in schedule.paths:
            early[value.name] = frozenset(n for n in seen if order.get(n, here) > here)


# ---- loops of one path


def _steps(kernel: Kernel, tree: Tree, value: Value) -> Iterator[str]:
    """Each axis is walked, in shrinking steps, down to single ones."""
    path = tree.paths[value.name]
    for axis in value.points:
        loops = [n for n in path if n.loop.axis == axis]
        if kernel.axes[axis] == 1 and not loops:
            continue
        if not loops or loops[-1].loop.step != 1:
            yield f"{value.name}: axis {axis} is not walked to single steps"
        if any(a.loop.step < b.loop.step for a, b in pairwise(loops)):
            yield f"{value.name}: steps of {axis} grow inwards"
        if any(a.lanes and (a.loop.kind, b.loop.kind) not in INSIDE for a, b in pairwise(loops)):
            yield f"{value.name}: a loop over {axis} lies inside its lanes"
    for number, node in enumerate(path):
        above = [n.loop.step for n in path[:number] if n.loop.axis == node.loop.axis]
        if node.loop.constant and above and above[-1] % node.loop.step:
            yield f"{value.name}: {node.loop} does not divide {above[-1]}"


def _kinds(tree: Tree, value: Value) -> Iterator[str]:
    path = tree.paths[value.name]
    parallel = [n.loop.kind == "parallel" for n in path]
    if any(b and not a for a, b in pairwise(parallel)):
        yield f"{value.name}: a parallel loop lies inside another kind of loop"
    shared = [n.loop.axis for n in path if n.loop.kind == "parallel"]
    if len(set(shared)) < len(shared):
        yield f"{value.name}: an axis is shared out among threads twice"
    for node in path:
        kind, axis = node.loop.kind, node.loop.axis
        if kind in ("partial", "collapse") and axis not in value.over:
            yield f"{value.name}: {node.loop} of an axis that is not reduced"
        if node.lanes and axis not in value.points:
            yield f"{value.name}: lanes of {axis}, over which it does not vary"


def _reduction(tree: Tree, value: Value) -> Iterator[str]:
    assert value.reduction is not None
    path = tree.paths[value.name]
    inside = path[tree.first(value) :]
    foreign = [n.loop.axis for n in inside if n.loop.axis not in value.points]
    if foreign:
        yield f"{value.name}: reduced again for each {foreign[0]}"
    if any(n.loop.kind == "parallel" for n in inside):
        yield f"{value.name}: threads share an accumulator"
    if not value.reduction.scan:
        return
    if len(value.over) != 1 or value.over[0] not in value.axes:
        yield f"{value.name}: a scan keeps the one axis that it runs along"
    for node in inside:
        along = node.loop.axis in value.over
        if along and node.loop.kind not in ("serial", "unroll"):
            yield f"{value.name}: a scan cannot take {node.loop}"
        if not along and not node.loop.constant:
            yield f"{value.name}: the loop {node.loop} lies inside a scan"


# ---- stores


def _store(tree: Tree, value: Value, store: Store) -> Iterator[str]:
    path = tree.paths[value.name]
    foreign = [n for n in path if n.loop.axis not in value.points]
    if any(n.loop.kind == "parallel" for n in foreign):
        yield f"{value.name}: threads store the same elements"
    if store.mode != "set" and foreign:
        yield f"{value.name}: combined again for each {foreign[0].loop.axis}"
    walked = [n for n in path if n.loop.axis in store.ordered]
    if any(n.loop.kind == "parallel" for n in walked):
        yield f"{value.name}: an ordered axis is parallel"
    order = [n.loop.axis for n in walked]
    turned = order != sorted(order, key=value.axes.index)
    if turned and store.mode == "set":  # what is combined may come in any order
        yield f"{value.name}: ordered axes are not walked in the order {value.axes}"
    if any(n.lanes for n in walked[:-1]):
        yield f"{value.name}: lanes of an ordered axis lie outside a loop over another"


# ---- values that meet


def _streams(tree: Tree, value: Value) -> Iterator[str]:
    """What depends on a running value stands in the same turn of the loop in which it runs."""
    values = {v.name: v for v in tree.values}
    for name in _running(values, value, set()):
        other = values[name]
        depth = shared_depth(tree.paths[value.name], tree.paths[name])
        if depth <= tree.first(other) < len(tree.paths[name]):
            yield f"{value.name}: does not share the loop in which {name} runs"
    for name in value.reads(so_far=True) - {value.name}:
        if name in values and _shares_steps(tree, values[name], value):
            yield f"{value.name}: reads {name} in the middle of a step"
    if any(_shares_steps(tree, value, values[name]) for name in value.rescale & values.keys()):
        yield f"{value.name}: is rescaled in the middle of a step"


def _shares_steps(tree: Tree, running: Value, other: Value) -> bool:
    """Whether a value stands inside a part of a step, which is a turn of the outermost loop."""
    path = tree.paths[running.name]
    shared = path[tree.first(running) + 1 : shared_depth(path, tree.paths[other.name])]
    return any(n.loop.axis in running.over for n in shared)


def _running(values: dict[str, Value], value: Value, seen: set[str]) -> set[str]:
    """Running reductions on whose momentary value this one depends."""
    found = set(value.reads(so_far=True))
    for name in value.reads(so_far=False):
        other = values.get(name)
        if other is None or name in seen or (other.reduction and name not in value.rescale):
            continue
        seen.add(name)
        found |= _running(values, other, seen)
    return found - {value.name}


def _claims(tree: Tree, value: Value) -> Iterator[str]:
    """Threads do not wait for each other inside a kernel: producer and reader share their unit."""
    path = tree.paths[value.name]
    known = {v.name: v for v in tree.values}
    for name in value.reads():
        other = known.get(name)
        if other is None:
            yield f"{value.name}: reads {name}, which nothing computes"
            continue
        if other.store is not None:
            yield f"{value.name}: reads {name}, which is stored"
        missing = set(other.axes) - set(value.points)
        if missing:
            yield f"{value.name}: reads {name} without its axes {sorted(missing)}"
        if not _same_unit(path, tree.paths[name]):
            yield f"{value.name}: {name} is made in another unit of work"


def _same_unit(a: list[Node], b: list[Node]) -> bool:
    depth = shared_depth(a, b)
    return not any(n.loop.kind == "parallel" for p in (a, b) for n in p[depth:])


def _memory(kernel: Kernel, schedule: Schedule, tree: Tree) -> Iterator[str]:
    """Two values that touch one buffer, at least one of them writing, keep their order, unless what
    they touch is apart."""
    touched, space = [(v, _touches(v)) for v in tree.values], kernel.space()
    for number, (first, before) in enumerate(touched):
        for second, after in touched[number + 1 :]:
            for name in before.keys() & after.keys():
                accesses = before[name] + after[name]
                written = any(stored for stored, _ in accesses)
                if not written or ordered(tree, first, second, accesses):
                    continue
                if not all(_apart(space, i, j) for _, i in before[name] for _, j in after[name]):
                    yield f"{first.name} and {second.name} meet in the buffer {name}"
    for name, buffer in schedule.homes.items():
        yield from lent(kernel, tree.values, name, buffer)
        for other in [n for n, b in schedule.homes.items() if b == buffer and n != name]:
            yield from _crowded(tree, other, name)


Touch = tuple[bool, tuple[Index, ...]]  # stored, index


def _touches(value: Value) -> dict[str, list[Touch]]:
    found: dict[str, list[Touch]] = {}
    for e in value.loads:
        found.setdefault(e.buffer, []).append((False, e.index))
    if value.store is not None:
        found.setdefault(value.store.buffer, []).append((True, value.store.index))
    return found


def _apart(space: Space, first: tuple[Index, ...], second: tuple[Index, ...]) -> bool:
    """In some dimension they have no position in common."""
    ends = ((space.bounds(a), space.bounds(b)) for a, b in zip(first, second))
    return any(a[1] < b[0] or b[1] < a[0] for a, b in ends)


def ordered(tree: Tree, first: Value, second: Value, accesses: list[Touch]) -> bool:
    """Both run in one unit, and all loops that they share cut the buffer into parts of its own."""
    a, b = tree.paths[first.name], tree.paths[second.name]
    if not _same_unit(a, b):
        return False
    for node in a[: shared_depth(a, b)]:
        axis = Index.of(node.loop.axis)
        parts = [[d for d, i in enumerate(index) if i is axis] for _, index in accesses]
        if not parts[0] or any(p != parts[0] for p in parts):
            return False
    return True


def _crowded(tree: Tree, first: str, second: str) -> Iterator[str]:
    """Of two values that live in one buffer, the first is dead before the second is made."""
    order = [v.name for v in tree.values]
    made = order.index(second)
    if order.index(first) < made <= max(order.index(v.name) for v in tree.readers(first)):
        yield f"{second} is written over {first}, which is read later"


def lent(kernel: Kernel, values: Sequence[Value], name: str, buffer: str) -> Iterator[str]:
    """A value may live in an output buffer until its own value is written over it. values: those
    that are walked, in order."""
    order = {v.name: n for n, v in enumerate(values)}
    value = next((v for v in values if v.name == name), None)
    owners = [v for v in values if v.store and v.store.buffer == buffer]
    if value is None or value.store or value.reduction or len(owners) != 1:
        yield f"{name} cannot live in the buffer {buffer}"
        return
    (owner,) = owners
    if set(value.axes) != set(owner.axes) or kernel.buffer(buffer).dtype is not value.dtype:
        yield f"{name} and {owner.name} in {buffer} have different axes or dtypes"
    if owner.store and (owner.store.slots or owner.store.mode != "set"):
        yield f"{name} cannot live in {buffer}: not all of it is written"
    late = [v.name for v in values if name in v.reads() and order[v.name] > order[owner.name]]
    if late:
        yield f"{late[0]} reads {name} after {owner.name} is written over it"
    if any(e.buffer == buffer for v in values for e in v.loads):
        yield f"the buffer {buffer} of {name} is read as well"
