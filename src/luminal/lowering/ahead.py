"""Fetching what memory holds further on, while loops still read what stands here.

The loops around a load walk a region: the fewest of them that cover LEAST bytes, with those around
them that only read it again. While they do, their turns ask for the region behind, each for its
share, line by line, into the second cache.

    for j < 16:                              for j < 16:
      for i < 96:                              for i < 96:           (numbers of bytes)
        x = load panel + i * 768       -->       x = load panel + i * 768
                                                 prefetch panel + 73728 + j * 4608 + i * 48

So the rows of a product find the next panel of packed weights, a single row does not wait where a
page begins, and keys and values of one token arrive a block ahead: hardware foresees none of these.
Where a turn reads several panels side by side it does, and requests only stand in its way.

What is read once a long sum has ended, a few lines here and there, is asked for before it begins: a
tile's product hides that memory answers late.

    for i < 16:                              for i < 16:
      for k < 96:                              prefetch c + i * 8192, ... + 1024, ... + 7168
        sum += ...                             for k < 96:
      for j < 8:                                 sum += ...
        ... sum + load c + i * 8192 + j * 1024   for j < 8: ...
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TypeAlias

from ..graph.index import Index
from ..kernel.program import LINE
from .access import Access
from .place import Memory

LEAST = 4096  # bytes of a region that hardware does not follow to the next one
DENSE = 0.75  # of a region that is read
DISTANCE = 2048  # bytes to what is asked for where a region is read once
NARROW = 4  # bytes of elements that are computed with as they are
TURNS = 8  # of a loop whose count is not known
BURST = 1024  # bytes that a turn may ask for
PAGE = 4096  # bytes: what lies further apart is followed apart
LONG = 32  # vectors that a sum adds up for each line of a place that is asked for before it
FEW = 96  # such lines at most: a tile of 16 x 96 numbers of f32
FOLLOWED = 4  # streams that the hardware follows without help (8 of bf16: 15.4 to 20.0 GB/s)


@dataclass(frozen=True)
class Loop:
    """One that is open. count: 0 where it is not known. units: it is one over these."""

    name: str
    count: int = 0
    units: bool = False

    @property
    def turns(self) -> int:
        return self.count or TURNS


@dataclass(frozen=True)
class Region:
    """One to ask for, by the turns of these loops: so many elements each, from a place on."""

    memory: Memory
    loops: tuple[Loop, ...]
    place: Index
    share: int


# What is loaded: the memory, the loops that are open, and a place in it; numbers of elements behind
# the place -> how many are loaded from there on.
Read: TypeAlias = dict[tuple[Memory, tuple[Loop, ...], Index], dict[int, int]]


class Ahead:
    """`most`: bytes of the largest region to ask for. constants: buffers of which the region behind
    is read next; of another one it is if loops read all of it once, region by region."""

    def __init__(self, access: Access, most: int, constants: Collection[str]) -> None:
        self.access, self.most, self.constants = access, most, constants
        self.loops: tuple[Loop, ...] = ()  # that are open, outermost first
        self.read: Read = {}
        self.regions: list[Region] = []
        # By the loops around a sum that has ended: what it added up, and what is read behind it.
        self.behind: dict[tuple[Loop, ...], tuple[int, Read]] = {}
        access.note = self.note

    def note(self, memory: Memory, offset: Index, count: int) -> None:
        """So many elements are loaded from one on."""
        key = memory, self.loops, offset - offset.constant
        self.read.setdefault(key, {})[offset.constant] = count
        around = [loops for loops in self.behind if self.loops[: len(loops)] == loops]
        if around and memory.shape:  # a tile is in a cache
            late = self.behind[max(around, key=len)][1]
            late.setdefault(key, {})[offset.constant] = count

    def open(self, name: str, count: Index, units: bool = False) -> None:
        self.loops += (Loop(name, count.constant if count.is_constant else 0, units),)

    def close(self, sums: int = 0) -> None:
        """The innermost loop ends; its body is still open. sums: vectors that each turn adds to."""
        for key in [key for key in self.read if key[1] == self.loops]:
            self._find(key[0], key[2], self.read.pop(key))
        here = [region for region in self.regions if region.loops[-1] == self.loops[-1]]
        for region in dict.fromkeys(here):
            self._ask(region)
        self.regions = [region for region in self.regions if region not in here]
        added, depth = self._ask_behind(), len(self.loops)
        turns, outside = self.loops[-1].turns, self.loops[:-1]
        if sums and self.most:
            for _, read in self.behind.values():  # operands of this sum: hardware follows them
                for key in [key for key in read if key[1][:depth] == self.loops]:
                    del read[key]
            before, read = self.behind.get(outside, (0, {}))
            self.behind[outside] = before + turns * (sums + added), read
        self.loops = outside

    def end(self) -> None:
        """A unit ends."""
        self._ask_behind()
        self.loops = ()
        self.read.clear()
        self.behind.clear()

    def _find(self, memory: Memory, offset: Index, read: dict[int, int]) -> None:
        """The regions of loads whose places all loops move alike. read: number of an element behind
        the offset -> how many from there on; far apart, they are of different regions."""
        runs: list[list[int]] = []
        for number in sorted(read):
            if not runs or (number - runs[-1][-1]) * memory.dtype.bytes >= PAGE:
                runs.append([])
            runs[-1].append(number)
        for run in runs if len(runs) < FOLLOWED else []:
            size = run[-1] + read[run[-1]] - run[0]
            region = self._region(memory, offset + run[0], size, sum(read[n] for n in run))
            self.regions += [region] if region else []

    def _region(self, memory: Memory, place: Index, size: int, read: int) -> Region | None:
        """What lies behind that which all turns of the fewest loops read, if it is worth to ask for
        it: where one turn reads so much of `size` elements."""
        loops, each, first = self.loops, memory.dtype.bytes, len(self.loops)
        steps = [place.coefficient(loop.name) for loop in loops]
        units = sum(loop.units for loop in loops)
        while first > units and (size * each < LEAST or not steps[first - 1]):
            first -= 1
            size += steps[first] * (loops[first].count - 1)
            read *= loops[first].count if steps[first] else 1
            place = place - Index.of(loops[first].name) * steps[first]
        inside, around = loops[first:], {loop.name for loop in loops[:first]}
        again, moved = not all(steps[first:]), place.names() & around
        once = moved == around and all(steps[:first])
        follows = moved if memory.name in self.constants else once
        even = min(steps) >= 0 and place.names().isdisjoint(loop.name for loop in inside)
        worth = read >= DENSE * size and LEAST <= size * each <= self.most
        if not (inside and follows and even and worth and (again or each < NARROW)):
            return None
        if self._depth(place) >= self._depth(Index.of(inside[0].name)):
            return None  # data inside of the loops say where it is
        shares = [-(-size // turns) for turns in accumulate((loop.turns for loop in inside), mul)]
        few = (depth for depth, share in enumerate(shares, 1) if share * each <= BURST)
        depth = next(few, len(shares))
        begin = place + (size if again else DISTANCE // each)
        return Region(memory, inside[:depth], begin, shares[depth - 1])

    def _ask_behind(self) -> int:
        """Asks for what is read behind sums in the open body; what they added up."""
        added, late = self.behind.pop(self.loops, (0, {}))
        for (memory, loops, place), read in late.items():
            steps = {l: place.coefficient(l.name) for l in loops[len(self.loops) :]}
            place -= sum((Index.of(l.name) * step for l, step in steps.items()), Index.of(0))
            lines = _lines(memory, place, steps, read, min(FEW, added // LONG))
            if lines and self._known(place):
                self.access.prefetch(memory, place, lines)
        return added

    def _known(self, place: Index) -> bool:
        """Each turn of the open loop has another one, and nothing that is computed says which."""
        names, here = place.names(), {loop.name for loop in self.loops}
        moves = not self.loops or self.loops[-1].name in names
        return moves and all(self._depth(Index.of(name)) == 0 for name in names - here)

    def _depth(self, index: Index) -> int:
        return max((self.access.indexing.depth(monomial) for monomial, _ in index.terms), default=0)

    def _ask(self, region: Region) -> None:
        place, further = region.place, region.share
        for loop in region.loops[::-1]:
            turn = Index.of(loop.name) if loop.count else Index.of(loop.name).minimum(TURNS - 1)
            place, further = place + turn * further, further * loop.turns
        line = LINE // region.memory.dtype.bytes
        self.access.prefetch(region.memory, place, range(0, region.share, line))


def _lines(
    memory: Memory, place: Index, steps: Mapping[Loop, int], read: Mapping[int, int], few: int
) -> list[int]:
    """Elements behind a place, one for each line that turns of loops read (nearly, where places do
    not begin lines); none where they are many. steps: from turn to turn."""
    begins = [*read]
    for loop, step in steps.items():
        turns = range(loop.count) if step else range(1)
        if not turns or len(begins) * len(turns) > few * LINE:
            return []
        begins = [begin + turn * step for turn in turns for begin in begins]
    line, most = LINE // memory.dtype.bytes, max(read.values())
    found = {begin + n for begin in begins for n in range(0, most, line)}
    if all(coefficient % line == 0 for _, coefficient in place.terms):
        ends = {begin + most - 1 for begin in begins}
        found = {n // line * line for n in found | ends}
    return sorted(found) if len(found) <= few else []
