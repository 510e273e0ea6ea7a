"""A part of an FX graph as a native program: tensors in, tensors out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...errors import DimError
from .arrays import array_of, inverse, tensor_of
from .record import Recorder
from .report import count_failure
from .sizes import hint

MOST_CHANGES = 4  # of each weight; where they change more often they are read in place, unpacked

_forgotten = 0  # how often all weights were to be read anew


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` takes.

    search: budget of the search (0: sound defaults). precision: "f32" keeps every dtype as it is.
    threads: None means as many as PyTorch uses.
    """

    search: int = 0
    precision: str = "f32"
    threads: int | None = None


@dataclass(frozen=True)
class InSpec:
    """How a tensor becomes an array: its dimensions in memory order."""

    order: tuple[int, ...]
    plain: bool
    static: bool


@dataclass(frozen=True)
class OutSpec:
    """How an array becomes a tensor. back: the permutation to PyTorch's order of dimensions."""

    number: int
    kind: Any
    back: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    copy: bool


class Program(torch.nn.Module):
    """A callable: the tensors of the recording's inputs, then its sizes. Calls may be concurrent:
    they run one after the other.

    thaw: makes the same program with weights as ordinary inputs, for weights that keep changing
    (a layer's program that serves all layers of a model). plain: makes what PyTorch would run
    instead, for sizes beyond our bounds, and for a program that fails at its first run: a fault of
    ours, and reported as such.
    """

    def __init__(
        self, recorder: Recorder, sizes: Sequence[str], options: Options,
        thaw: Callable[[], Program] | None = None,
        plain: Callable[[], torch.nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._thaw, self._plain, self._proved = thaw, plain, False
        graph = recorder.graph
        self._sizes = tuple(sizes)
        self._ins = [
            InSpec(put.order, put.order == tuple(range(len(put.order))), put.static)
            for put in recorder.inputs
        ]
        self._outs = _out_specs(recorder)
        self._weights = [put.tensor for put in recorder.inputs if put.static]
        self._known: list[Any] = [None] * len(self._weights)
        self._changes = 0
        self._seed_place = _place(recorder.seed, graph.inputs)
        self._lock = threading.Lock()
        threads = options.threads or torch.get_num_threads()
        self._run = graph.compile(
            search=options.search, precision=options.precision, threads=threads
        )
        self._needed = self._run.sizes.keys()

    def forward(self, *values: Any) -> tuple[torch.Tensor, ...]:
        if self._changes > MOST_CHANGES * len(self._weights):
            with self._lock:
                self._replace()
        other = self._modules.get("instead")
        if other is not None:
            return other(*values)
        try:
            results = self._call(values)
        except DimError as error:  # larger than what we reckoned with
            return self._in_pytorch(error)(*values)
        except Exception as error:
            if self._proved:
                raise
            self.instead = self._in_pytorch(error)
            return self.instead(*values)
        self._proved = True
        return results

    def _in_pytorch(self, error: Exception) -> torch.nn.Module:
        """What PyTorch would run, and a word about it in the report, once."""
        if self._plain is None:
            raise error
        with self._lock:
            module = self._modules.get("eager")
            if module is None:
                count_failure(f"at a run: {type(error).__name__}: {error}".split("\n")[0])
                module = self.eager = self._plain()
        return module

    def _replace(self) -> None:
        """Weights are inputs from now on."""
        if self._thaw is not None:
            self.instead, self._thaw = self._thaw(), None
        self._changes = 0

    def _call(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        count = len(self._ins)
        sizes = {
            name: int(size)
            for name, size in zip(self._sizes, values[count:])
            if name in self._needed
        }
        with self._lock:
            arrays = self._arrays(values[:count])
            results = self._run(*arrays, **sizes)
        listed = results if isinstance(results, tuple) else (results,)
        return tuple(_tensor(listed[spec.number], spec) for spec in self._outs)

    def _arrays(self, tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
        """The inputs in the order of recording; weights are set where they have changed."""
        arrays, weight = [], 0
        for tensor, spec in zip(tensors, self._ins):
            if not spec.static:
                arrays.append(_array(tensor, spec))
                continue
            self._set_weight(weight, tensor, spec)
            weight += 1
        if self._seed_place is not None:
            arrays.insert(self._seed_place, np.asarray(draw_seed(), np.int64))
        return arrays

    def _set_weight(self, number: int, tensor: torch.Tensor, spec: InSpec) -> None:
        state = version(tensor)
        if state is None or state != self._known[number]:
            self._changes += state is None or self._known[number] is not None
            self._run[self._weights[number]] = _array(tensor, spec)
            self._known[number] = state


def _place(seed: Any, inputs: Sequence[Any]) -> int | None:
    """Where the seed stands among the inputs."""
    return next((n for n, tensor in enumerate(inputs) if tensor is seed), None)


def version(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """What changes when a tensor's contents do; None for tensors that keep no count. PyTorch does
    not count what is written through `.data`: `forget_weights` is for that."""
    if tensor.is_inference():
        return None
    return tensor.data_ptr(), tensor._version, _forgotten


def forget_weights() -> None:
    """Every program reads its weights anew at its next call."""
    global _forgotten
    _forgotten += 1


def draw_seed() -> int:
    """A random number from PyTorch's default generator, so that `torch.manual_seed` rules it."""
    return int(torch.empty((), dtype=torch.int64).random_())


def _array(tensor: torch.Tensor, spec: InSpec) -> np.ndarray:
    laid = tensor if spec.plain else tensor.permute(spec.order)
    return array_of(laid if laid.is_contiguous() else laid.contiguous())


def _tensor(array: np.ndarray, spec: OutSpec) -> torch.Tensor:
    tensor = tensor_of(array.copy() if spec.copy else array, spec.kind)
    if spec.back is not None:
        tensor = tensor.permute(spec.back)
    if spec.strides is not None:
        return torch.empty_strided(tensor.shape, spec.strides, dtype=tensor.dtype).copy_(tensor)
    return tensor


def _out_specs(recorder: Recorder) -> list[OutSpec]:
    specs: list[OutSpec] = []
    seen: set[int] = set()
    for out in recorder.outputs:
        plain = out.order == tuple(range(len(out.order)))
        value = out.node.meta["val"]
        fixed = not any(isinstance(s, torch.SymInt) for s in (*value.shape, *value.stride()))
        strides = None
        if not out.dense and fixed:
            strides = tuple(hint(stride) for stride in value.stride())
            strides = None if 0 in strides else strides
        back = None if plain else inverse(out.order)
        specs.append(OutSpec(out.number, out.kind, back, strides, out.number in seen))
        seen.add(out.number)
    return specs

