"""Object files in memory, without LLVM: a process that runs what was compiled earlier does without
the compiler, which takes 80 MiB.

Format: ELF for x86-64 (System V ABI, AMD64 supplement, sections 4.1 to 4.4), as far as our kernels
need it: code and constants, which refer to each other by distance, and calls of outside functions.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, ...
SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
RELOCATION = struct.Struct("<QIIq")  # offset, type, symbol, addend
LITTLE_64, X86_64 = b"\x7fELF\x02\x01", 62
SYMBOLS, RELOCATIONS = 2, 4  # types of sections
LOADED, WRITABLE = 2, 1  # flags of sections
DISTANCES = (2, 4)  # R_X86_64_PC32, R_X86_64_PLT32
JUMP = struct.Struct("<6sQ")  # jmp *[rip], and the address behind it
READ_AND_RUN = 5  # PROT_READ | PROT_EXEC


class Unknown(ValueError):
    """An object with something that is not known here."""


def load(data: bytes, outside: Callable[[str], int]) -> tuple[dict[str, int], mmap.mmap]:
    """The addresses of an object's functions, and the memory in which they are as long as that is
    referred to. outside: the address of one that it calls, by name. Raises Unknown."""
    found = _Object(data)
    memory = mmap.mmap(-1, found.end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start, contents in found.contents():
        memory[start : start + len(contents)] = contents
    for name, start in found.calls.items():
        JUMP.pack_into(memory, start, b"\xff\x25\0\0\0\0", outside(name))
    for place, target in found.distances():
        struct.pack_into("<i", memory, place, target - place)
    base = int(np.frombuffer(memory, np.uint8).ctypes.data)
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(base), len(memory), READ_AND_RUN):
        raise Unknown("memory that cannot be executed")
    return {name: base + start for name, start in found.functions.items()}, memory


class _Object:
    """Where the parts of an object file lie in its memory: loaded sections one after the other,
    then a jump to each outside function. functions, calls: by name. end: bytes in all."""

    def __init__(self, data: bytes) -> None:
        self._data, self.end = data, 0
        head = HEADER.unpack_from(data)
        if not head[0].startswith(LITTLE_64) or head[2] != X86_64:
            raise Unknown("no ELF for x86-64")
        start, count = head[6], head[12]
        table = data[start : start + SECTION.size * count]
        self._sections = list(SECTION.iter_unpack(table))
        self._starts = {n: self._place(s) for n, s in enumerate(self._sections) if s[2] & LOADED}
        self.functions: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        (symbols,) = [section for section in self._sections if section[1] == SYMBOLS]
        names = self._sections[symbols[6]][4]
        self._symbols = [self._symbol(names, row) for row in self._rows(SYMBOL, symbols)]

    def _place(self, section: tuple[Any, ...]) -> int:
        if section[2] & WRITABLE:
            raise Unknown("data that can be written")
        align = max(1, section[8])
        start = -(-self.end // align) * align
        self.end = start + section[5]
        return start

    def _rows(self, row: struct.Struct, section: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        return row.iter_unpack(self._data[section[4] : section[4] + section[5]])

    def _symbol(self, names: int, row: tuple[Any, ...]) -> int | None:
        """Where a symbol lies; None if that is not in memory."""
        start, (offset, info, _, section, value, _) = names + row[0], row
        name = self._data[start : self._data.index(b"\0", start)].decode()
        if section in self._starts:
            place: int = self._starts[section] + value
            if info >> 4:  # not local
                self.functions[name] = place
            return place
        if section or not offset:
            return None
        self.calls[name] = self.end
        self.end += JUMP.size
        return self.calls[name]

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """(start, bytes) of the loaded sections."""
        for number, start in self._starts.items():
            offset, size = self._sections[number][4:6]
            yield start, self._data[offset : offset + size]

    def distances(self) -> Iterator[tuple[int, int]]:
        """(place, target): at the place stands how far it is to the target."""
        for section in self._sections:
            if section[1] == RELOCATIONS and section[7] in self._starts:
                for offset, kind, symbol, addend in self._rows(RELOCATION, section):
                    target = self._symbols[symbol]
                    if kind not in DISTANCES or target is None:
                        raise Unknown(f"a relocation of type {kind}")
                    yield self._starts[section[7]] + offset, target + addend
