"""Where each value lives between its producer and its readers: registers, a tile, an output buffer.

The home is the deepest loop that the producer and all readers share. If everything below it over
the value's axes is written out, and is small enough, it is registers; else a tile of the
worker's own with the extents that one turn of that loop covers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from ..errors import Illegal
from ..graph.index import Index
from ..kernel.kernel import Kernel, Store, Value
from ..kernel.layout import Storage
from ..kernel.schedule import Schedule
from .legal import lent
from .place import Place
from .tree import Node, Tree, build, shared_depth

LARGEST_TILE = 1 << 28  # bytes of workspace that one value may take


@dataclass
class Home:
    """`depth`: of the loop inside which it lives. One of: registers, `storage` (a tile),
    `lent` (an output buffer). `place`: where that loop stands now."""

    depth: int
    registers: bool = False
    storage: Storage | None = None
    lent: Store | None = None
    place: Place | None = None
    base: tuple[Index, ...] = ()  # positions of the value's axes there

    def stand(self, place: Place, axes: tuple[str, ...]) -> None:
        """The loop of the home begins another turn."""
        self.place = place
        self.base = tuple(place.scalar(a) for a in axes)


def tile_bytes(kernel: Kernel, schedule: Schedule) -> dict[str, float]:
    """What the tile of each value takes, infinitely much where nothing bounds it; those without a
    tile take nothing."""
    homes, found = Homes(kernel, schedule, build(kernel, schedule)), dict[str, float]()
    for value in homes.tree.values:
        try:
            storage = None if value.store else homes.home(value).storage
            found[value.name] = storage.size.constant * value.dtype.bytes if storage else 0
        except Illegal:
            found[value.name] = math.inf
    return found


class Homes:
    """The homes of all values that are not stored themselves, once they are settled."""

    def __init__(self, kernel: Kernel, schedule: Schedule, tree: Tree) -> None:
        self.kernel, self.schedule, self.tree = kernel, schedule, tree
        self.space = kernel.space()
        self.by_name: dict[str, Home] = {}

    def settle(self) -> None:
        """Raises Illegal for a tile that is too large or not bounded."""
        for value in self.tree.values:
            if value.store is None:
                home = self.by_name[value.name] = self.home(value)
                self.tree.node(value.name, home.depth).homes.append(value.name)

    def home(self, value: Value) -> Home:
        """Where a value lives that is not stored itself. Raises Illegal."""
        path = self.tree.paths[value.name]
        readers = [self.tree.paths[v.name] for v in self.tree.readers(value.name)]
        depth = min([shared_depth(path, p) for p in readers] + [len(path)])
        if value.reduction is not None and not value.scans:
            depth = min(depth, self.tree.first(value))
        if value.name in self.schedule.homes:
            return Home(depth, lent=self._lent(value))
        if self._in_registers(value, path, readers, depth):
            return Home(depth, registers=True)
        return self._tile(value, [path, *readers], depth)

    def read_whole(self, name: str, axis: str) -> bool:
        """Whether readers write out a tile of a value along an axis: they read all of it, however
        much is there."""
        home = self.by_name.get(name)
        if home is None or home.storage is None:
            return False
        below = (self.tree.paths[v.name][home.depth :] for v in self.tree.readers(name))
        return any(n.loop.axis == axis and n.loop.constant and not n.lanes
                   for path in below for n in path)  # fmt: skip

    def multiplied(self, name: str, axis: str) -> int:
        """Steps of an axis that a product of matrices sums at once, of a tile in memory: it reads
        all of them, however many there are; 0 where none does."""
        home = self.by_name.get(name)
        if home is None or home.storage is None:
            return 0
        below = (self.tree.paths[v.name][home.depth :] for v in self.tree.readers(name))
        return max((n.reach for path in below for n in path
                    if n.loop.axis == axis and n.loop.kind == "collapse"), default=0)  # fmt: skip

    def _lent(self, value: Value) -> Store:
        """The store of the output buffer's own value."""
        buffer = self.schedule.homes[value.name]
        for problem in lent(self.kernel, self.tree.values, value.name, buffer):
            raise Illegal(problem)
        stores = (v.store for v in self.tree.values if v.store)
        return next(store for store in stores if store.buffer == buffer)

    def _in_registers(
        self, value: Value, path: list[Node], readers: list[list[Node]], depth: int
    ) -> bool:
        """Written out below the home, in the same lanes everywhere, and few enough vectors."""
        inner = () if value.scans else value.over
        if not all(n.loop.constant or n.loop.axis in inner for n in path[depth:]):
            return False
        below = [n for p in [path, *readers] for n in p[depth:] if n.loop.axis in value.axes]
        if not all(n.loop.constant for n in below):
            return False
        mine = _lanes_below(path, depth, value.axes)
        if any(_lanes_below(p, depth, value.axes) != mine for p in readers):
            return False
        count = math.prod(self._extents(value, path, depth).values())
        return count <= math.prod(n for _, n in mine) * self.schedule.registers

    def _extents(self, value: Value, path: list[Node], depth: int) -> dict[str, float]:
        """How much of each axis one turn of the home's loop covers, at most."""
        extents = {a: max(1, self.space.bounds(self.kernel.axes[a])[1]) for a in value.axes}
        extents |= {n.loop.axis: n.reach for n in path[:depth] if n.loop.axis in extents}
        return extents

    def _tile(self, value: Value, paths: list[list[Node]], depth: int) -> Home:
        extents = self._extents(value, paths[0], depth)
        rounded = []
        for axis, extent in extents.items():
            if math.isinf(extent):
                raise Illegal(f"the tile of {value.name} has no bound along {axis}")
            _check_tails(value, paths[0][depth:], axis)
            rounded.append(Index.of(_touched(int(extent), paths, depth, axis)))
        storage = Storage(rounded, self.schedule.layouts.get(value.name, ()))
        size = storage.size.constant * value.dtype.bytes
        if size > LARGEST_TILE:
            raise Illegal(f"the tile of {value.name} takes {size} bytes of workspace")
        return Home(depth, storage=storage)


def _lanes_below(path: list[Node], depth: int, axes: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(n.loop.axis, n.lanes) for n in path[depth:] if n.lanes and n.loop.axis in axes]


def _check_tails(value: Value, path: list[Node], axis: str) -> None:
    """Lanes in a tail are stored too: they must not reach the next step's part of the tile."""
    nodes = [n for n in path if n.loop.axis == axis]
    lanes = next((n.lanes for n in nodes if n.lanes), 1)
    for node in nodes:
        if not node.lanes and node.loop.step % lanes:
            raise Illegal(f"{value.name}: {lanes} lanes do not divide {node.loop}")


def _touched(extent: int, paths: list[list[Node]], depth: int, axis: str) -> int:
    """Elements of an axis that tiles below a home touch: guarded tails go on to a full step."""
    nodes = [n for path in paths for n in path[depth:] if n.loop.axis == axis]
    units = sorted({1, *(n.reach for n in nodes)})
    chain = all(b % a == 0 for a, b in pairwise(units))
    return max(-(-extent // u) * u for u in units) + (0 if chain else units[-1])
