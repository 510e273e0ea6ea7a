"""A backend in one file: text, the system's compiler, ctypes. It shows what a new device takes:
loop programs in scalars, text, memory, a launch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from luminal.backend import text
from luminal.backend.contract import Accelerator
from luminal.backend.text.render import kernel_name
from luminal.errors import CompileError, DeviceError
from luminal.kernel.program import Program
from luminal.kernel.target import Target

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ("-shared", "-fPIC", "-O0", "-fno-strict-aliasing", "-ffp-contract=off", "-w")
WORKERS = 3


class CDevice(Accelerator):
    """Workers run one after the other, the last one first."""

    __name__ = __name__

    def target(self, threads: int) -> Target:
        if COMPILER is None:
            raise DeviceError("no C compiler is found")
        return Target("scalar", vector_bytes=4, registers=32, threads=threads, index_bits=32)

    def render(self, program: Program, target: Target) -> str:
        return text.render(program, text.C)

    def fingerprint(self, target: Target) -> str:
        return f"{text.C.name} {replace(target, threads=1)!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return ("a C compiler",)

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        return () if COMPILER else tuple(needs)

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Any]:
        pairs = zip(codes, programs, strict=True)
        return [_function(code, kernel_name(p)) for code, p in pairs]

    def workspace_bytes(self, program: Program) -> int:
        return text.workspace_bytes(program, text.C, WORKERS)

    def allocate(self, size: int) -> np.ndarray:
        return np.full(size, 0xFF, np.uint8)  # NaN: what is not written shows

    def write(self, buffer: np.ndarray, array: np.ndarray) -> None:
        buffer[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def read(self, buffer: np.ndarray, array: np.ndarray) -> None:
        array[...] = buffer[: array.nbytes].view(array.dtype).reshape(array.shape)

    def copy(self, target: np.ndarray, source: np.ndarray, size: int, target_at: int = 0,
             source_at: int = 0) -> None:  # fmt: skip
        target[target_at : target_at + size] = source[source_at : source_at + size]

    def launch(self, kernel: Any, buffers: Sequence[Any], sizes: Sequence[int],
               workspace: np.ndarray) -> None:  # fmt: skip
        pointers = [ctypes.c_void_p(b.ctypes.data) for b in buffers]
        numbers = [ctypes.c_int64(n) for n in sizes]
        for worker in reversed(range(WORKERS)):
            where = [ctypes.c_int64(worker), ctypes.c_int64(WORKERS)]
            kernel(*pointers, *numbers, ctypes.c_void_p(workspace.ctypes.data), *where)

    def finish(self) -> None:
        """Every launch has waited."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="luminal-c-")


@functools.cache
def _function(code: bytes, name: str) -> Any:
    """The kernel of a text, from a library of its own."""
    library = Path(_folder().name) / f"{hashlib.sha256(code).hexdigest()}.so"
    command = [str(COMPILER), *FLAGS, "-x", "c", "-o", str(library), "-", "-lm"]
    done = subprocess.run(command, input=code, capture_output=True)
    if done.returncode:
        raise CompileError(f"{done.stderr.decode()}\n{code.decode()}")
    made = ctypes.CDLL(str(library))
    function = getattr(made, name)
    function.restype = None
    return function
