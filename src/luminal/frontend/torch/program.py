"""A part of an FX graph as a native program: tensors in, tensors out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from ... import forks
from ...backend import devices
from ...backend.contract import Accelerator
from ...errors import DimError, InputError
from ...graph.dtype import DType
from ...graph.graph import Graph
from ...precision import default_passes
from ...runtime.executable import Executable
from ...runtime.watch import watched
from ...search.tune import Budget
from .arrays import TO_TORCH, array_of, inverse, tensor_of
from .compare import compare
from .record import Recorder
from .report import count_failure
from .sizes import hint
from .weights import Known

LINE, PAGE = 64, 4096  # bytes: of memory that is there as a whole, or not at all
MOST_COMPARED = 64  # choices of sizes, where results are compared with PyTorch's
MOST_CHANGES = 4  # of each weight; where they change more often they are read in place, unpacked


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` takes.

    device, search, precision, database, cache: as `Graph.compile` takes them. threads: None means
    as many as PyTorch uses. strict: what a fault of ours or a missing rule would leave to PyTorch
    raises an error; else it warns. range_checks: an index out of range and a whole number divided
    by zero raise eager's errors; False: nobody looks. check: each program's first results, and the
    first for each choice of sizes, are compared with PyTorch's; a wrong value raises CompileError.
    freeze: in inference, weights are packed once, and again when they have changed; False: they are
    read anew at each call, so that a change by any route is seen at once.

    >>> luminal.torch.Options(strict=True).device
    'auto'
    """

    search: int | str = 0
    precision: str = "f32"
    threads: int | None = None
    database: str | bool | None = None
    cache: str | bool | None = None
    strict: bool = False
    range_checks: bool = True
    check: bool = False
    freeze: bool = True
    device: str = "auto"

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """Raises InputError or Unsupported for an unknown option or value."""
        known = [field.name for field in fields(Options)]
        for name in given:
            if name not in known:
                raise InputError(f"there is no option {name!r}; the options are {', '.join(known)}")
        chosen = Options(**given)
        for name in ("strict", "range_checks", "check", "freeze"):
            if not isinstance(getattr(chosen, name), bool):
                raise InputError(f"{name}={getattr(chosen, name)!r}: it is True or False")
        Budget.of(chosen.search)
        if chosen.device != "reference":
            devices.find(chosen.device)
        default_passes(chosen.precision)
        if chosen.threads is not None and (
            not isinstance(chosen.threads, int) or chosen.threads < 1
        ):
            raise InputError(f"threads={chosen.threads!r}: a number of threads is 1 or more")
        return chosen

    @property
    def memory(self) -> str:
        """Where tensors may lie, beside the host's."""
        found = None if self.device == "reference" else devices.find(self.device)
        return found.memory or "cpu" if isinstance(found, Accelerator) else "cpu"

    def beside(self, graph: torch.fx.Graph) -> Options:
        """These, on the device of the tensors that the graph is given, where none is named."""
        given = (node.meta.get("val") for node in graph.nodes if node.op == "placeholder")
        places = {value.device.type for value in given if isinstance(value, torch.Tensor)}
        if self.device == "auto" and "cuda" in places:
            return replace(self, device="cuda")
        return self

    def compile(self, graph: Graph) -> Executable:
        """The graph's program. Raises what `Graph.compile` does."""
        return graph.compile(
            device=self.device, search=self.search, precision=self.precision,
            threads=self.threads or torch.get_num_threads(), database=self.database,
            cache=self.cache,
        )  # fmt: skip


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
    instead, for values that it raises an error for, for sizes beyond our bounds, and for a program
    that fails at its first run: a fault of ours, and reported as such. settled: computes what may
    raise an error for weights.
    """

    def __init__(
        self, recorder: Recorder, sizes: Sequence[str], options: Options,
        plain: Callable[[], torch.nn.Module], thaw: Callable[[], Program] | None = None,
        settled: torch.nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._thaw, self._plain, self._settled = thaw, plain, settled
        self._strict, self._precision = options.strict, options.precision
        self._nodes = [output.node for output in recorder.outputs]
        self._compared: set[tuple[int, ...]] | None = None
        if options.check and recorder.seed is None:  # what it draws, PyTorch draws otherwise
            self._compared = set()
        self._proved = False
        self._wrong = recorder.wrong
        graph = recorder.graph
        self._ins = [
            InSpec(put.order, put.order == tuple(range(len(put.order))), put.static)
            for put in recorder.inputs
        ]
        self._outs = _out_specs(recorder)
        self._static = [n for n, put in enumerate(recorder.inputs) if put.static]
        self._given = [n for n, put in enumerate(recorder.inputs) if not put.static]
        self._weights = [put.tensor for put in recorder.inputs if put.static]
        self._known = Known(len(self._weights))
        self._taken = False  # the weights, once
        self._changes = 0
        self._seed_place = _place(recorder.seed, graph.inputs)
        self._lock = threading.RLock()
        forks.guard(self, "_lock", forks.OUTER)
        self._run = options.compile(graph)
        needed = self._run.sizes.keys()
        self._numbers = [(name, n) for n, name in enumerate(sizes) if name in needed]
        real = all(isinstance(output.kind, DType) for output in recorder.outputs)
        known = recorder.seed is None and needed <= set(sizes)
        self._launches = real and known and self._run.can_launch
        self._results = [(t.node.shape, TO_TORCH[t.dtype]) for t in graph.outputs]
        shown = [None, *(spec.number for spec in self._outs)]
        self._flagged = self._wrong not in shown  # the last output is no result of the user's
        if self._flagged:
            self._results.pop()
        self._flag: torch.Tensor | None = None  # made at a run: at compile time tensors are fake
        self._shapes: tuple[dict[str, int], list[list[int]]] | None = None

    def forward(self, *values: Any) -> tuple[torch.Tensor, ...]:
        if self._changes > MOST_CHANGES * len(self._weights):
            with self._lock:
                self._replace()
        other = self._modules.get("instead")
        if other is not None:
            return other(*values)
        try:
            results = self._call(values)
        except _EagerRaises:
            return self._eager()(*values)
        except DimError as error:  # larger than what we reckoned with
            return self._in_pytorch(error)(*values)
        except Exception as error:
            if self._proved or self._strict:
                raise
            self.instead = self._in_pytorch(error)
            return self.instead(*values)
        if not self._proved:  # a module's attributes are slow to set
            self._proved = True
        if self._compared is not None:
            self._compare(values, results)
        return results

    def _compare(self, values: Sequence[Any], results: Sequence[torch.Tensor]) -> None:
        """With what PyTorch computes, once for these sizes. Raises CompileError."""
        assert self._compared is not None
        sizes = tuple(int(value) for value in values[len(self._ins) :])
        if sizes not in self._compared and len(self._compared) < MOST_COMPARED:
            self._compared.add(sizes)
            compare(self._nodes, results, self._eager()(*values), self._precision)

    def _in_pytorch(self, error: Exception) -> torch.nn.Module:
        """What PyTorch would run, and a word about it in the report, once."""
        if self._strict:
            raise error
        if "eager" not in self._modules:
            count_failure(f"at a run: {type(error).__name__}: {error}".split("\n")[0])
        return self._eager()

    def _eager(self) -> torch.nn.Module:
        with self._lock:
            module = self._modules.get("eager")
            if module is None:
                module = self.eager = self._plain()
        return module

    def _replace(self) -> None:
        """Weights are inputs from now on."""
        if self._thaw is not None:
            self.instead, self._thaw = self._thaw(), None
        self._changes = 0

    def _call(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        count = len(self._ins)
        sizes = {name: int(values[count + place]) for name, place in self._numbers}
        with self._lock:
            self._set_weights(values)
            start = time.perf_counter()
            try:
                if torch.autograd._profiler_enabled():
                    with watched(torch.profiler.record_function):
                        return self._run_once(values, sizes)
                return self._run_once(values, sizes)
            finally:
                if self._static:
                    self._known.look(time.perf_counter() - start)

    def _run_once(self, values: Sequence[Any], sizes: dict[str, int]) -> tuple[torch.Tensor, ...]:
        if self._launches and self._lie_in(self._run.memory, values):
            return self._launch(values, sizes)
        arrays = [_array(values[place], self._ins[place]) for place in self._given]
        if self._seed_place is not None:
            arrays.insert(self._seed_place, np.asarray(draw_seed(), np.int64))
        results = self._run(*arrays, **sizes)
        listed = results if isinstance(results, tuple) else (results,)
        if self._wrong is not None and listed[self._wrong]:
            raise _EagerRaises
        found = tuple(_tensor(listed[spec.number], spec) for spec in self._outs)
        if self._run.memory == "cpu":
            return found
        places = [values[place].device for place in self._given]
        there = next((place for place in places if place.type != "cpu"), None)
        return found if there is None else tuple(result.to(there) for result in found)

    def _lie_in(self, memory: str, values: Sequence[Any]) -> bool:
        """All tensors that are given: without any, the results are the host's."""
        if memory == "cpu":  # then no other is recorded
            return True
        places = {values[place].device.type for place in self._given}
        return places == {memory}

    def _launch(self, values: Sequence[Any], sizes: dict[str, int]) -> tuple[torch.Tensor, ...]:
        """The program reads the tensors where they lie, and writes to new ones."""
        laid = [_laid(values[place], self._ins[place]) for place in self._given]
        on_device = laid[0].device if laid and laid[0].device.type != "cpu" else None
        made = self._fresh(sizes, on_device)
        stream = torch.cuda.current_stream(on_device).cuda_stream if on_device else None
        self._run.launch([t.data_ptr() for t in laid], [t.data_ptr() for t in made], sizes, stream)
        if self._wrong is not None and made[self._wrong].item():
            raise _EagerRaises
        return tuple([_finished(made[spec.number], spec) for spec in self._outs])

    def _fresh(
        self, sizes: dict[str, int], device: torch.device | None = None
    ) -> list[torch.Tensor]:
        """Memory for the outputs, row-major in the order of memory."""
        if self._shapes is None or self._shapes[0] != sizes:
            shapes = [[int(n.evaluate(sizes)) for n in shape] for shape, _ in self._results]
            self._shapes = sizes, shapes
        empty = torch.empty
        made = [
            empty(shape, dtype=kind, device=device)
            for shape, (_, kind) in zip(self._shapes[1], self._results)
        ]
        if not self._flagged:
            return made
        if self._flag is None:  # of one memory for all runs: to make it takes as long as to check
            self._flag = empty((), dtype=torch.bool, device=device)
        return [*made, self._flag]

    def _set_weights(self, values: Sequence[Any]) -> None:
        """Weights are set where they have changed."""
        tensors = [values[place] for place in self._static]
        changed = self._known.changed(tensors)
        if not changed:  # a module's attributes are slow to set
            return
        if self._settled is not None:
            self._raise_for(values)
        for number in changed:
            spec = self._ins[self._static[number]]
            self._run[self._weights[number]] = _array(tensors[number], spec)
        if self._taken:
            self._changes += len(changed)
        self._taken = True

    def _raise_for(self, values: Sequence[Any]) -> None:
        """What PyTorch raises for weights, such as an index out of range."""
        assert self._settled is not None
        try:
            self._settled(*values)
        except Exception as error:
            raise _EagerRaises from error


