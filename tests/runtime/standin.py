"""A backend of the contract that runs kernels with `backend/reference`, without machine code."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.backend.cpu.target import named
from luminal.backend.reference.kernels import evaluate
from luminal.backend.table import Entry
from luminal.kernel.kernel import Kernel
from luminal.kernel.program import Program
from luminal.kernel.target import Target


def program_of(kernel: Kernel, layouts: dict[str, Any] | None = None) -> Program:
    """A program with no body: the stand-in looks at the kernel instead."""
    return Program(kernel.name, kernel.buffers, tuple(kernel.sizes), [], (), layouts or {})


@dataclass
class StandinCode:
    number: int
    code: bytes = b""

    def address(self, name: str) -> int:
        return self.number


class StandinTable(list[Entry]):
    ran = False


class Standin:
    """`log`: names of the kernels that ran, with "|" for a barrier."""

    def __init__(self) -> None:
        self.kernels: dict[int, Kernel] = {}
        self.log: list[str] = []
        self._numbers = itertools.count(1)

    def codes(self, kernels: Sequence[Kernel]) -> list[StandinCode]:
        made = []
        for kernel in kernels:
            number = next(self._numbers)
            self.kernels[number] = kernel
            made.append(StandinCode(number))
        return made

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        array = np.empty(tuple(shape), dtype)
        array.view(np.uint8)[...] = 0xFF  # NaN: what is not written shows
        return array

    def target(self, threads: int) -> Target:
        return named("avx2", threads)

    def counter_bytes(self, program: Program, threads: int) -> int:
        return 64 * (threads + 1)

    def workspace_bytes(self, program: Program) -> int:
        return 0

    def table(self, entries: Sequence[Entry]) -> StandinTable:
        return StandinTable(entries)

    def crew(self, threads: int) -> Standin:
        return self

    def run(self, table: StandinTable) -> None:
        table.ran = True
        for entry in table:
            kernel = self.kernels[entry.function]
            self.log.append(kernel.name)
            if entry.barrier:
                self.log.append("|")
            self._evaluate(kernel, entry.arguments)

    def _evaluate(self, kernel: Kernel, address: int) -> None:
        count = len(kernel.buffers) + 3 + len(kernel.sizes)
        slots = (ctypes.c_int64 * count).from_address(address)
        sizes = dict(zip(kernel.sizes, slots[len(kernel.buffers) + 3 :]))
        arrays = {}
        for buffer, pointer in zip(kernel.buffers, slots):
            shape = tuple(int(e.evaluate(sizes)) for e in buffer.shape)
            bytes_ = int(np.prod(shape)) * buffer.dtype.bytes
            raw = (ctypes.c_uint8 * bytes_).from_address(pointer)
            arrays[buffer.name] = np.frombuffer(raw, buffer.dtype.numpy).reshape(shape)
        evaluate(kernel, arrays, sizes)
