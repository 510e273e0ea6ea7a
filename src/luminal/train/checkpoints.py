"""What a training keeps on disk: whole files only, whenever the process or the machine stops.

A file is written under a name of its own, is on the disk before it gets its final name, and the
older ones go after that: at every moment the newest file with a final name is complete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..errors import WeightsError
from ..weights.safetensors import DTYPES, METADATA, Safetensors

KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
ENDING = ".safetensors"
PROGRESS = "trainer"  # the name of a tensor: JSON text as bytes
STEP = re.compile(r"step-([0-9]{9}|[1-9][0-9]{9,})\.safetensors")  # no other names are ours
HALF = re.compile(rf"\.({STEP.pattern}|best\.safetensors)\.[0-9]+\.new")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file of another name, which takes the path's place at the end, or goes on an error."""
    own = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield own
        os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A safetensors file, written as a whole or not at all. Raises WeightsError."""
    if METADATA in arrays:
        raise WeightsError(f"{path}: no tensor of a safetensors file can be called {METADATA!r}")
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header, place = {}, 0
    for name, array in ordered:  # the widest first: so all are aligned, and there are no gaps
        end = place + array.nbytes
        kind, shape = KINDS[array.dtype], list(array.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as own, own.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """That a file has its name is on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class Checkpoints:
    """The files `step-000000100.safetensors` of a folder, of which the last `keep` stay."""

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09}{ENDING}"

    def files(self) -> list[Path]:
        """Oldest first."""
        files = [path for path in self.folder.iterdir() if STEP.fullmatch(path.name)]
        return sorted(files, key=lambda path: int(path.stem[5:]))

    def save(self, step: int, arrays: Mapping[str, np.ndarray], progress: object) -> None:
        """progress: what JSON can hold."""
        text = np.frombuffer(json.dumps(progress).encode(), np.uint8)
        save(self.path(step), {**arrays, PROGRESS: text})
        files = self.files()
        end = files.index(self.path(step)) + 1
        for other in files[: max(end - self.keep, 0)] + files[end:]:  # older; of a former training
            other.unlink(missing_ok=True)
        for rest in self.folder.iterdir():
            if HALF.fullmatch(rest.name):  # of a process that was stopped
                rest.unlink(missing_ok=True)

    def newest(self) -> tuple[dict[str, np.ndarray], dict] | None:
        """Arrays and progress of the newest file; None if there is none. Raises WeightsError."""
        for path in reversed(self.files()):
            arrays = dict(Safetensors(path))
            if PROGRESS not in arrays:
                raise WeightsError(f"{path}: no checkpoint of a training")
            progress = json.loads(arrays.pop(PROGRESS).tobytes())
            return arrays, progress
        return None
