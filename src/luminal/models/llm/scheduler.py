"""Which tokens of which sequences run next: continuous batching over a paged cache.

A run takes at most `chunk` tokens: one of every sequence that is generating, the rest from prompts,
oldest first. So a long prompt is computed in parts beside the others' replies. A sequence joins
when its tokens fit the free pages. Where a running one finds no page, the youngest gives its pages
back and is computed again later.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from ...errors import InputError
from .pages import Pages, extend_keys


@dataclass(eq=False)
class Sequence:
    """tokens: the prompt, then what was generated. cached: how many have keys and values. pages:
    where those are. keys: of its first full pages. wanted: from which token on logits are wanted
    though others follow it; None: only those of the last one. guess: what may follow the tokens, to
    be checked by the next run. seat: its number among those that run; None: it waits.
    adapter: its number from 1 on, see `beside`; 0: none. reused: tokens of the prompt that were
    found in pages when it first ran. prompt: how many tokens that has."""

    tokens: list[int]
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    wanted: int | None = None
    guess: list[int] = field(default_factory=list)
    seat: int | None = None
    adapter: int = 0
    reused: int | None = None
    prompt: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)


@dataclass(frozen=True)
class Part:
    """The tokens start .. start + count - 1 of a sequence, whose keys and values go to these pages,
    its states to this seat, also if the sequence is removed before the run: nobody else gets them
    until the next plan."""

    sequence: Sequence
    start: int
    count: int
    pages: tuple[int, ...]
    seat: int

    @property
    def last(self) -> bool:
        """The next token is chosen from this part's last logits, or from those before a guess."""
        return self.start + self.count >= len(self.sequence.tokens)

    @property
    def tokens(self) -> list[int]:
        sequence, end = self.sequence, self.start + self.count
        return [*sequence.tokens[self.start : end], *sequence.guess[: self.guessed]]

    @property
    def guessed(self) -> int:
        """How many of its tokens are a guess."""
        return max(0, self.start + self.count - len(self.sequence.tokens))

    @property
    def wanted(self) -> int:
        """Of how many of its last tokens logits are wanted."""
        sequence = self.sequence
        first = len(sequence.tokens) - 1 if sequence.wanted is None else sequence.wanted
        return max(self.start + self.count - max(first, self.start), int(self.last))


