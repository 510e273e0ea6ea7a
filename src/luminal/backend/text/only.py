"""Devices whose text is written, and which are not run here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from ...errors import DeviceError
from ...kernel.program import Program
from ...kernel.target import Target
from ..contract import Accelerator
from . import clang
from .dialect import HIP, METAL, Dialect
from .launch import group_target
from .render import render, workspace_bytes

WORKERS = 1 << 16


class TextOnly(Accelerator):
    """Programs in a dialect: `Executable.sources` has them; a run raises DeviceError."""

    def __init__(
        self, name: str, dialect: Dialect, target: Target,
        resources: Callable[[Sequence[str]], list[dict[str, int]]] = lambda texts: [],
    ) -> None:  # fmt: skip
        self.__name__, self._dialect, self._target = name, dialect, target
        self._resources = resources

    def target(self, threads: int) -> Target:
        return self._target

    def render(self, program: Program, target: Target) -> str:
        return render(program, self._dialect)

    def fingerprint(self, target: Target) -> str:
        return f"{self.name} {target!r}"

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[bytes]:
        return [*codes]

    def workspace_bytes(self, program: Program) -> int:
        return workspace_bytes(program, self._dialect, WORKERS)

    def resources(self, texts: Sequence[str]) -> list[dict[str, int]]:
        return self._resources(texts)

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        raise DeviceError(
            f'programs for device="{self.name}" are written, not run: sources() has their kernels'
        )

    allocate = write = read = copy = launch = finish = _refuse


def metal() -> TextOnly:
    return TextOnly("metal", METAL, metal_target())


def metal_target() -> Target:
    """Apple's: 32 KiB of a threadgroup."""
    return group_target(32, 256, 32 << 10, exchanges=True)


def hip(arch: str) -> TextOnly:
    """arch: as "gfx942". Raises DeviceError."""
    if not arch.startswith("gfx"):
        raise DeviceError(f'there is no device "hip{":" * bool(arch)}{arch}": nothing runs on '
                          'GPUs of AMD yet; there are "hip:sim", "hip:sim32" and architectures '
                          'such as "hip:gfx942", which write and compile kernels')  # fmt: skip
    target = hip_target(64 if arch.startswith("gfx9") else 32)
    return TextOnly(f"hip:{arch}", HIP, target, partial(clang.resources, arch=arch))


def hip_target(wave: int) -> Target:
    """Waves of 64 threads on CDNA and GCN, of 32 on RDNA; 64 KiB of a group."""
    return group_target(wave, 4096, 64 << 10, exchanges=True, wide=16)
