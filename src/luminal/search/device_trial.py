"""Candidates on a device with memory of its own: built ahead, checked there, timed by its clock.

What memory feeds is timed on rotating copies, as on a CPU; a device is kept busy for a while first,
until its clock is up. Compiled candidates that keep registers in memory are refused where the
default does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.contract import Accelerator
from ..backend.loops import loop_program, verify_loops
from ..errors import CompileError
from ..kernel.kernel import Kernel
from ..kernel.layout import pack
from ..kernel.program import Program
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from .inputs import Arrays
from .oracle import Case

CANARY = 64  # bytes behind every buffer that nobody may write
WARM_SECONDS = 0.05
SAMPLE_SECONDS = 1e-3
LEAST_SECONDS = 1e-6  # that a clock can tell


@dataclass
class OnDevice:
    """A candidate that a device may still be compiling."""

    program: Program
    code: Any
    kernel: Any = None


class DeviceStand:
    """Where the candidates of a kernel run; see `trial.Stand`."""

    def __init__(self, kernel: Kernel, target: Target, device: Accelerator) -> None:
        self.kernel, self.target, self.device = kernel, target, device
        self._sets: list[dict[str, Any]] = []
        self._constants: dict[tuple[str, Any], Any] = {}
        self._workspace: tuple[int, Any] = (0, None)
        self._least_spilled: int | None = None
        self._warm = False

    # ---- building

    def begin(self, kernel: Kernel, schedule: Schedule) -> OnDevice:
        """Compiled from now on, beside what this process does. Raises CompileError."""
        program = loop_program(kernel, schedule, self.target)
        verify_loops(program)
        (code,) = self.device.build([self.device.render(program, self.target)], self.target)
        return OnDevice(program, code)

    def end(self, built: OnDevice) -> None:
        """Wait for it. Raises CompileError."""
        spilled = self.device.spilled(built.code)
        if self._least_spilled is None:
            self._least_spilled = spilled
        if spilled > self._least_spilled:
            raise CompileError(f"{spilled} bytes of registers in memory")
        (built.kernel,) = self.device.kernels([built.code.code], [built.program])

    # ---- running

    def tried(self, built: OnDevice, case: Case) -> tuple[str, Arrays]:
        """(what is wrong with the results of one case, empty if nothing is; the results)."""
        device, buffers = self.device, {}
        for buffer in built.program.buffers:
            array = _packed(built, buffer.name, case.given[buffer.name])
            whole = np.full(array.nbytes + CANARY, CANARY, np.uint8)
            whole[: array.nbytes] = array.reshape(-1).view(np.uint8)
            buffers[buffer.name] = device.allocate(whole.nbytes)
            device.write(buffers[buffer.name], whole)
        self._launch(built, buffers, case.sizes)
        outputs: Arrays = {}
        for name, given in case.given.items():
            layout = built.program.layouts.get(name)
            if name not in buffers or layout:
                continue
            read = np.empty(given.nbytes + CANARY, np.uint8)
            device.read(buffers[name], read)
            if (read[given.nbytes :] != CANARY).any():
                return f"a write behind the end of {name}", outputs
            if name in case.judge.looked:
                outputs[name] = read[: given.nbytes].view(given.dtype).reshape(given.shape)
        fault = case.judge.fault(outputs)
        return (f"{fault} ({case.kind} inputs)" if fault else ""), outputs

    def _launch(
        self, built: OnDevice, buffers: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> None:
        size = max(64, self.device.workspace_bytes(built.program))
        if self._workspace[0] < size:
            self._workspace = size, self.device.allocate(size)
        self.device.launch(
            built.kernel, [buffers[b.name] for b in built.program.buffers],
            [sizes[name] for name in built.program.sizes], self._workspace[1],
        )  # fmt: skip

    # ---- time

    def timed(
        self, built: OnDevice, given: Arrays, sizes: Mapping[str, int], copies: int
    ) -> DeviceTimed:
        """Ready to be timed. copies: sets of buffers to rotate through."""
        while len(self._sets) < copies:
            changing = [b.name for b in self.kernel.buffers if not b.constant]
            self._sets.append({name: self._sent(given[name]) for name in changing})
        constants = {
            b.name: self._constant(built, b.name, given) for b in self.kernel.buffers if b.constant
        }
        sets = [{**changing, **constants} for changing in self._sets[:copies]]
        made = DeviceTimed(self, built, sets, sizes)
        if self.device.steady:
            return made
        if not self._warm:
            spent = 0.0
            while spent < WARM_SECONDS:
                spent += max(LEAST_SECONDS, made.sample() * made.count)
            self._warm = True
        return made.calibrated()

    def _constant(self, built: OnDevice, name: str, given: Arrays) -> Any:
        """Each of its layouts is there once."""
        key = name, built.program.layouts.get(name)
        if key not in self._constants:
            self._constants[key] = self._sent(_packed(built, name, given[name]))
        return self._constants[key]

    def _sent(self, array: np.ndarray) -> Any:
        buffer = self.device.allocate(max(64, array.nbytes))
        self.device.write(buffer, np.ascontiguousarray(array))
        return buffer


def _packed(built: OnDevice, name: str, array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pack(array, built.program.layouts.get(name, ())))


class DeviceTimed:
    """Calls of a candidate, timed together."""

    def __init__(
        self, stand: DeviceStand, built: OnDevice, sets: Sequence[Mapping[str, Any]],
        sizes: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._stand, self._built, self._sets, self._sizes = stand, built, sets, sizes
        self.count, self.steady = len(sets), stand.device.steady
        self._again: Callable[[], None] = self._queue

    def calibrated(self) -> DeviceTimed:
        """With enough calls in one measurement."""
        once = self.sample()
        if once * self.count < SAMPLE_SECONDS:
            turns = int(SAMPLE_SECONDS / max(once, LEAST_SECONDS)) // len(self._sets) + 1
            self.count = turns * len(self._sets)
        self._again = self._stand.device.recorded(self._queue)  # the host would be late
        return self

    def sample(self) -> float:
        """Seconds of one call, by the device's clock."""
        return self._stand.device.seconds(self._again) / self.count

    def _queue(self) -> None:
        for number in range(self.count):
            self._stand._launch(self._built, self._sets[number % len(self._sets)], self._sizes)
