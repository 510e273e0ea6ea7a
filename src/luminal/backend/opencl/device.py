"""One OpenCL device: a queue, buffers, kernels built by its driver.

A GPU comes before a CPU.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import CompileError, DeviceError, to_install
from ...kernel.program import Program
from ...kernel.target import Target
from .. import text
from ..contract import Accelerator
from ..text.render import kernel_name

FLAGS = ["-cl-fp32-correctly-rounded-divide-sqrt"]
WARP = 32  # work-items that work on a unit together
GROUP = 64  # of a group on a GPU where each has units of its own; a CPU takes groups of one
GROUPS = 4  # of a compute unit
SHARED = 48 << 10  # bytes of a group's memory, at most


class OpenCL(Accelerator):
    """`library`: pyopencl. `device`: one of its devices."""

    def __init__(self, library: Any, device: Any) -> None:
        self.__name__ = __name__
        self._cl, self._device = library, device
        self._context = library.Context([device])
        self._queue = library.CommandQueue(self._context)
        self._built: dict[bytes, Any] = {}
        self._lock = threading.Lock()
        is_cpu = bool(device.type & library.device_type.CPU)
        self._group = 1 if is_cpu else min(GROUP, device.max_work_group_size)
        self._workers = self._group * GROUPS * device.max_compute_units
        self._dialect = replace(text.OPENCL, lacks=() if device.double_fp_config else ("f64",))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, ()

    @property
    def name(self) -> str:
        return f"{self._device.platform.name.strip()}: {self._device.name.strip()}"

    # ---- code

    def target(self, threads: int) -> Target:
        """The work-items of a unit hand each other numbers through the memory of their group."""
        shared = min(SHARED, self._device.local_mem_size)
        return text.group_target(WARP, GROUPS * self._device.max_compute_units, shared)

    def render(self, program: Program, target: Target) -> str:
        return text.render(program, self._dialect)

    def fingerprint(self, target: Target) -> str:
        return f"{self.name} {self._device.driver_version} {replace(target, hint=0)!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return (self.name,)

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Any]:
        """Built together: a driver takes about a second for each text that it is given."""
        with self._lock:
            return [(self._cl.Kernel(self._program(code), kernel_name(program)), program)
                    for code, program in zip(codes, programs, strict=True)]  # fmt: skip

    def _program(self, code: bytes) -> Any:
        if code not in self._built:
            try:
                made = self._cl.Program(self._context, code.decode())
                self._built[code] = made.build(options=FLAGS)
            except self._cl.Error as error:
                raise CompileError(f"{self.name} refused the text of a kernel: {error}") from error
        return self._built[code]

    def workspace_bytes(self, program: Program) -> int:
        return text.workspace_bytes(program, self._dialect, self._workers)

    # ---- memory

    def allocate(self, size: int) -> Any:
        try:
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)
        except self._cl.Error as error:
            raise DeviceError(f"{self.name} has no {size} bytes left: {error}") from error

    def write(self, buffer: Any, array: np.ndarray) -> None:
        self._cl.enqueue_copy(self._queue, buffer, _plain(array), is_blocking=True)

    def read(self, buffer: Any, array: np.ndarray) -> None:
        self._cl.enqueue_copy(self._queue, _plain(array), buffer, is_blocking=True)

    def copy(
        self, target: Any, source: Any, size: int, target_at: int = 0, source_at: int = 0
    ) -> None:
        where = {"byte_count": size, "src_offset": source_at, "dst_offset": target_at}
        self._cl.enqueue_copy(self._queue, target, source, **where)

    # ---- running

    def launch(
        self, kernel: Any, buffers: Sequence[Any], sizes: Sequence[int], workspace: Any
    ) -> None:
        function, program = kernel
        numbers = [np.int64(size) for size in sizes]
        group = program.threads or self._group
        most = self._workers // self._group
        each = 1 if program.threads else group  # units that a group works on at once
        items = group * min(most, max(1, -(-text.units(program, sizes) // each)))
        function(self._queue, (items,), (group,), *buffers, *numbers, workspace)

    def finish(self) -> None:
        self._queue.finish()


def _plain(array: np.ndarray) -> np.ndarray:
    """As bytes: the library knows no bf16."""
    return array.reshape(-1).view(np.uint8)


@functools.cache
def device() -> OpenCL:
    """The first GPU that builds a kernel, else the first such device. Raises DeviceError."""
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"OpenCL needs pyopencl: {to_install('opencl')}") from error
    try:
        found = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    except pyopencl.Error:
        found = []
    if not found:
        raise DeviceError(
            "no OpenCL platform is found: install the driver of your GPU, or the one for CPUs "
            f"that comes with {to_install('opencl')}"
        )
    refused = []
    for each in sorted(found, key=lambda d: not d.type & pyopencl.device_type.GPU):
        try:
            made = OpenCL(pyopencl, each)
            made._program(b"__kernel void k(__global int* a) { a[0] = 1; }")
            return made
        except (pyopencl.Error, CompileError) as error:  # PoCL 3.0 knows no CPU later than Zen 3
            refused.append(f"{each.name.strip()}: {error}")
    raise DeviceError("no OpenCL device can be used: install a driver that knows yours, for CPUs "
                      f"such as Debian's pocl-opencl-icd: {'; '.join(refused)}")  # fmt: skip
