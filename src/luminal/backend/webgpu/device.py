"""One WebGPU device: launches and copies are gathered, and submitted when somebody waits."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import CompileError, DeviceError, Unsupported, to_install
from ...kernel.program import Program
from ...kernel.target import Target
from .. import text
from ..contract import Accelerator
from ..text import wgsl

WANTED = ("shader-int64", "shader-f64")  # of the device, where it is offered
LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size",
          "max-storage-buffers-per-shader-stage", "max-compute-workgroup-storage-size")  # fmt: skip
WARP = 32  # threads that work on a unit
MOST = 1 << 12  # groups of a launch
WORKSPACE = 1 << 26  # bytes that the tiles of all workers may take
TOGETHER = 64  # launches that are submitted at once


@dataclass(frozen=True)
class Kernel:
    program: Program
    pipeline: Any
    layout: Any


class WebGPU(Accelerator):
    """`library`: wgpu. `adapter`: one of its adapters."""

    def __init__(self, library: Any, adapter: Any) -> None:
        self.__name__ = __name__
        self._library, self._adapter = library, adapter
        offered = [name for name in WANTED if name in adapter.features]
        limits = {name: value for name, value in adapter.limits.items() if name in LIMITS}
        self._device = adapter.request_device_sync(
            required_features=offered, required_limits=limits
        )
        self._lacks = () if "shader-f64" in offered else ("f64",)
        self._buffers = limits["max-storage-buffers-per-shader-stage"]
        self._shared = limits["max-compute-workgroup-storage-size"]
        self._is_cpu = adapter.info["adapter_type"] == "CPU"
        self._layouts: dict[int, Any] = {}
        self._sizes: dict[tuple[int, ...], Any] = {}
        self._built: dict[bytes, Any] = {}
        self._lock = threading.Lock()
        self._encoder: Any = None
        self._waiting = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return device, ()

    @property
    def name(self) -> str:
        return f"WebGPU on {self._adapter.info['device']}"

    # ---- code

    def target(self, threads: int) -> Target:
        """The threads of a unit hand each other numbers through memory that they share."""
        return text.group_target(WARP, 8 if self._is_cpu else 512, self._shared)

    def render(self, program: Program, target: Target) -> str:
        if len(program.buffers) + 1 > self._buffers:
            raise Unsupported(f"{self.name} has {self._buffers} buffers for a kernel, which wants "
                              f"{len(program.buffers) + 1}")  # fmt: skip
        return wgsl.render(program, self._lacks)

    def fingerprint(self, target: Target) -> str:
        return f"{self.name} {self._adapter.info['description']} {replace(target, hint=0)!r}"

    def needs(self, target: Target) -> tuple[str, ...]:
        return (self.name,)

    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> list[Kernel]:
        with self._lock:
            return [self._kernel(code, program) for code, program in zip(codes, programs)]

    def _kernel(self, code: bytes, program: Program) -> Kernel:
        layout = self._layout(len(program.buffers))
        if code not in self._built:
            try:
                module = self._device.create_shader_module(code=code.decode())
                self._built[code] = self._device.create_compute_pipeline(
                    layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={"module": module, "entry_point": text.kernel_name(program)},
                )
            except self._library.GPUError as error:
                raise CompileError(f"{self.name} refused the text of a kernel: {error}") from error
        return Kernel(program, self._built[code], layout)

    def _layout(self, buffers: int) -> Any:
        """Buffers, the sizes, the workspace."""
        if buffers not in self._layouts:
            kinds = ["storage"] * buffers + ["uniform", "storage"]
            entries = [{"binding": number, "visibility": self._library.ShaderStage.COMPUTE,
                        "buffer": {"type": kind}} for number, kind in enumerate(kinds)]  # fmt: skip
            self._layouts[buffers] = self._device.create_bind_group_layout(entries=entries)
        return self._layouts[buffers]

    def _workers(self, program: Program) -> int:
        """The most that share out its units: threads, or groups where it has threads of its own."""
        if program.threads:
            return MOST
        needed = wgsl.workspace_bytes(program, 1)
        most = min(MOST * wgsl.GROUP, WORKSPACE // needed) if needed else MOST * wgsl.GROUP
        return max(1, most // wgsl.GROUP) * wgsl.GROUP

    def workspace_bytes(self, program: Program) -> int:
        return wgsl.workspace_bytes(program, self._workers(program))

    # ---- memory

    def allocate(self, size: int) -> Any:
        usage = self._library.BufferUsage
        every = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        try:
            return self._device.create_buffer(size=_whole(size), usage=every)
        except self._library.GPUError as error:
            raise DeviceError(f"{self.name} has no {size} bytes left: {error}") from error

    def write(self, buffer: Any, array: np.ndarray) -> None:
        with self._lock:
            self._submit()
            self._device.queue.write_buffer(buffer, 0, _padded(array))

    def read(self, buffer: Any, array: np.ndarray) -> None:
        with self._lock:
            self._submit()
            found = self._device.queue.read_buffer(buffer, 0, _whole(array.nbytes))
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(found, np.uint8)[: array.nbytes]

    def copy(
        self, target: Any, source: Any, size: int, target_at: int = 0, source_at: int = 0
    ) -> None:
        if size % 4 == target_at % 4 == source_at % 4 == 0 and target is not source:
            with self._lock:
                self._queued().copy_buffer_to_buffer(source, source_at, target, target_at, size)
                return
        # the language copies whole words, of another buffer
        found = np.empty(source_at + size, np.uint8)
        kept = np.empty(target.size, np.uint8)
        self.read(source, found)
        self.read(target, kept)
        kept[target_at : target_at + size] = found[source_at:]
        self.write(target, kept)

    # ---- running

    def launch(
        self, kernel: Kernel, buffers: Sequence[Any], sizes: Sequence[int], workspace: Any
    ) -> None:
        program, count = kernel.program, len(buffers)
        bound = {**dict(enumerate(buffers)), count + 1: workspace}
        with self._lock:
            bound[count] = self._numbers(tuple(sizes))
            entries = [{"binding": n, "resource": {"buffer": b}} for n, b in bound.items()]
            group = self._device.create_bind_group(layout=kernel.layout, entries=entries)
            running = self._queued().begin_compute_pass()
            running.set_pipeline(kernel.pipeline)
            running.set_bind_group(0, group)
            running.dispatch_workgroups(self._groups(program, sizes))
            running.end()
            self._waiting += 1
            if self._waiting == TOGETHER:
                self._submit()

    def _groups(self, program: Program, sizes: Sequence[int]) -> int:
        units, workers = max(1, text.units(program, sizes)), self._workers(program)
        if program.threads:
            return min(units, workers)
        return min(-(-units // wgsl.GROUP), workers // wgsl.GROUP)

    def _numbers(self, sizes: tuple[int, ...]) -> Any:
        if sizes not in self._sizes:
            array = np.zeros(-(-(1 + len(sizes)) // 4) * 4, np.int32)
            array[1 : 1 + len(sizes)] = sizes
            usage = self._library.BufferUsage.UNIFORM | self._library.BufferUsage.COPY_SRC
            self._sizes[sizes] = self._device.create_buffer_with_data(data=array, usage=usage)
        return self._sizes[sizes]

    def _queued(self) -> Any:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _submit(self) -> None:
        if self._encoder is not None:
            self._device.queue.submit([self._encoder.finish()])
            self._encoder, self._waiting = None, 0

    def finish(self) -> None:
        with self._lock:
            self._submit()  # a read waits for all before; wgpu's own wait raises TypeError
            self._device.queue.read_buffer(self._numbers(()), 0, 4)


def _whole(size: int) -> int:
    """Whole words."""
    return max(4, -(-size // 4) * 4)


def _padded(array: np.ndarray) -> np.ndarray:
    """As bytes, whole words of them."""
    plain = array.reshape(-1).view(np.uint8)
    return np.pad(plain, (0, -plain.size % 4)) if plain.size % 4 else plain


@functools.cache
def device() -> WebGPU:
    """The adapter that is said to be fast. Raises DeviceError."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native import extras
    except ImportError as error:
        raise DeviceError(f"WebGPU needs wgpu: {to_install('webgpu')}") from error
    with contextlib.suppress(RuntimeError):  # somebody else has chosen
        extras.set_instance_extras(backends=("Vulkan", "Metal", "DX12"))
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except RuntimeError as error:
        raise DeviceError(f"WebGPU finds no adapter: install a driver for Vulkan, such as your "
                          f"GPU's or Mesa's (mesa-vulkan-drivers): {error}") from error  # fmt: skip
    if "shader-int64" not in adapter.features:
        raise DeviceError(f"{adapter.info['device']} computes with no 64-bit integers in WebGPU")
    return WebGPU(wgpu, adapter)
