"""Machine code of kernels, made by another thread while this one lowers further kernels: LLVM
needs no Python meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ..kernel.program import Program
from ..kernel.target import Target
from ..progress import showing, tracked
from .contract import Accelerator, Finished, Kept
from .devices import Device

TURN = 5e-4  # seconds that a thread waits for Python: LLVM needs it between many short calls
_before: list[float] = []  # how long it was, once for each that is at work; the first is the user's


class Ahead:
    """Builds programs one after the other. Used as a context."""

    def __init__(self, backend: Device, target: Target) -> None:
        self.backend, self.target = backend, target
        self._thread = ThreadPoolExecutor(1, "luminal-build")
        self._started: dict[int, tuple[Program, Future[Kept]]] = {}  # by identity
        if not isinstance(backend, Accelerator):
            self._thread.submit(backend.build, [], target)  # what the first text needs is there

    def __enter__(self) -> Ahead:
        _before.append(sys.getswitchinterval())
        sys.setswitchinterval(TURN)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setswitchinterval(_before.pop())
        self._thread.shutdown(cancel_futures=True)

    def start(self, program: Program) -> None:
        """Begin with a program."""
        text = self.backend.render(program, self.target)
        self._started[id(program)] = program, self._thread.submit(self._build, text)

    def known(self, programs: Sequence[Program], codes: Sequence[Kept]) -> None:
        """Programs whose machine code others have made."""
        for program, code in zip(programs, codes, strict=True):
            done = Future[Kept]()
            done.set_result(code)
            self._started[id(program)] = program, done

    def finished(self, programs: Sequence[Program]) -> list[Finished]:
        """Those of the programs, for another process."""
        device, made = self.backend, self.codes(programs)
        if not isinstance(device, Accelerator):
            return [Finished(each.code) for each in made]
        return [Finished(each.code, device.registers(each)) for each in made]

    def codes(self, programs: Sequence[Program]) -> list[Kept]:
        """Those of the programs, in order: each is one that was started or known."""
        made = [self._started[id(program)][1] for program in programs]
        return [future.result() for future in tracked("building kernel", made)]

    def _build(self, text: str) -> Kept:
        with showing(False):
            return self.backend.build([text], self.target)[0]
