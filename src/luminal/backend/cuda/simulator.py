"""`device="cuda:sim"`: CUDA text that a C++ compiler makes for the host, run thread by thread.

All kernels of a program are one library, kept in the user's cache. It says what the text computes,
in which order of threads whatever; not how fast it is.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...container import whole
from ...errors import CompileError, DeviceError, WrongResult
from ...folders import user_folder
from ...kernel.layout import Storage
from ...kernel.program import Program
from ...kernel.target import Target
from ...store import Store
from .. import text
from ..launch import Joined
from ..text.writer import written
from . import nvrtc
from .limits import like, shared_bytes
from .matrices import instructions_of
from .model import predicted
from .prelude import DIALECT
from .shape import BANDWIDTH, Shape, group_target, launch_shape, workers
from .together import Counted

PRELUDE = "".join(
    Path(__file__).with_name("simulated").joinpath(f"{part}.hpp").read_text()
    for part in ("threads", "memory", "meetings", "instructions", "staged", "launch")
)
FLAGS = ("-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w",
         "-U_FORTIFY_SOURCE", "-fwrapv", "-fvisibility=hidden")  # fmt: skip
MESSAGE = 256
MULTIPROCESSORS = 2
MOST_KEPT = 256 << 20  # bytes
ARCH = "sm_90a"  # that it is like
LIKE = replace(like(ARCH), multiprocessors=MULTIPROCESSORS, bandwidth=MULTIPROCESSORS * BANDWIDTH)


class Slot(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("number", ctypes.c_longlong),
                ("shadows", ctypes.c_void_p))  # fmt: skip


class Launch(ctypes.Structure):
    _fields_ = (("blocks", ctypes.c_int), ("threads", ctypes.c_int), *(
        (name, ctypes.c_longlong) for name in ("shared", "order", "seed", "races", "together")
    ))  # fmt: skip


@dataclass(frozen=True)
class Language:
    """Text that a C++ compiler takes. before: what stands between the simulator and it. lanes: of a
    warp. places: numbers of a thread that a kernel takes behind its arguments (`Argument`)."""

    dialect: text.Dialect
    target: Target
    before: str = ""
    lanes: int = 32
    places: int = 0


CUDA = Language(DIALECT, group_target(
    MULTIPROCESSORS, instructions_of(ARCH), staging=shared_bytes(ARCH)
))  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    program: Program | Joined
    function: Any
    simulate: Any
    written: frozenset[str]


class Simulator(Counted):
    """order: of threads and blocks: 0 forward, 1 backward, else at random, in an order of its own
    for each launch. races: two threads that meet in memory with no barrier between are an error.
    sanitize: what `-fsanitize=` takes."""

    def __init__(self, order: int = 2, races: bool = False, sanitize: str = "",
                 language: Language = CUDA) -> None:  # fmt: skip
        self.__name__, self.language, self.dialect = __name__, language, language.dialect
        self.gpu = LIKE
        self.order, self.races, self.sanitize = order, races, sanitize
        self.steady = True
        self._launches = 0
        self._clock: float | None = None  # seconds, while they are asked for
        self._lock = threading.Lock()  # a library runs one block at a time

    def __reduce__(self) -> tuple[Any, ...]:
        return Simulator, (self.order, self.races, self.sanitize, self.language)

    @property
    def name(self) -> str:
        return f"{self.dialect.name} text simulated on the host, by {compiler()}"

    # ---- code

    def target(self, threads: int) -> Target:
        compiler()
        return self.language.target

    def render(self, program: Program, target: Target) -> str:
        return text.render(program, self.dialect)

    def fingerprint(self, target: Target) -> str:
        return f"{self.dialect.name}:sim {target!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return ("a C++ compiler",)

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        return () if found_compiler() else tuple(needs)

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Kernel]:
        return self._kernels(codes, programs)

    def joined_kernels(self, codes: Sequence[bytes], joined: Sequence[Joined]) -> list[Kernel]:
        return self._kernels(codes, joined)

    def _kernels(
        self, codes: Sequence[bytes], programs: Sequence[Program | Joined]
    ) -> list[Kernel]:
        texts = [code.decode() for code in codes]
        names = [text.kernel_name(program) for program in programs]
        made = library(tuple(zip(names, texts)), self.sanitize,
                       self.language.before, self.language.lanes)  # fmt: skip
        return [Kernel(p, getattr(made, f"simulated_{n}"), made.simulate, _written(p))
                for n, p in enumerate(programs)]  # fmt: skip

    # ---- memory

    def workspace_bytes(self, program: Program) -> int:
        return text.workspace_bytes(
            program, self.dialect, workers(program, MULTIPROCESSORS)
        )

    def allocate(self, size: int) -> np.ndarray:
        return np.full(size, 0xFF, np.uint8)  # NaN: what is not written shows

    def write(self, buffer: np.ndarray, array: np.ndarray) -> None:
        buffer[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, buffer: np.ndarray, array: np.ndarray) -> None:
        array.reshape(-1).view(np.uint8)[:] = buffer[: array.nbytes]

    def copy(self, target: np.ndarray, source: np.ndarray, size: int, target_at: int = 0,
             source_at: int = 0) -> None:  # fmt: skip
        target[target_at : target_at + size] = source[source_at : source_at + size]
        if self._clock is not None:
            self._clock += 2 * size / LIKE.bandwidth

    # ---- running

    def launch(
        self, kernel: Kernel, buffers: Sequence[Any], sizes: Sequence[int], workspace: Any
    ) -> None:
        program = kernel.program
        shape = launch_shape(program, sizes, MULTIPROCESSORS)
        extents = dict(zip(program.sizes, sizes, strict=True))
        slots = []
        for buffer, array in zip(program.buffers, buffers, strict=True):
            storage = Storage(buffer.shape, program.layouts.get(buffer.name, ()))
            needed = int(storage.size.evaluate(extents)) * buffer.dtype.bytes
            slots.append(Slot(array.ctypes.data, min(needed, array.nbytes),
                              int(buffer.name in kernel.written)))  # fmt: skip
        slots += [Slot(None, size, None) for size in sizes]
        slots.append(Slot(workspace.ctypes.data, workspace.nbytes, None))
        slots += [Slot(None, place, None) for place in range(self.language.places)]
        with self._lock:
            self._launches += 1
            self._run(kernel, slots, shape)
            if self._clock is not None:
                known = dict(zip(program.sizes, map(int, sizes), strict=True))
                self._clock += self._predicted(program, known)

    def _run(self, kernel: Kernel, slots: list[Slot], shape: Shape) -> None:
        how = Launch(shape.blocks, shape.threads, shape.shared, self.order, self._launches,
                     self.races, isinstance(kernel.program, Joined))  # fmt: skip
        message = ctypes.create_string_buffer(MESSAGE)
        array = (Slot * len(slots))(*slots)
        if kernel.simulate(kernel.function, array, len(slots), ctypes.byref(how), message):
            raise WrongResult(f"{kernel.program.name}: {message.value.decode()}")

    def _predicted(self, program: Program | Joined, sizes: Mapping[str, int]) -> float:
        if isinstance(program, Program):
            return predicted(program, sizes, LIKE, self.target(1))[0]
        found = (predicted(part, sizes, LIKE, self.target(1))[0] for part in program.parts)
        own = sum(seconds - self.target(1).launch for seconds in found)
        return own + self.meeting_seconds(program, sizes)

    def finish(self) -> None:
        """Every launch has waited."""

    def seconds(self, work: Callable[[], None]) -> float:
        """What such a GPU would take by what its warps do: the same each time (see `model`)."""
        self._clock = 0.0
        try:
            work()
            return self._clock
        finally:
            self._clock = None

    def check(self) -> dict[str, float]:
        from .checks import differences

        return differences(self, ARCH)

    def resources(self, texts: Sequence[str]) -> list[dict[str, int]]:
        return nvrtc.resources(texts, ARCH)


def _written(program: Program | Joined) -> frozenset[str]:
    if isinstance(program, Program):
        return written(program)
    parts = enumerate(program.parts)
    return frozenset(f"{number} {name}" for number, part in parts for name in written(part))


@functools.cache
def found_compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")


def compiler() -> str:
    """Raises DeviceError."""
    found = found_compiler()
    if found is None:
        raise DeviceError('device="cuda:sim" needs a C++ compiler: install g++ or clang++')
    return found


@functools.lru_cache(64)
def library(
    kernels: tuple[tuple[str, str], ...], sanitize: str = "", before: str = "", lanes: int = 32
) -> Any:
    """The loaded library of named texts. Raises CompileError."""
    made = ctypes.CDLL(str(library_path(kernels, sanitize, before, lanes)))
    made.simulate.restype = ctypes.c_int
    return made


def library_path(
    kernels: Sequence[tuple[str, str]], sanitize: str = "", before: str = "",
    lanes: int = 32,
) -> Path:  # fmt: skip
    """The library of named texts: `simulated_0`, ... and `simulate`. Raises CompileError."""
    source = "".join(
        f"namespace kernel_{n} {{\n{body}\n}}\n"
        f"SEEN void simulated_{n}(const simulator::Slot* s)"
        f" {{ simulator::call(kernel_{n}::{name}, s); }}\n"
        f"SEEN const int simulated_{n}_parameters = simulator::parameters(kernel_{n}::{name});\n"
        for n, (name, body) in enumerate(kernels)
    )
    head = f"#define LUMINAL_LANES {lanes}\n" + PRELUDE
    source = head + before + source
    flags = [*FLAGS, "-O0", *sanitizing(sanitize)]
    key = hashlib.sha256("\0".join([compiler(), *flags, source]).encode()).hexdigest()
    kept = _store().find(key, lambda path: path)
    path = Path(_temporary().name) / f"{key}.so"
    if kept is None and not path.exists():
        _compile(source, flags, path)
        _store().keep(key, lambda kept: _copy(path, kept), path.stat().st_size)
    return kept or path


def sanitizing(kinds: str) -> list[str]:
    return [f"-fsanitize={kinds}", "-fno-sanitize-recover=all", "-g"] if kinds else []


def _store() -> Store:
    """The user's: none where somebody else may write."""
    base = user_folder()
    return Store(base and base / "simulated", MOST_KEPT, "simulated kernels", ".so")


def _copy(path: Path, kept: Path) -> None:
    with whole(kept) as file:
        file.write(path.read_bytes())


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="luminal-sim-")


def _compile(source: str, flags: Sequence[str], path: Path) -> None:
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    command = [compiler(), *flags, "-x", "c++", "-o", str(part), "-"]
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    if done.returncode:
        part.unlink(missing_ok=True)
        raise CompileError(f"the C++ compiler refused the text of a kernel: {done.stderr.decode()}")
    os.replace(part, path)
