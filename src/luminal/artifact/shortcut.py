"""From what a graph is recorded from to the program that was kept of it, so that a later process
need not record the graph: a container with the key of the program, its interface, its constants."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import container
from ..backend.devices import Device
from ..container import whole
from ..errors import ArtifactError
from ..graph.dtype import BY_NAME, dtype
from ..graph.node import Node
from ..graph.passes import Program
from ..runtime.contract import Interface
from ..runtime.executable import Executable
from ..sources import COMPILING, version_of
from ..store import Store
from . import file
from .codec import decode, encode
from .executables import engine_of, saver
from .recording import FAULTS

MAGIC = b"lumcut\n\n"


@dataclass(frozen=True)
class Shortcut:
    """store: where programs are kept. key: None where what makes the program has no name."""

    store: Store
    key: str | None

    @staticmethod
    def of(
        store: Store, job: Any, precision: str, state: Sequence[str], code: Sequence[str]
    ) -> Shortcut:  # fmt: skip
        """job: all that the graph depends on, to be pickled. state: of the machine and what was
        tuned. code: files and folders of this package that record it."""
        version = version_of(*COMPILING, *code)
        if version is None:
            return Shortcut(store, None)
        facts = "\n".join([version, precision, *map(repr, state)]).encode()
        digest = hashlib.sha256(facts + pickle.dumps(job))
        return Shortcut(store, f"{digest.hexdigest()}-cut")

    def keep(self, program: str | None, interface: Interface, values: Mapping[int, Any]) -> None:
        """program: the key that it is kept under. values: of ports that are known."""
        if program is not None and self.key is not None:
            arrays = {n: np.asarray(value, order="C") for n, value in values.items()}
            self.store.keep(self.key, partial(self._write, program, interface, arrays))

    def _write(
        self, program: str, interface: Interface, arrays: Mapping[int, np.ndarray], path: Path
    ) -> None:
        kinds = [[n, str(dtype(array.dtype)), array.shape] for n, array in arrays.items()]
        with whole(path, 0o600) as stream:
            writer = container.Writer(stream, MAGIC)
            for array in arrays.values():
                writer.add(array.reshape(-1).view(np.uint8))
            writer.finish(self.key, [program, encode(interface), kinds])

    def follow(
        self, backend: Device, threads: int, sources: Sequence[Node], record: Callable[[], Program]
    ) -> Executable | None:
        """The program, if it is kept. sources: nodes of the first ports, which then stand for
        these. record: the graph, for who asks for it."""
        found = self.store.find(self.key, self._read)
        if found is None:
            return None
        key, interface, arrays = found
        saved = self.store.find(key, partial(file.read, key=key))
        if saved is None:
            return None
        engine = engine_of(saved, backend, threads)
        made = Executable(engine, interface, saved.report, saver(saved), sources, None, record)
        for number, array in arrays.items():
            made.preset(number, array)
        return made

    def _read(self, path: Path) -> tuple[str, Interface, dict[int, np.ndarray]]:
        about, blobs = container.read(path, MAGIC, self.key)
        try:
            program, rows, kinds = about
            interface = decode(rows)
            arrays = {
                n: blob.mapped().view(BY_NAME[kind].numpy).reshape(shape)
                for (n, kind, shape), blob in zip(kinds, blobs, strict=True)
            }
        except FAULTS as error:
            raise ArtifactError(f"{path}: damaged: {error}") from error
        if not isinstance(interface, Interface) or not isinstance(program, str):
            raise ArtifactError(f"{path}: damaged")
        return program, interface, arrays