class Scheduler:
    """running, then waiting: all sequences in the order of their arrival.

    pages, page: how many pages there are, and tokens in one. chunk: tokens in a run. batch: the
    most sequences that run at once. context: the most tokens that a sequence gets. reuse: whether
    a sequence may begin with pages that are full already.
    """

    def __init__(
        self, pages: int, page: int, chunk: int, batch: int, context: int, reuse: bool = True
    ) -> None:
        if not 1 <= batch < chunk:
            raise InputError(f"a run of {chunk} tokens must be longer than a batch of {batch}")
        if pages * page < context:
            raise InputError(f"{pages} pages of {page} tokens do not hold a context of {context}")
        self.pages, self.page, self.chunk, self.batch = Pages(pages), page, chunk, batch
        self.reuse, self._seats = reuse, list(range(batch))[::-1]
        self.unbroken: Callable[[list[int], int, int], int] | None = None  # see `Pictures`
        self.switch: int | None = None  # see `rows_at`
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.preempted = self.reused = 0  # sequences given up for others; tokens found in pages

    def add(self, sequence: Sequence) -> None:
        """A new sequence, last in the queue."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """A sequence ends, whatever its state: its pages are free."""
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self._give_up(sequence)

    def plan(self) -> list[Part]:
        """The parts of the next run, oldest sequence first; none where nothing waits or runs."""
        before = self.preempted
        room = self.chunk - sum(_generating(sequence) for sequence in self.running)
        parts: list[Part] = []
        for sequence in list(self.running):  # those preempted meanwhile come later in this list
            if sequence not in self.running:
                continue
            generating = _generating(sequence)
            more = self._guessed(sequence, room) if generating else self._fitting(sequence, room)
            wanted = generating + more
            if wanted and self._grow(sequence, wanted):
                parts.append(_part(sequence, wanted))
                room -= more
        while room and self.preempted == before and self._admit():
            sequence = self.running[-1]
            wanted = self._fitting(sequence, room)
            if not wanted:
                break
            self._grow(sequence, wanted)
            parts.append(_part(sequence, wanted))
            room -= wanted
        return parts

    def _fitting(self, sequence: Sequence, room: int) -> int:
        """How many of a prompt's tokens run in a room."""
        count = min(room, _rest(sequence))
        if self.unbroken is not None:
            return self.unbroken(sequence.tokens, sequence.cached, count)
        return count

    def ran(self, parts: Ordered[Part]) -> None:
        """The keys and values of these parts are in their pages now."""
        for part in parts:
            self._cached(part, len(part.sequence.tokens))

    def accepted(self, part: Part) -> None:
        """A reply took this part's guess, as far as its tokens are what was guessed."""
        self._cached(part, len(part.sequence.tokens) - 1)

    def _cached(self, part: Part, known: int) -> None:
        """known: how many tokens of the sequence are certain."""
        sequence = part.sequence
        sequence.cached = min(part.start + part.count, known)
        if sequence.wanted is not None:
            sequence.wanted = max(sequence.wanted, sequence.cached)
        for number in range(part.start // self.page, sequence.cached // self.page):
            self.pages.remember(sequence.pages[number], self._keys(sequence)[number])

    def _guessed(self, sequence: Sequence, room: int) -> int:
        """How much of a guess runs: nobody gives up a page for it; each may need one himself."""
        free = max(0, self.pages.available - len(self.running)) + len(sequence.pages)
        places = free * self.page - sequence.cached - 1
        return max(0, min(room, len(sequence.guess), places))

    def _admit(self) -> bool:
        """Let the oldest waiting sequence run, if its tokens fit beside the others."""
        if not self.waiting or len(self.running) == self.batch:
            return False
        sequence = self.waiting[0]
        first = len(sequence.tokens) - 1 if sequence.wanted is None else sequence.wanted
        usable = first // self.page  # what logits are wanted of must run
        found = self.pages.find(self._keys(sequence)[:usable]) if self.reuse else []
        self.pages.hold(found)
        spare = 1 if self.running else 0  # for the others to grow
        if self._missing(len(found), len(sequence.tokens)) + spare > self.pages.available:
            self.pages.release(found)
            return False
        self.waiting.pop(0)
        sequence.pages, sequence.cached = list(found), len(found) * self.page
        sequence.seat = self._seats.pop()
        self.reused += sequence.cached
        if sequence.reused is None:
            sequence.reused = sequence.cached
        self.running.append(sequence)
        return True

    def _grow(self, sequence: Sequence, wanted: int) -> bool:
        """Pages for more tokens, if need be those of the youngest; False: it was itself given up"""
        while True:
            missing = self._missing(len(sequence.pages), sequence.cached + wanted)
            if missing <= self.pages.available:
                sequence.pages += [self.pages.take() for _ in range(missing)]
                return True
            youngest = self.running.pop()
            self._give_up(youngest)
            self.waiting.insert(0, youngest)
            self.preempted += 1
            if youngest is sequence:
                return False

    def _give_up(self, sequence: Sequence) -> None:
        self.pages.release(sequence.pages)
        sequence.pages, sequence.cached = [], 0
        if sequence.seat is not None:
            self._seats.append(sequence.seat)
            sequence.seat = None

    def _missing(self, pages: int, tokens: int) -> int:
        return max(0, -(-tokens // self.page) - pages)

    def _keys(self, sequence: Sequence) -> list[bytes]:
        first = b"" if not sequence.adapter else b"adapter %d" % sequence.adapter
        if self.switch is not None and sequence.prompt > self.switch:
            first += b" long"
        extend_keys(sequence.keys, sequence.tokens, self.page, first)
        return sequence.keys


def _part(sequence: Sequence, wanted: int) -> Part:
    assert sequence.seat is not None
    return Part(sequence, sequence.cached, wanted, tuple(sequence.pages), sequence.seat)


def _rest(sequence: Sequence) -> int:
    return len(sequence.tokens) - sequence.cached


def _generating(sequence: Sequence) -> bool:
    return _rest(sequence) == 1
