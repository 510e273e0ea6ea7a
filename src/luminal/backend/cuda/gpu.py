"""`device="cuda"` and `device="cuda:sm_90a"`: kernels compiled for an architecture, and, where a
GPU of it is, run there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import CompileError, DeviceError
from ...kernel.program import Program
from ...kernel.target import Target
from ...lowering.library import NAMES
from .. import text
from ..contract import Finished, Kept
from ..launch import Joined
from . import cublaslt, nvrtc
from .driver import Driver, Memory, opened
from .limits import like, shared_bytes
from .matrices import instructions_of
from .prelude import DIALECT
from .shape import group_target, launch_shape, workers
from .together import Counted

SPECIFIC = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")  # with an "a" variant
ELF = b"\x7fELF"


@dataclass
class Cubin:
    """What is being compiled; without NVRTC the text."""

    work: Future[nvrtc.Built] | None
    text: bytes

    @property
    def code(self) -> bytes:
        return self.text if self.work is None else self.work.result().code


@dataclass
class Kernel:
    """`function` is loaded when it is first launched; a call of a library has none."""

    code: bytes
    program: Program | Joined
    function: Any = None


class Cuda(Counted):
    """arch: as "sm_90a". open: its driver. compile: a text -> its machine code; None: NVRTC where
    it is found, else the text is kept and compiled when it is needed."""

    def __init__(
        self, arch: str, multiprocessors: int | None = None, open: Callable[[], Driver] = opened,
        compile: Callable[[str], bytes] | None = None,
    ) -> None:  # fmt: skip
        self.__name__, self.memory = __name__, "cuda"
        self.arch, self._open, self.dialect = arch, open, DIALECT
        gpu = like(arch)
        self.gpu = replace(gpu, multiprocessors=multiprocessors or gpu.multiprocessors)
        self._multiprocessors = self.gpu.multiprocessors
        self._compile = compile
        self._driver: Driver | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Cuda, (self.arch, self._multiprocessors, self._open, self._compile)

    @property
    def driver(self) -> Driver:
        """That of a GPU for which kernels are compiled. Raises DeviceError."""
        if self._driver is None:
            driver = self._open()
            if driver.arch != self.arch.rstrip("af"):
                raise DeviceError(
                    f"the program was compiled for {self.arch}, and {driver.name} is {driver.arch}"
                )
            self._driver = driver
        return self._driver

    @property
    def name(self) -> str:
        return self._driver.name if self._driver else f"an NVIDIA GPU of architecture {self.arch}"

    # ---- code

    def target(self, threads: int) -> Target:
        products = instructions_of(self.arch)
        return group_target(self._multiprocessors, products, self.gpu.clock, self.gpu.bandwidth,
                            self._libraries, shared_bytes(self.arch))  # fmt: skip

    @functools.cached_property
    def _libraries(self) -> tuple[str, ...]:
        """What may be called where this runs."""
        try:
            here = self.driver is not None and cublaslt.library() is not None
        except DeviceError:  # compiled here, run elsewhere
            here = False
        return tuple(NAMES.values()) if here else ()

    def render(self, program: Program, target: Target) -> str:
        if cublaslt.call_of(program) is not None:
            return cublaslt.MARK + text.kernel_name(program)
        return text.render(program, DIALECT)

    def build(self, texts: Sequence[str], target: Target) -> list[Cubin]:
        if self._compile is not None or not nvrtc.available():
            return [Cubin(None, each.encode()) for each in texts]
        return [
            Cubin(None if called(each) else nvrtc.begun(each, self.arch), each.encode())
            for each in texts
        ]

    def fingerprint(self, target: Target) -> str:
        gpu = f"{self._driver.name} driver {self._driver.version} " if self._driver else ""
        return f"cuda {self.arch} {gpu}{target!r}"

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Kernel]:
        return [Kernel(code, program) for code, program in zip(codes, programs, strict=True)]

    # ---- memory

    def workspace_bytes(self, program: Program) -> int:
        return text.workspace_bytes(program, text.CUDA, workers(program, self._multiprocessors))

    def allocate(self, size: int) -> Memory:
        return self.driver.allocate(size)

    def write(self, buffer: Memory, array: np.ndarray) -> None:
        self.driver.write(buffer, array)

    def read(self, buffer: Memory, array: np.ndarray) -> None:
        self.driver.read(buffer, array)

    def copy(self, target: Memory, source: Memory, size: int, target_at: int = 0,
             source_at: int = 0) -> None:  # fmt: skip
        self.driver.copy(target.address + target_at, source.address + source_at, size)

    def borrowed(self, address: int, size: int) -> Memory:
        return Memory(address, size)

    def queued_in(self, stream: int | None) -> AbstractContextManager[None]:
        return self.driver.queued_in(stream)

    # ---- running

    def launch(
        self, kernel: Kernel, buffers: Sequence[Any], sizes: Sequence[int], workspace: Any
    ) -> None:
        program = kernel.program
        if isinstance(program, Program) and kernel.code.startswith(cublaslt.MARK.encode()):
            self._call(program, buffers, sizes)
            return
        shape = launch_shape(program, sizes, self._multiprocessors)
        if kernel.function is None:
            name = text.kernel_name(program)
            kernel.function = self.driver.function(self._cubin(kernel.code), name, shape.shared)
        arguments = [*(b.address for b in buffers), *sizes, workspace.address]
        self.driver.launch(kernel.function, shape.blocks, shape.threads, shape.shared, arguments,
                           together=isinstance(program, Joined))  # fmt: skip

    def _call(self, program: Program, buffers: Sequence[Memory], sizes: Sequence[int]) -> None:
        library, call = cublaslt.opened(), cublaslt.call_of(program)
        assert call is not None
        room = self.driver.scratch(cublaslt.WORKSPACE)
        held = {b.name: (b.dtype, at.address) for b, at in zip(program.buffers, buffers)}
        kinds, addresses = zip(*(held[a.memory] for a in call.args[:3]))
        for product in cublaslt.products(program, sizes):
            library.multiply(product, kinds, addresses, room.address, self.driver.stream)

    def _cubin(self, code: bytes) -> bytes:
        if self._compile is not None:
            return self._compile(code.decode())
        return code if code.startswith(ELF) else nvrtc.compiled(code.decode(), self.arch).code

    def finish(self) -> None:
        self.driver.finish()

    def check(self) -> dict[str, float]:
        from .checks import differences

        return differences(self, self.arch)

    def resources(self, texts: Sequence[str]) -> list[dict[str, int]]:
        own = [each for each in texts if not called(each)]
        found = iter(nvrtc.resources(own, self.arch))
        return [{} if called(each) else next(found, {}) for each in texts]

    def joined_kernels(self, codes: Sequence[bytes], joined: Sequence[Joined]) -> list[Kernel]:
        return [Kernel(code, each) for code, each in zip(codes, joined, strict=True)]

    def registers(self, built: Kept) -> int:
        if isinstance(built, Finished):
            return built.registers
        assert isinstance(built, Cubin)
        return 0 if built.work is None else built.work.result().registers

    def spilled(self, built: Kept) -> int:
        assert isinstance(built, Cubin)
        return 0 if built.work is None else built.work.result().spilled

    def rates(self, threads: int) -> dict[str, float]:
        return self.gpu.rates()

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        return self.driver.recorded(work)

    def seconds(self, work: Callable[[], None]) -> float:
        return self.driver.seconds(work)


def called(source: str) -> bool:
    """A kernel is a call of a library."""
    return source.startswith(cublaslt.MARK)


def for_arch(arch: str) -> Cuda:
    """Compiles for an architecture, here or not. Raises DeviceError."""
    plain = arch.rstrip("af")
    if not plain.startswith("sm_") or not plain[3:].isdigit():
        raise DeviceError(f'there is no device "cuda:{arch}"; there are "cuda", "cuda:sim", and '
                          'architectures such as "cuda:sm_90a"')  # fmt: skip
    if nvrtc.available() and plain not in nvrtc.architectures():
        known = ", ".join(nvrtc.architectures())
        raise CompileError(f"NVRTC does not compile for {arch}, but for {known}")
    return Cuda(arch)


def present() -> Cuda:
    """The first GPU of this machine. Raises DeviceError."""
    driver = opened()
    nvrtc.library()
    arch = driver.arch + "a" * (driver.arch in SPECIFIC)
    made = Cuda(arch, driver.multiprocessors)
    assert made.driver is driver
    return made
