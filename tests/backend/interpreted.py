"""A machine that nobody has here: its kernels are rendered and compiled for it, and what runs is
the loop program, in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from oracles.program import interpret

from luminal.backend import cpu
from luminal.backend.contract import Accelerator, Finished
from luminal.graph.index import Index
from luminal.kernel.layout import packed_shape
from luminal.kernel.program import Program
from luminal.kernel.target import Target


@dataclass
class Interpreted(Accelerator):
    """A CPU by the name of its instruction set."""

    machine: str
    __name__ = __name__

    def target(self, threads: int) -> Target:
        return cpu.named(self.machine, threads)

    def render(self, program: Program, target: Target) -> str:
        return cpu.render(program, target)

    def build(self, texts: Sequence[str], target: Target) -> list[Finished]:
        return [Finished(made.code) for made in cpu.build(texts, target)]

    def fingerprint(self, target: Target) -> str:
        return f"interpreted {self.machine} {replace(target, threads=1)!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return (self.machine,)

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        return ()

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Any]:
        return list(programs)

    def workspace_bytes(self, program: Program) -> int:
        return 64

    def allocate(self, size: int) -> np.ndarray:
        return np.full(size, 0xFF, np.uint8)

    def write(self, buffer: np.ndarray, array: np.ndarray) -> None:
        buffer[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def read(self, buffer: np.ndarray, array: np.ndarray) -> None:
        array[...] = buffer[: array.nbytes].view(array.dtype).reshape(array.shape)

    def copy(self, target: np.ndarray, source: np.ndarray, size: int, target_at: int = 0,
             source_at: int = 0) -> None:  # fmt: skip
        target[target_at : target_at + size] = source[source_at : source_at + size]

    def launch(self, kernel: Program, buffers: Sequence[Any], sizes: Sequence[int],
               workspace: np.ndarray) -> None:  # fmt: skip
        given = dict(zip(kernel.sizes, sizes, strict=True))
        arrays = {}
        for buffer, memory in zip(kernel.buffers, buffers, strict=True):
            shape = [int(Index.of(n).evaluate(given)) for n in buffer.shape]
            layout = kernel.layouts.get(buffer.name) or buffer.layout
            shape = packed_shape(shape, layout) if layout else tuple(shape)
            count = int(np.prod(shape)) * buffer.dtype.bytes
            arrays[buffer.name] = memory[:count].view(buffer.dtype.numpy)
        interpret(kernel, arrays, given, 1, self.target(1).instructions)

    def finish(self) -> None:
        """Every launch has waited."""
