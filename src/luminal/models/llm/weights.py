"""A checkpoint's tensors on their way into a program: made one at a time, checked, packed, let go.

What a program packs is kept on disk under the identity of the checkpoint, so that a later start
reads neither the checkpoint's tensors nor packs them.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from ... import nn
from ...artifact.kept import set_parameters
from ...graph import Tensor
from ...nn.module import check_names, fit
from ...progress import tracked
from ...runtime.executable import Executable
from ...sources import version_of
from .checkpoint import check_finite

LARGE = 256 << 20  # bytes of parameters beside which what a compilation leaves behind counts
HEAD, SAMPLES, PAGE = 1 << 20, 64, 4096  # bytes that tell a file apart: of its head, and of pages

Maker = Callable[[], np.ndarray]


class Deferred(Mapping[str, np.ndarray]):
    """Tensors by name, each made and checked when it is asked for. Raises WeightsError there where
    one holds an infinity or a NaN.

    bytes: of all, roughly. shapes: of the tensors as the checkpoint has them, under our names.
    release: gives back memory that earlier ones took, if need be.
    """

    def __init__(
        self, makers: Mapping[str, Maker], bytes: int, shapes: Mapping[str, tuple[int, ...]],
        release: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._makers, self.bytes, self._release = dict(makers), bytes, release
        self.shapes = shapes

    @staticmethod
    def of(state: Mapping[str, np.ndarray]) -> Deferred:
        """Arrays that are there already, in a file that is mapped, say."""
        makers = {name: lambda value=value: value for name, value in state.items()}
        shapes = {name: value.shape for name, value in state.items()}
        return Deferred(makers, sum(value.nbytes for value in state.values()), shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        if self._release is not None:
            self._release()
        value = self._makers[name]()
        check_finite({name: value})
        return value

    def with_more(self, more: Mapping[str, np.ndarray]) -> Deferred:
        """And these."""
        makers = {**self._makers, **Deferred.of(more)._makers}
        size = self.bytes + sum(value.nbytes for value in more.values())
        return Deferred(makers, size, self.shapes, self._release)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def parameter_bytes(model: nn.Module) -> dict[str, int]:
    """Of each parameter of a model."""
    return {
        name: math.prod(map(int, parameter.shape)) * parameter.dtype.bytes
        for name, parameter in model.named_parameters()
    }


def give(
    program: Executable, model: nn.Module, state: Mapping[str, np.ndarray],
    identity: str | None = None,
) -> None:  # fmt: skip
    """Set the parameters of a model that is compiled already. identity: of the checkpoint (see
    `identity_of`); None: nothing is kept. Raises WeightsError."""
    large = sum(parameter_bytes(model).values()) >= LARGE
    if large:
        _give_back()
    if identity is None:
        program.set_parameters(lambda: fitting(model, state))
    else:
        set_parameters(program, lambda: fitting(model, state), identity)
    if large:
        _give_back()


def _give_back() -> None:
    """To the system, what was freed: glibc would keep it beside the weights."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def fitting(
    model: nn.Module, state: Mapping[str, np.ndarray]
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """(parameter, value) one after the other. Raises WeightsError."""
    wanted, modules = dict(model.named_parameters()), dict(model.named_modules())
    done: set[str] = set()
    for name in tracked("loading tensor", list(state)):
        path = name.rpartition(".")[0]
        values = {name: state[name]}
        if path in modules:
            modules[path].adapt_state(values, f"{path}.")
        check_names(values.keys() & wanted.keys(), set(values))
        done |= values.keys()
        while values:
            own, value = values.popitem()
            yield wanted[own], fit(own, wanted[own], value)
    check_names(set(wanted), done)


def identity_of(files: Iterable[Path], quant: str | None) -> str | None:
    """A name for the tensors that a checkpoint's files give, as they are now: of the code that
    reads them, what the system says of each file, and samples of its contents. None: that code has
    changed since it was imported."""
    version = version_of("models/llm", "weights")
    if version is None:
        return None
    facts = [f"{quant} {version}"]
    for path in sorted(files):
        whole = path.resolve()
        found = whole.stat()  # a copy that keeps size and mtime has another inode or ctime
        times = f"{found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
        facts.append(f"{whole} {found.st_size} {times} {_sampled(whole, found.st_size)}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _sampled(path: Path, size: int) -> str:
    """A digest of the head of a file, and of pages that lie evenly in all of it."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        digest.update(file.read(HEAD))
        for number in range(SAMPLES):
            file.seek(max(0, size - PAGE) * (number + 1) // SAMPLES)
            digest.update(file.read(PAGE))
    return digest.hexdigest()
