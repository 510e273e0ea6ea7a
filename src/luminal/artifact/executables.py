"""Saved programs on a machine that can run them, and executables as saved programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..backend.contract import Backend
from ..errors import ArtifactError
from ..graph.node import Node, Source
from ..runtime.contract import Contents, Port
from ..runtime.executable import Executable
from ..runtime.native import Native
from .file import write
from .saved import Interface, Result, Saved, Slot


def engine_of(saved: Saved, backend: Backend, threads: int) -> Native:
    """The engine of a saved program. Raises ArtifactError where this machine cannot run it."""
    lacking = backend.lacking(saved.needs)
    if lacking:
        raise ArtifactError(
            f"the program was compiled for a machine with {', '.join(lacking)}, which this one "
            "does not have: compile it here"
        )
    codes = [backend.load(code, saved.target) for code in saved.codes]
    return Native(saved.plan, codes, backend, threads)


def executable_of(saved: Saved, backend: Backend, threads: int) -> Executable:
    """A saved program with its interface, as `Executable.save` writes it. Raises ArtifactError."""
    face = saved.interface
    if face is None:
        raise ArtifactError("a compiled graph without its inputs and outputs: kept, not saved")
    ports = [
        Port(Node("input", (), Source(s.name, s.kind), s.shape, s.dtype, number), s.name, s.kind,
             s.needed)
        for number, s in enumerate(face.slots)
    ]  # fmt: skip
    order = {Node("output", (), r.number, r.shape, r.dtype, 0): r for r in face.results}
    made = Executable(
        engine_of(saved, backend, threads), ports, {node: r.number for node, r in order.items()},
        face.sizes, saved.report, {node: r.name for node, r in order.items()}, face.requirements,
        saver(saved),
    )  # fmt: skip
    for number, array in saved.arrays.items():
        made.preset(ports[number].node, array)
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


def saver(saved: Saved) -> Callable[[Contents, Path], None]:
    """Writes the file of a program's executable."""

    def save(contents: Contents, path: Path) -> None:
        slots = [
            Slot(port.name, port.kind, port.node.dtype, port.node.shape, port.needed)
            for port in contents.ports
        ]
        results = [Result(name, node.dtype, node.shape, n) for name, node, n in contents.results]
        face = Interface(
            tuple(slots), tuple(results), contents.sizes, tuple(contents.requirements)
        )  # fmt: skip
        write(replace(saved, interface=face, arrays=contents.arrays, made=contents.made), path)

    return save
