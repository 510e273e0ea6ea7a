"""Saved programs on a machine that can run them, and executables as saved programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..backend.contract import Accelerator
from ..backend.devices import Device
from ..errors import ArtifactError
from ..graph.passes import Program
from ..runtime.contract import Engine, Interface
from ..runtime.executable import Arrays, Executable, Save
from ..runtime.native import Native
from ..runtime.offloaded import Offloaded
from .codec import encode
from .file import write
from .recording import Recording
from .saved import Saved


def engine_of(saved: Saved, backend: Device, threads: int) -> Engine:
    """The engine of a saved program. Raises ArtifactError where this machine cannot run it."""
    lacking = backend.lacking(saved.needs)
    if lacking:
        raise ArtifactError(
            f"the program was compiled for a machine with {', '.join(lacking)}, which this one "
            "does not have: compile it here"
        )
    if isinstance(backend, Accelerator):
        return Offloaded(saved.plan, saved.codes, backend)
    codes = [backend.load(code, saved.target) for code in saved.codes]
    return Native(saved.plan, codes, backend, threads, saved.target.flushes)


def executable_of(
    saved: Saved, backend: Device, threads: int, program: Callable[[], Program] | None = None
) -> Executable:
    """A saved program with its interface, as `Executable.save` writes it. program: what was
    compiled, for those who look. Raises ArtifactError."""
    if saved.interface is None:
        raise ArtifactError("a compiled graph without its inputs and outputs: kept, not saved")
    made = Executable(
        engine_of(saved, backend, threads), saved.interface, saved.report, saver(saved),
        program=program,
    )  # fmt: skip
    for number, array in saved.arrays.items():
        made.preset(number, array)
    if saved.made:
        made.take({place: Held(array) for place, array in saved.made.items()})
    return made


@dataclass(frozen=True)
class Held:
    """An array of bytes as a `Piece`: it is mapped already."""

    array: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def read(self, room: np.ndarray) -> None:
        room[...] = self.array

    def mapped(self) -> np.ndarray:
        return self.array


def saver(saved: Saved, record: Callable[[], Recording] | None = None) -> Save:
    """Writes the file of a program's executable. record: the graph, unless the program has it."""

    def save(interface: Interface, arrays: Arrays, made: Arrays, path: Path) -> None:
        rows = saved.recording if record is None else encode(record())
        write(replace(saved, interface=interface, arrays=arrays, made=made, recording=rows), path)

    return save
