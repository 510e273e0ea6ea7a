"""A plan as the threads of a device's crew execute it: entries, loops of entries, and the crew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Entry:
    """One step of a plan: function address, address of its arguments, and whether every thread
    waits after it until all have finished (needed before a step that reads what it wrote). apart:
    bytes between the arguments of one thread and the next, where each has its own."""

    function: int
    arguments: int
    barrier: bool = True
    apart: int = 0


@dataclass(frozen=True)
class Own:
    """An argument of a chain's entry that each thread has for itself, a part at a time: number of
    the entry, of the argument, bytes from one thread's to the next, bytes of a part."""

    entry: int
    argument: int
    apart: int
    part: int


@dataclass(frozen=True)
class Chain:
    """Entries that are run unit by unit, each unit by one thread, all entries in a row: what they
    pass on stays in its cache. words: of the arguments of each. units: into which each of them is
    divided. own: what lies in memory of threads."""

    entries: tuple[Entry, ...]
    words: tuple[int, ...]
    units: int
    threads: int
    own: tuple[Own, ...] = ()
    barrier: bool = False


@dataclass(frozen=True)
class Pointer:
    """One that a loop moves. start, other: where an address is found when the loop begins. At first
    it is the first of them, `beyond` bytes on; after a step it goes to the other and back, and
    `step` bytes on. places: the addresses at which arguments hold it. follows: the number of one
    behind it, from whose last value it goes on instead of its own."""

    start: int
    other: int
    beyond: int
    step: int
    places: tuple[int, ...]
    follows: int | None = None


@dataclass(frozen=True)
class Carry:
    """What a loop carries. initial, first, result: where the addresses are found of its first
    value, of where that is copied to, and of where the last is copied to. new: the number of the
    pointer to what a step makes."""

    initial: int
    first: int
    new: int
    result: int
    bytes: int


@dataclass(frozen=True)
class Turns:
    """A loop, as one thread runs it. count: steps; None: no limit. conditional: the first that is
    carried is a byte, and a step is made only while it is not 0."""

    count: int | None
    pointers: tuple[Pointer, ...]
    carried: tuple[Carry, ...]
    conditional: bool = False


@dataclass(frozen=True)
class Begin:
    """The entries up to its End are a loop; a barrier stands before. turns: of each thread."""

    turns: tuple[Turns, ...]


@dataclass(frozen=True)
class End:
    """Of the loop that was begun last; a barrier stands before."""


Step: TypeAlias = Entry | Chain | Begin | End


class Table(Protocol):
    """Entries in the form that the crew executes; made once, run many times. ran: set as a crew
    begins; an exception that arrives meanwhile (an interrupt) waits for its end."""

    ran: bool

    def __len__(self) -> int: ...


class Crew(Protocol):
    """Threads that execute plans; calls from several Python threads take turns."""

    @property
    def threads(self) -> int: ...

    def run(self, table: Any) -> None:
        """Execute every entry on all threads; returns when all is done."""
        ...

    def trace(self, entries: Sequence[Step]) -> np.ndarray:
        """Execute them once; the seconds of a clock at which each thread began and ended each
        entry that is no loop's: (entry, thread, 2), zeros where it did not run."""
        ...
