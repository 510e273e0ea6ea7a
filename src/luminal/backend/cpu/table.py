"""Plans in the form that the native code of `crew_text` and `loop_text` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError
from ..table import Begin, End, Entry, Turns
from . import loop_text as words
from . import memory

BARRIER, LOOP = 1, 2  # flags of a row
ENDLESS = (1 << 63) - 1


@dataclass(frozen=True)
class Functions:
    """Addresses of the functions that begin and end the steps of loops."""

    begin: int
    turn: int


class Table:
    """A row an entry: function, arguments, flags, bytes between the arguments of two threads. ran:
    set as a crew begins, which always ends."""

    def __init__(self, entries: Sequence[Entry | Begin | End], loops: Functions) -> None:
        self._rows = np.zeros((max(1, len(entries)), 4), np.int64)
        self._records: list[np.ndarray] = []
        begun: list[tuple[int, np.ndarray]] = []
        for number, (row, entry) in enumerate(zip(self._rows, entries)):
            if isinstance(entry, Entry):
                row[:] = entry.function, entry.arguments, int(entry.barrier), entry.apart
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
