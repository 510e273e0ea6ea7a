"""A backend in one file: text, the system's compiler, ctypes. It shows what a new device takes:
loop programs in scalars, text, memory, a launch. Text for GPUs runs here too, after a few
definitions that make C++ of it: that says what it computes, not that their own compilers take it.
CUDA has a simulator of its own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
ROWS = [
    (name, letters, t, end)
    for letters, names in (("a", "sqrt exp2 log2 sin cos floor ceil trunc rint fabs"),
                           ("ab", "fmod copysign"), ("abc", "fma"))
    for name in names.split() for t, end in (("float", "f"), ("double", ""))
]  # fmt: skip
CALLS = "".join(
    f"static inline {t} {name}({', '.join(f'{t} {a}' for a in letters)})"
    f" {{ return __builtin_{name}{end}({', '.join(letters)}); }}\n"
    for name, letters, t, end in ROWS
)


@dataclass(frozen=True, eq=False)
class Host:
    """How a dialect becomes C++: what stands before its text; whether sizes are passed by their
    addresses."""

    dialect: text.Dialect
    before: str
    language: str = "c++"
    addresses: bool = False


COPY = """template <class To, class Of> static inline To copied(Of a)
{ To b; __builtin_memcpy(&b, &a, sizeof b); return b; }
"""
C = Host(text.C, "", language="c")
METAL = Host(
    text.METAL,
    COPY + "#define kernel extern \"C\"\n#define device\n#define constant const\n"
    "#define as_type copied\n#define INFINITY __builtin_inff()\ntypedef unsigned uint;\n"
    "namespace metal { " + CALLS + "namespace precise { " + CALLS + "} }\n",
    addresses=True,
)


@dataclass(frozen=True)
class Text:
    code: bytes


class CDevice(Accelerator):
    """Workers run one after the other, the last one first."""

    __name__ = __name__

    def __init__(self, host: Host = C) -> None:
        self.host = host

    def target(self, threads: int) -> Target:
        if COMPILER is None:
            raise DeviceError("no C compiler is found")
        return Target("scalar", vector_bytes=4, registers=32, threads=threads, index_bits=32)

    def render(self, program: Program, target: Target) -> str:
        return text.render(program, self.host.dialect)

    def build(self, texts: Sequence[str], target: Target) -> list[Text]:
        return [Text(each.encode()) for each in texts]

    def fingerprint(self, target: Target) -> str:
        return f"{self.host.dialect.name} {replace(target, threads=1)!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return ("a C compiler",)

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        return () if COMPILER else tuple(needs)

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Any]:
        pairs = zip(codes, programs, strict=True)
        return [_function(code, kernel_name(p), self.host) for code, p in pairs]

    def workspace_bytes(self, program: Program) -> int:
        return text.workspace_bytes(program, self.host.dialect, WORKERS)

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
        numbers: list[Any] = [ctypes.c_int64(n) for n in sizes]
        if self.host.addresses:
            numbers = [ctypes.byref(number) for number in numbers]
        for worker in reversed(range(WORKERS)):
            where = [ctypes.c_int64(worker), ctypes.c_int64(WORKERS)]
            rest = [*where, *where, ctypes.c_int64(0)]
            kernel(*pointers, *numbers, ctypes.c_void_p(workspace.ctypes.data), *rest)

    def finish(self) -> None:
        """Every launch has waited."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="luminal-c-")


@functools.cache
def _function(code: bytes, name: str, host: Host) -> Any:
    """The kernel of a text, from a library of its own."""
    library = Path(_folder().name) / f"{hashlib.sha256(code).hexdigest()}.so"
    source = host.before + code.decode().replace("#include <metal_stdlib>", "")
    command = [str(COMPILER), *FLAGS, "-x", host.language, "-o", str(library), "-", "-lm"]
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    if done.returncode:
        raise CompileError(f"{done.stderr.decode()}\n{source}")
    made = ctypes.CDLL(str(library))
    function = getattr(made, name)
    function.restype = None
    return function
