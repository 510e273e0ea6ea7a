"""What is fixed once the sizes of a run are known: its calls, their order, where temporaries lie.

It serves other sizes too where the same calls run and every temporary fits into its room: each step
of a decoder is a size of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..backend.table import Table
from ..graph.index import names_of
from ..kernel.target import Target
from ..once import remembered
from .arena import Life, place
from .chains import Chain, chains_of, neighbours
from .plan import Plan

REMEMBERED = 64  # orders, and bindings, for different sizes
SPARE = 4  # a temporary that has grown gets a room so many times smaller beside its own


@dataclass(frozen=True, eq=False)
class Binding:
    """running: the calls of a run. offsets, rooms: of temporary memories in the arena, in bytes.
    chains: of the calls."""

    running: tuple[int, ...]
    offsets: Mapping[int, int]
    rooms: Mapping[int, int]
    arena_bytes: int
    table: Table
    chains: Sequence[Chain] = ()

    def fits(self, wanted: Mapping[int, int]) -> bool:
        """So many bytes of memories have room here, and do not leave most of it."""
        return all(size <= self.rooms[m] <= 2 * size + 4096 for m, size in wanted.items())


@dataclass(frozen=True)
class Order:
    """running: the calls of a run. lives: of their temporaries, those of run-time sizes listed as
    varying. fixed: the sizes by which loops go. chains: of the calls."""

    running: tuple[int, ...]
    lives: Mapping[int, tuple[int, int]]
    varying: Sequence[int]
    fixed: Sequence[str]
    chains: Sequence[Chain]


Calls: TypeAlias = tuple[int, ...]
Bytes: TypeAlias = Mapping[int, int]  # by memory
Laid: TypeAlias = Callable[[Calls, Bytes, Bytes, Sequence[Chain]], Table]


class Bindings:
    """Those of a plan. running: its calls that are not constant. target: chains are for."""

    def __init__(
        self, plan: Plan, running: Sequence[int], persistent: frozenset[int],
        target: Target | None = None,
    ) -> None:  # fmt: skip
        self._target = target
        self._plan, self._running, self._persistent = plan, running, persistent
        self._deciding = sorted(plan.deciding)
        self._needed: dict[tuple[int, ...], Calls] = {}
        self._orders: dict[Calls, Order] = {}
        self._made: dict[tuple[Calls, tuple[int, ...]], list[Binding]] = {}

    def find(self, sizes: Mapping[str, int], table: Laid) -> Binding:
        """For these sizes; made now if none fits. table: of calls whose temporaries lie at offsets,
        in rooms."""
        deciding, plan = _values(sizes, self._deciding), self._plan
        running = remembered(
            self._needed, deciding, lambda: tuple(plan.needed(self._running, sizes)), REMEMBERED
        )
        order = remembered(self._orders, running, lambda: self._order(running), REMEMBERED)
        key = running, _values(sizes, order.fixed)
        known = remembered(self._made, key, list[Binding], REMEMBERED)
        wanted = {m: plan.memories[m].bytes(sizes) for m in order.varying}
        found = next((each for each in known if each.fits(wanted)), None)
        if found is None:
            found = self._make(order, sizes, table, bool(known))
            known[:] = [*known[1 - REMEMBERED :], found]
        return found

    def _order(self, running: Calls) -> Order:
        plan = self._plan
        chains = chains_of(plan, running, self._target) if self._target else []
        running = neighbours(running, chains)
        lives = plan.lives(running, self._persistent, [chain.calls for chain in chains])
        around = {memory for loop in plan.loops for memory in loop.around}
        fixed = [extent for m in around for extent in plan.memories[m].shape]
        fixed += [loop.length for loop in plan.loops if loop.length is not None]
        varying = [m for m in lives if names_of(plan.memories[m].shape)]
        return Order(running, lives, varying, sorted(names_of(fixed)), chains)

    def _make(self, order: Order, sizes: Mapping[str, int], table: Laid, spare: bool) -> Binding:
        rooms = {m: self._plan.memories[m].bytes(sizes) for m in order.lives}
        for memory in order.varying if spare else ():
            rooms[memory] += rooms[memory] // SPARE
        threads = self._target.threads if self._target else 1
        parts = dict[int, tuple[int, int]]()  # of threads: memories that lie in the first's room
        for chain in order.chains:
            inside, block = chain.block(self._plan)
            parts |= {m: (min(inside), beyond) for m, beyond in inside.items()}
            rooms |= dict.fromkeys(inside, threads * block)
        apart = {m: life for m, life in order.lives.items() if parts.get(m, (m, 0))[0] == m}
        placed = place([Life(*life, rooms[m]) for m, life in apart.items()])
        offsets = dict(zip(apart, placed.offsets))
        offsets |= {m: offsets[first] + beyond for m, (first, beyond) in parts.items()}
        made = table(order.running, offsets, rooms, order.chains)
        return Binding(order.running, offsets, rooms, placed.bytes, made, order.chains)


def _values(sizes: Mapping[str, int], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(sizes.get(name, 0) for name in names)
