"""The driver of NVIDIA GPUs: one device, its memory, one stream, graphs recorded from it."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DeviceError, to_install

LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
SHARED = 48 << 10  # bytes: a kernel must ask for more


@dataclass(frozen=True, eq=False)
class Memory:
    """Freed with this object."""

    address: int
    size: int


class Driver:
    """Device `number`. Every method may be called from any thread, one at a time."""

    def __init__(self, number: int = 0) -> None:
        self._cuda = cuda = _bindings()
        self._call(cuda.cuInit, 0)
        count = self._call(cuda.cuDeviceGetCount)
        if number >= count:
            raise DeviceError(f"there are {count} NVIDIA GPUs, none of number {number}")
        self.device = self._call(cuda.cuDeviceGet, number)
        name = self._call(cuda.cuDeviceGetName, 128, self.device)
        self.name = name.split(b"\0")[0].decode(errors="replace").strip()
        self.version = self._call(cuda.cuDriverGetVersion)
        self.arch = f"sm_{self._fact('COMPUTE_CAPABILITY_MAJOR')}" \
                    f"{self._fact('COMPUTE_CAPABILITY_MINOR')}"  # fmt: skip
        self.multiprocessors = self._fact("MULTIPROCESSOR_COUNT")
        self._context = self._call(cuda.cuDevicePrimaryCtxRetain, self.device)
        self._enter()
        self._stream = self._call(cuda.cuStreamCreate, 1)  # waits for no other stream
        self._held: dict[int, int] = {}  # address -> bytes
        self._scratch: Memory | None = None
        self._last: int | None = None  # stream of others in which a run was queued

    def _call(self, function: Any, *arguments: Any) -> Any:
        """What a function of the driver returns. Raises DeviceError."""
        status, *rest = function(*arguments)
        if status != self._cuda.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"{function.__name__} failed: {status.name}")
        return rest[0] if len(rest) == 1 else rest

    def _fact(self, name: str) -> int:
        kind = getattr(self._cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call(self._cuda.cuDeviceGetAttribute, kind, self.device))

    def _enter(self) -> None:
        """The context belongs to a thread."""
        self._call(self._cuda.cuCtxSetCurrent, self._context)

    # ---- memory

    def allocate(self, size: int) -> Memory:
        """Raises DeviceError that says what there is."""
        self._enter()
        status, address = self._cuda.cuMemAlloc(max(1, size))
        if status != self._cuda.CUresult.CUDA_SUCCESS:
            free, total = self._call(self._cuda.cuMemGetInfo)
            raise DeviceError(
                f"{self.name} has no {_mib(size)} left ({status.name}): {_mib(free)} of "
                f"{_mib(total)} are free, this process holds {_mib(sum(self._held.values()))}"
            )
        made = Memory(int(address), size)
        self._held[made.address] = size
        weakref.finalize(made, self._free, made.address)
        return made

    def scratch(self, size: int) -> Memory:
        """What libraries may write to while they run, one call after the other."""
        if self._scratch is None or self._scratch.size < size:
            self._scratch = self.allocate(size)
        return self._scratch

    def _free(self, address: int) -> None:
        """The driver waits for kernels that use it."""
        self._held.pop(address, None)
        self._cuda.cuCtxSetCurrent(self._context)
        self._cuda.cuMemFree(address)

    def write(self, memory: Memory, array: np.ndarray) -> None:
        """A contiguous array, behind everything that is queued; it may change afterwards."""
        self._enter()
        self._call(self._cuda.cuMemcpyHtoDAsync, memory.address, array.ctypes.data, array.nbytes,
                   self._stream)  # fmt: skip
        self.finish()

    def read(self, memory: Memory, array: np.ndarray) -> None:
        self._enter()
        self._call(self._cuda.cuMemcpyDtoHAsync, array.ctypes.data, memory.address, array.nbytes,
                   self._stream)  # fmt: skip
        self.finish()

    def copy(self, target: int, source: int, size: int) -> None:
        self._enter()
        self._call(self._cuda.cuMemcpyDtoDAsync, target, source, size, self._stream)

    # ---- running

    @property
    def stream(self) -> int:
        """The address of the stream, for libraries; its context is this thread's."""
        self._enter()
        return int(self._stream)

    def function(self, code: bytes, name: str, shared: int) -> Any:
        """A kernel of a cubin, which uses at most so many bytes of shared memory."""
        self._enter()
        module = self._call(self._cuda.cuModuleLoadData, code)
        function = self._call(self._cuda.cuModuleGetFunction, module, name.encode())
        if shared > SHARED:
            most = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(self._cuda.cuFuncSetAttribute, function, most, shared)
        return function

    def launch(
        self, function: Any, blocks: int, threads: int, shared: int, arguments: Sequence[int],
        together: bool = False,
    ) -> None:  # fmt: skip
        """arguments: of eight bytes each. together: all blocks at once, or it fails."""
        self._enter()
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        start = ctypes.addressof(values)
        places = (ctypes.c_void_p * len(arguments))(*(start + 8 * n for n in range(len(values))))
        shape = function, blocks, 1, 1, threads, 1, 1, shared, self._stream
        if together:
            cooperative = self._cuda.cuLaunchCooperativeKernel
            self._call(cooperative, *shape, ctypes.addressof(places))
        else:
            self._call(self._cuda.cuLaunchKernel, *shape, ctypes.addressof(places), 0)

    @contextmanager
    def queued_in(self, stream: int | None) -> Iterator[None]:
        """Inside, everything is queued in this stream; what was queued elsewhere is waited for."""
        if stream is None:
            yield
            return
        own, theirs = self._stream, self._cuda.CUstream(stream)
        if self._last != stream:
            self.finish()
            if self._last is not None:
                self._call(self._cuda.cuStreamSynchronize, self._cuda.CUstream(self._last))
        self._stream, self._last = theirs, stream
        try:
            yield
        finally:
            self._stream = own

    def finish(self) -> None:
        self._enter()
        self._call(self._cuda.cuStreamSynchronize, self._stream)

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """What queues again all that `work` queues, which is not run now."""
        cuda = self._cuda
        self._enter()
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call(cuda.cuStreamBeginCapture, self._stream, mode)
        try:
            work()
        finally:
            graph = self._call(cuda.cuStreamEndCapture, self._stream)
        ready = self._call(cuda.cuGraphInstantiate, graph, 0)
        self._call(cuda.cuGraphDestroy, graph)

        def again() -> None:
            self._enter()
            self._call(cuda.cuGraphLaunch, ready, self._stream)

        weakref.finalize(again, cuda.cuGraphExecDestroy, ready)
        return again

    def seconds(self, work: Callable[[], None]) -> float:
        """Of what `work` queues, by the device's clock."""
        cuda = self._cuda
        self._enter()
        start, end = self._call(cuda.cuEventCreate, 0), self._call(cuda.cuEventCreate, 0)
        try:
            self._call(cuda.cuEventRecord, start, self._stream)
            work()
            self._call(cuda.cuEventRecord, end, self._stream)
            self._call(cuda.cuEventSynchronize, end)
            return float(self._call(cuda.cuEventElapsedTime, start, end)) / 1e3
        finally:
            cuda.cuEventDestroy(start)
            cuda.cuEventDestroy(end)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _bindings() -> Any:
    """Asked for only where a driver is: without one they may wait for ever. Raises DeviceError."""
    if not has_driver():
        raise DeviceError(
            "no NVIDIA driver is found (libcuda): install the driver of your GPU; without a GPU "
            'there are device="cuda:sim", which simulates one, and device="cuda:sm_90a", which '
            "only compiles"
        )
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(f'device="cuda" needs cuda-bindings: {to_install("cuda")}') from error
    return driver


def has_driver() -> bool:
    """The driver's library can be loaded."""
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            continue
    return False


@functools.cache
def opened(number: int = 0) -> Driver:
    """One for each device. Raises DeviceError."""
    return Driver(number)
