"""Lowering: (kernel, schedule) -> loop program.

1. Values without a path are put in the place of their reads, and paths are merged into a loop tree
   (`tree`): sharing loops is fusion. 2. Each value gets a home (`homes`). 3. Reductions hang hooks
   on the tree (`reduce`). 4. The tree is walked with symbolic indices (`walk`, `values`, `access`),
   and a builder writes SSA in its final form (`builder`, `indexing`), with requests for what is
   read next (`ahead`).

It is a program of vectors; where lanes are threads, its backend makes theirs of it.
"""

from __future__ import annotations

import math

from ..graph.dtype import i64
from ..graph.index import Index, names_of
from ..graph.space import Space
from ..kernel.kernel import Kernel
from ..kernel.layout import Storage
from ..kernel.program import Program, Tile, Val, start_of
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from ..lowering import library
from .access import Access
from .ahead import Ahead
from .builder import Builder
from .homes import Homes
from .indexing import Indexing
from .matrices import registers
from .place import Memory, Place
from .reduce import Accumulators
from .tree import Tree, build
from .values import Values
from .walk import Walk
from .walk_limits import Limits


def lower(kernel: Kernel, schedule: Schedule, target: Target) -> Program:
    """The loop program of a kernel. Raises Illegal where the schedule cannot be lowered."""
    sizes = size_names(kernel)
    single = target.group == 1
    matrices = single and any(i.rows > 1 for i in target.instructions)
    indexing = Indexing(Builder(single, matrices, target.maskable), _space(kernel, sizes))
    for name in sizes:
        indexing.scalars[name] = Val(f"%d_{name}", i64)
    if schedule.library:
        called = library.body(kernel, target.threads if single else 1, indexing)
        return Program(kernel.name, kernel.buffers, sizes, called)
    tree = build(kernel, schedule)
    homes = Homes(kernel, schedule, tree)
    homes.settle()
    tiles = _tiles(tree, homes)
    indexing.build.written |= {*kernel.outputs, *tiles}
    memories = _buffers(kernel, schedule) | tiles
    _walk(kernel, schedule, target, tree, homes, indexing, memories)
    body, known = indexing.build.scopes[0].body, schedule.layouts
    made = tuple(Tile(t.name, t.dtype, t.storage.size.constant) for t in tiles.values())
    layouts = {b.name: known[b.name] for b in kernel.buffers if b.name in known}
    program = Program(kernel.name, kernel.buffers, sizes, body, made, layouts)
    registers(program, target.instructions)  # or it is illegal
    return program


def _walk(
    kernel: Kernel, schedule: Schedule, target: Target, tree: Tree, homes: Homes,
    indexing: Indexing, memories: dict[str, Memory],
) -> None:  # fmt: skip
    access = Access(indexing, memories, dict(kernel.axes))
    by_name = {v.name: v for v in tree.values}
    values = Values(access, homes, by_name, target.instructions)
    limits = Limits(tree, homes, indexing)
    most = target.l2 // 2 if target.group == 1 else 0
    ahead = Ahead(access, most, schedule.layouts)
    walker = Walk(schedule, values, limits, ahead)
    for value in tree.values:
        if value.reduction is not None:
            Accumulators(value, value.reduction, tree, walker)
    place = Place(dict.fromkeys(kernel.axes, Index.of(0)), dict(kernel.axes))
    for name in tree.root.homes:
        homes.by_name[name].stand(place, by_name[name].axes)
    walker.units(tree.root, place)


def size_names(kernel: Kernel) -> tuple[str, ...]:
    """The run-time sizes that a kernel mentions, sorted: the order in which they are passed."""
    indices = [*(n for b in kernel.buffers for n in b.shape), *kernel.axes.values()]
    indices += [i for value in kernel.values for i in value.indices]
    found = names_of(indices).union(kernel.sizes)
    return tuple(sorted(n for n in found if n not in kernel.axes and not n.startswith("$")))


def _space(kernel: Kernel, sizes: tuple[str, ...]) -> Space:
    """Ranges of the sizes. Axes are not variables of the program: only where loops stand is."""
    return Space({name: kernel.sizes.get(name, (0, math.inf)) for name in sizes})


def _buffers(kernel: Kernel, schedule: Schedule) -> dict[str, Memory]:
    stored = ((b, Storage(b.shape, schedule.layouts.get(b.name, ()))) for b in kernel.buffers)
    return {b.name: Memory(b.name, b.dtype, storage, start_of(b.name), b.shape)
            for b, storage in stored}  # fmt: skip


def _tiles(tree: Tree, homes: Homes) -> dict[str, Memory]:
    living = ((f"{v.name} tile", v.dtype, homes.by_name.get(v.name)) for v in tree.values)
    return {name: Memory(name, dtype, home.storage, start_of(name))
            for name, dtype, home in living if home and home.storage}  # fmt: skip