class _EagerRaises(Exception):
    """PyTorch raises an error for these values."""


def _place(seed: Any, inputs: Sequence[Any]) -> int | None:
    """Where the seed stands among the inputs."""
    return next((n for n, tensor in enumerate(inputs) if tensor is seed), None)


def draw_seed() -> int:
    """A random number from PyTorch's default generator, so that `torch.manual_seed` rules it."""
    return int(torch.empty((), dtype=torch.int64).random_())


def _array(tensor: torch.Tensor, spec: InSpec) -> np.ndarray:
    laid = tensor if spec.plain else tensor.permute(spec.order)
    return array_of(laid if laid.is_contiguous() else laid.contiguous())


def _laid(tensor: torch.Tensor, spec: InSpec) -> torch.Tensor:
    """The tensor as a program may read it: row-major in the order of memory, with a cache
    line to read even where it has less: on the same page, or it is copied to where that is so.
    Threads of a GPU load several elements at once, from where a line may begin."""
    laid = tensor if spec.plain else tensor.permute(spec.order)
    if not laid.is_contiguous() or laid.is_neg() or laid.is_conj():
        laid = laid.resolve_neg().resolve_conj().contiguous()
    close = laid.nbytes < LINE and laid.data_ptr() % PAGE > PAGE - LINE
    astray = laid.device.type != "cpu" and laid.data_ptr() % LINE
    return laid.clone() if close or astray else laid


def _tensor(array: np.ndarray, spec: OutSpec) -> torch.Tensor:
    return _finished(tensor_of(array, spec.kind), spec)


def _finished(tensor: torch.Tensor, spec: OutSpec) -> torch.Tensor:
    """A result with PyTorch's order of dimensions, eager's strides, and memory of its own."""
    if spec.copy:
        tensor = tensor.clone()
    if spec.back is not None:
        tensor = tensor.permute(spec.back)
    if spec.strides is not None:
        return tensor.new_empty_strided(tensor.shape, spec.strides).copy_(tensor)
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
