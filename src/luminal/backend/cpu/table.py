"""Plans in the form that the native code of `crew_text` and `loop_text` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError
from ..table import Begin, Chain, Entry, Step, Turns
from . import loop_text as words
from . import memory

BARRIER, LOOP = 1, 2  # flags of a row
ENDLESS = (1 << 63) - 1


@dataclass(frozen=True)
class Functions:
    """Addresses of the functions that begin and end the steps of loops, and run chains."""

    begin: int
    turn: int
    chain: int


class Table:
    """A row an entry: function, arguments, flags, bytes between the arguments of two threads. ran:
    set as a crew begins, which always ends."""

    def __init__(self, entries: Sequence[Step], loops: Functions) -> None:
        self._rows = np.zeros((max(1, len(entries)), 4), np.int64)
        self._records: list[np.ndarray] = []
        begun: list[tuple[int, np.ndarray]] = []
        for number, (row, entry) in enumerate(zip(self._rows, entries)):
            if isinstance(entry, Entry):
                row[:] = entry.function, entry.arguments, int(entry.barrier), entry.apart
                continue
            if isinstance(entry, Chain):
                record = _chain(entry)
                self._records.append(record)
                row[:] = loops.chain, record.ctypes.data, int(entry.barrier), 0
                continue
            if isinstance(entry, Begin):
                records = _records(entry.turns)
                self._records.append(records)
                begun.append((number, records))
                function = loops.begin
            else:
                first, records = begun.pop()
                records[:, words.AHEAD] = number - first - 1
                records[:, words.BACK] = first - number
                function = loops.turn
            apart = records.strides[0]
            row[:] = function, records.ctypes.data, BARRIER | LOOP, apart
        if begun:
            raise CompileError("a plan begins a loop that does not end")
        self.address = self._rows.ctypes.data
        self.count = len(entries)
        self.ran = False

    def __len__(self) -> int:
        return self.count


def _chain(chain: Chain) -> np.ndarray:
    """As `chain_text` reads it: the head, rows, what is patched, blocks of each thread."""
    rows, owned, words = len(chain.entries), len(chain.own), _lines(sum(chain.words))
    starts = 24, 24 + 4 * rows, _lines(24 + 4 * rows + 3 * owned)
    record = memory.zeros((8 * (starts[2] + words * chain.threads),), np.uint8).view(np.int64)
    first, patches, blocks = (record[start:].ctypes.data for start in starts)
    record[:7] = first, rows, chain.units, patches, owned, blocks, 8 * words
    behind = [8 * sum(chain.words[:n]) for n in range(rows)]
    for row, (entry, count) in enumerate(zip(chain.entries, chain.words)):
        record[starts[0] + 4 * row :][:4] = entry.function, entry.arguments, 8 * count, behind[row]
    for row, own in enumerate(chain.own):
        position = behind[own.entry] + 8 * own.argument
        record[starts[1] + 3 * row :][:3] = position, own.apart, own.part
    return record


def _lines(words: int) -> int:
    """Whole lines, in words."""
    return -(-words // 8) * 8


def _records(turns: Sequence[Turns]) -> np.ndarray:
    """One record a thread; see `loop_text`."""
    length = max(map(_words, turns))
    records = memory.zeros((len(turns), -(-length // 8) * 8), np.int64)  # whole cache lines
    for record, mine in zip(records, turns):
        _fill(record, mine)
    return records


def _words(turns: Turns) -> int:
    places = sum(len(pointer.places) for pointer in turns.pointers)
    count = len(turns.carried) * words.CARRY_WORDS + len(turns.pointers) * words.POINTER_WORDS
    return words.HEAD + count + places


def _fill(record: np.ndarray, turns: Turns) -> None:
    start = words.HEAD + len(turns.carried) * words.CARRY_WORDS
    now: list[int] = []  # address of each pointer
    for pointer in turns.pointers:
        now.append(record.ctypes.data + 8 * start)
        head = pointer.start, pointer.other, pointer.beyond, pointer.step
        record[start + 2 : start + 6] = head
        record[start + 7] = len(pointer.places)
        start += words.POINTER_WORDS
        record[start : start + len(pointer.places)] = pointer.places
        start += len(pointer.places)
    for own, pointer in zip(now, turns.pointers):
        source = own if pointer.follows is None else now[pointer.follows]
        record[(own - record.ctypes.data) // 8 + 6] = source
    for number, carry in enumerate(turns.carried):
        at = words.HEAD + number * words.CARRY_WORDS
        record[at : at + words.CARRY_WORDS] = (
            carry.initial, carry.first, now[carry.new], carry.result, carry.bytes,
        )  # fmt: skip
    record[words.COUNT] = ENDLESS if turns.count is None else turns.count
    if turns.conditional:
        record[words.FIRST] = turns.carried[0].initial
        record[words.NEXT] = now[turns.carried[0].new]
    record[words.CARRIED], record[words.MOVED] = len(turns.carried), len(turns.pointers)
