"""NVRTC: CUDA text -> machine code of one architecture, with what its log says of registers.

NVRTC compiles one text at a time in a process, so several processes share the work.
"""

from __future__ import annotations

import atexit
import functools
import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ... import cores
from ...children import Pool, serve
from ...errors import CompileError, DeviceError, to_install

OPTIONS = ("-std=c++17", "--ptxas-options=-v", "--minimal")
PROCESSES = 16
BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")


@dataclass(frozen=True)
class Built:
    """code: a cubin, or PTX. registers: of a thread; spilled: bytes of them in memory; stack: bytes
    of a thread, in memory too; shared: bytes of a block."""

    code: bytes
    registers: int = 0
    spilled: int = 0
    stack: int = 0
    shared: int = 0
    log: str = ""


@functools.cache
def library() -> Any:
    """The bindings, once the library is found. Raises DeviceError."""
    try:
        from cuda.bindings import nvrtc

        _checked(nvrtc, nvrtc.nvrtcVersion())
    except (ImportError, RuntimeError) as error:
        raise DeviceError(f"CUDA kernels need NVRTC: {to_install('cuda')} ({error})") from error
    return nvrtc


def available() -> bool:
    """NVRTC is here."""
    try:
        library()
    except DeviceError:
        return False
    return True


def architectures() -> tuple[str, ...]:
    """What it compiles for, as "sm_90". Raises DeviceError."""
    return tuple(f"sm_{n}" for n in _checked(library(), library().nvrtcGetSupportedArchs()))


def compiled(source: str, arch: str, kind: str = "cubin") -> Built:
    """kind: "cubin" or "ptx". arch: as "sm_90a". Where registers were spilled to leave room for
    further blocks, it is compiled for one. Raises CompileError, DeviceError."""
    built = _compiled(source, arch, kind)
    if built.spilled:
        alone = _compiled(BOUNDS.sub(r"__launch_bounds__(\1, 1)", source), arch, kind)
        built = min(built, alone, key=lambda each: each.spilled)
    return built


def _compiled(source: str, arch: str, kind: str) -> Built:
    nvrtc = library()
    name = arch if kind == "cubin" else arch.replace("sm_", "compute_")
    options = [option.encode() for option in (f"--gpu-architecture={name}", *OPTIONS)]
    made = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(made, len(options), options)
        log = _text(nvrtc, made, "ProgramLog").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC refused the text of a kernel for {arch}:\n{log}")
        return _described(_text(nvrtc, made, "CUBIN" if kind == "cubin" else "PTX"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(made)


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *rest = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"NVRTC failed: {status!r}")
    return rest[0] if len(rest) == 1 else rest


def _text(nvrtc: Any, program: Any, what: str) -> bytes:
    """Texts end in a zero, machine code has a size."""
    room = bytearray(_checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    filled = bytes(room)
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, filled))
    return filled if what == "CUBIN" else filled.rstrip(b"\0")


def _described(code: bytes, log: str) -> Built:
    def most(pattern: str) -> int:
        return max((int(n) for n in re.findall(pattern, log)), default=0)

    return Built(
        code, most(r"Used (\d+) registers"), most(r"(\d+) bytes spill stores"),
        most(r"(\d+) bytes stack frame"), most(r"(\d+) bytes smem"), log,
    )  # fmt: skip


# ---- several at a time


@functools.cache
def pool() -> Pool:
    """One for this process."""
    made = Pool(min(PROCESSES, cores.count()), __name__)
    atexit.register(made.close)
    return made


def begun(source: str, arch: str, kind: str = "cubin") -> Future[Built]:
    """As `compiled`, in another process."""
    return pool().submit(source, arch, kind)


def all_compiled(sources: Sequence[str], arch: str, kind: str = "cubin") -> list[Built]:
    """Several texts at once. Raises CompileError, DeviceError."""
    library()
    return [future.result() for future in [begun(source, arch, kind) for source in sources]]


def resources(sources: Sequence[str], arch: str) -> list[dict[str, int]]:
    """What each kernel takes; nothing where NVRTC is not here."""
    if not available():
        return []
    return [
        {"registers": b.registers, "spilled": b.spilled, "stack": b.stack, "shared": b.shared}
        for b in all_compiled(sources, arch)
    ]


def main() -> None:
    """A process of the pool."""
    serve(lambda message: compiled(*message))
