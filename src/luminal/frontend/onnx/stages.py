"""A body of operators as a chain of programs with work of the host in between.

Most models are one program. Where a result is as large as its values say, or is no tensor of
numbers, the host makes it and another program goes on from there. A program is recorded when its
inputs are at hand for the first time, and serves all later ones of like shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import DimError, InputError, LuminalError, ShapeError, WeightsError
from ...graph.graph import Graph
from ...graph.index import Index
from ...graph.tensor import Tensor
from ...runtime.executable import Executable
from . import kinds, values
from .context import Context
from .known import ToHost
from .operators import Body, Operator
from .record import Fix, NeedSizes, Recorder
from .sources import Store
from .table import HOST
from .table.base import Typed
from .values import equal, plain_name
from .work import threads_for

MOST_VARIANTS = 256  # programs kept for one place in a body
Template = tuple[Any, ...]


@dataclass
class Stage:
    """A program, the host's work after it, and what is left then.

    fixed: values for which it was made. loose: which of their elements are sizes of the program.
    takes: its inputs, with their shapes. gives: its results. still: made for just these sizes;
    why: what could not be recorded for others. own: constants of the model that no input replaced.
    """

    graph: Graph
    fixed: dict[str, Any]
    loose: dict[str, np.ndarray]
    takes: dict[str, Any]
    shapes: dict[str, Template]
    gives: dict[str, Any]
    hosts: list[Operator]
    rest: list[Operator]
    still: bool
    why: str = ""
    program: Executable | None = None
    own: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()  # sizes that the program knows
    next: Place | None = None

    def fits(self, store: Store, bound: Mapping[str, int]) -> bool:
        """It was made for such values, shapes and element types."""
        if not self.own.isdisjoint(store):
            return False
        for name, value in self.fixed.items():
            if not equal(value, store.get(name), self.loose.get(name)):
                return False
        for name, taken in self.takes.items():
            if not _alike(taken, self.shapes.get(name), store.get(name)):
                return False
        return True

    @property
    def strictness(self) -> int:
        """0: values and sizes may be others. 1: sizes may. 2: none."""
        return 0 if self.loose else 1 if self.graph.space.sizes else 2


def _alike(taken: Any, shape: Template | None, value: Any) -> bool:
    if isinstance(taken, list):
        return (
            isinstance(value, list) and len(value) == len(taken)
            and all(_alike(t, t.tensor.shape, v) for t, v in zip(taken, value))
        )  # fmt: skip
    if not isinstance(value, np.ndarray) or kinds.kind_of(value) != taken.kind:
        return False
    assert shape is not None
    return len(shape) == value.ndim and all(
        not isinstance(s, int) or s == n for s, n in zip(shape, value.shape)
    )


@dataclass
class Place:
    """A point in a body: the operators that are left, and the programs made for them so far."""

    operators: Sequence[Operator]
    constants: Mapping[str, Any]
    outputs: Sequence[str]
    stages: list[Stage] = field(default_factory=list)


class Runner:
    """Runs a body. shapes: of its inputs, sizes that may differ by name."""

    def __init__(self, context: Context, body: Body, shapes: Mapping[str, Template]) -> None:
        self.context, self.body, self.shapes = context, body, dict(shapes)
        self.named = [(name, dim, len(shape), str(size)) for name, shape in shapes.items()
                      for dim, size in enumerate(shape) if isinstance(size, Index)]  # fmt: skip
        self.start = Place(body.operators, body.constants, body.outputs)

    def run(self, store: dict[str, Any]) -> list[Any]:
        """The outputs for these inputs by name; the store grows by what is made."""
        place: Place | None = self.start
        shapes, bound = dict(self.shapes), self._bound(store)
        while place is not None:
            stage = self._stage(place, store, shapes, bound)
            stage = self._run_program(place, stage, store, shapes, bound)
            for operator in stage.hosts:
                _run_host(self.context, operator, store)
            place = stage.next
        return [self._result(name, store) for name in self.body.outputs]

    def _result(self, name: str, store: dict[str, Any]) -> Any:
        if name in store or name not in self.body.constants:
            return store[name]
        return self.context.reader.array(self.body.constants[name])

    def _bound(self, store: Store) -> dict[str, int]:
        """The sizes that the inputs tell."""
        bound: dict[str, int] = {}
        for name, dim, rank, size in self.named:
            value = store.get(name)
            if isinstance(value, np.ndarray) and value.ndim == rank:
                bound.setdefault(size, value.shape[dim])
        return bound

    # ---- finding and making programs

    def _stage(
        self, place: Place, store: Store, shapes: dict[str, Template], bound: Mapping[str, int],
        strictness: int = 0,
    ) -> Stage:  # fmt: skip
        for stage in place.stages:
            if stage.strictness >= strictness and stage.fits(store, bound):
                return stage
        stage = self.record(place, store, shapes, bound, strictness)
        place.stages.insert(0, stage)
        place.stages.sort(key=lambda made: len(made.graph.space.sizes))  # the most special first
        del place.stages[MOST_VARIANTS:]
        return stage

    def record(
        self, place: Place, store: Store, shapes: Mapping[str, Template],
        bound: Mapping[str, int], strictness: int = 0,
    ) -> Stage:  # fmt: skip
        """A program for these values, with sizes of its inputs as free as they may be."""
        fixed: set[str] = set()
        why = ""
        while True:
            still = strictness == 2
            templates = self._templates(place, store, shapes, bound, still)
            free = strictness == 0 and self.context.dynamic is not False
            earlier = [(s.fixed, s.loose) for s in place.stages] if free else []
            loose = values.loosened(earlier, store)
            sample = {**bound, **_sample(templates, store), **values.sizes(loose, store)}
            recorder = Recorder(
                self.context, store, templates, fixed, loose, place.constants, still, sample
            )
            try:
                recorder.record(place.operators)
                return self._made(place, recorder, templates, why)
            except Fix as error:
                assert not error.names <= fixed
                fixed |= error.names
            except NeedSizes as error:
                strictness, why = (2, str(error)) if recorder.sources.loose == {} else (1, why)

    def _templates(
        self, place: Place, store: Store, shapes: Mapping[str, Template],
        bound: Mapping[str, int], still: bool,
    ) -> dict[str, Template]:  # fmt: skip
        """The shape of each input: sizes that have differed between runs are free."""
        arrays = {name: v for name, v in store.items() if isinstance(v, np.ndarray)}
        if still or self.context.dynamic is False:
            return {name: value.shape for name, value in arrays.items()}
        declared = {name: shapes[name] for name, value in arrays.items()
                    if name in shapes and len(shapes[name]) == value.ndim}  # fmt: skip
        varied = self._varied(place, declared, arrays)
        found: dict[str, Template] = {}
        for name, value in arrays.items():
            if name in declared:
                found[name] = tuple(_settled(size, n, varied, bound)
                                    for size, n in zip(declared[name], value.shape))  # fmt: skip
            else:
                found[name] = self._loosened(place, name, value.shape)
        return found

    def _varied(
        self, place: Place, declared: Mapping[str, Template], arrays: Mapping[str, np.ndarray]
    ) -> frozenset[str]:
        """Names of sizes for which there was another value, or that are free from the start."""
        found: set[str] = set()
        for name, shape in declared.items():
            earlier = [stage.shapes[name] for stage in place.stages if name in stage.shapes]
            for d, (size, n) in enumerate(zip(shape, arrays[name].shape)):
                if isinstance(size, Index) and (
                    self.context.dynamic or any(len(e) == len(shape) and e[d] != n for e in earlier)
                ):
                    found |= size.names()
        return frozenset(found)

    def _loosened(self, place: Place, name: str, shape: tuple[int, ...]) -> Template:
        seen = [s.shapes[name] for s in place.stages if name in s.shapes and name in s.takes]
        alike = [s for s in seen if len(s) == len(shape)]
        return tuple(
            _fresh(name, d) if any(s[d] != n for s in alike) and n else n
            for d, n in enumerate(shape)
        )

    def _made(
        self, place: Place, recorder: Recorder, shapes: dict[str, Template], why: str
    ) -> Stage:
        needed = set(place.outputs)
        for operator in (*recorder.hosts, *recorder.rest):
            needed |= operator.reads
        gives = {name: recorder.values[name] for name in needed
                 if name in recorder.values and name not in recorder.store}  # fmt: skip
        for name in needed & recorder.constants.keys():
            if name in place.outputs or any(name in o.reads for o in recorder.hosts):
                gives.setdefault(name, _held(recorder, name))
        given = recorder.sources
        fixed = {name: recorder.store[name] for name in given.fixed}
        _mark(gives)
        loose = {name: mask for name, mask in given.loose.items() if name in fixed}
        stage = Stage(recorder.graph, fixed, loose, given.inputs, shapes, gives, recorder.hosts,
                      recorder.rest, recorder.still, why,
                      own=frozenset(place.constants.keys() - recorder.store.keys()))  # fmt: skip
        late = needed - gives.keys() - recorder.store.keys()
        if recorder.rest:
            stage.next = Place(recorder.rest, recorder.constants, [*place.outputs])
        else:
            made = {name for operator in recorder.hosts for name in operator.outputs}
            if late - made:
                raise WeightsError(f"the model gives {min(late - made)!r}, which nothing makes")
        return stage

    # ---- running

    def _run_program(
        self, place: Place, stage: Stage, store: dict[str, Any], shapes: dict[str, Template],
        bound: dict[str, int],
    ) -> Stage:  # fmt: skip
        while True:
            try:
                self._execute(stage, store, bound)
                break
            except (DimError, ShapeError, InputError):
                if stage.strictness == 2:
                    raise
                stage = self._stage(place, store, shapes, bound, stage.strictness + 1)
        if stage.next is not None and not stage.still:
            tensors = {n: g.tensor for n, g in stage.gives.items() if isinstance(g, Typed)}
            shapes.update({name: tensor.shape for name, tensor in tensors.items()})
        return stage

    def _execute(self, stage: Stage, store: dict[str, Any], bound: Mapping[str, int]) -> None:
        results: dict[Tensor, np.ndarray] = {}
        if stage.graph.outputs:
            program = compiled(stage, self.context)
            for name, taken in stage.takes.items():
                for tensor, array in _pairs(taken, store[name]):
                    program[tensor] = array
            known = {**bound, **values.sizes(stage.loose, store)}
            program.run(**{name: known[name] for name in stage.told if name in known})
            results = {tensor: program[tensor] for tensor in stage.graph.outputs}
        for name, given in stage.gives.items():
            store[name] = _outward(given, results)


def _sample(shapes: Mapping[str, Template], store: Store) -> dict[str, int]:
    """The sizes of this run."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        for size, n in zip(shape, store[name].shape):
            if isinstance(size, Index) and str(size).isidentifier():
                found.setdefault(str(size), n)
    return found


def _settled(size: Any, n: int, varied: frozenset[str], bound: Mapping[str, int]) -> Any:
    """A size as far as it varies."""
    if not isinstance(size, Index) or not size.names() & varied:
        return n
    fixed = {name: Index.of(bound[name]) for name in size.names() - varied if name in bound}
    return size.substitute(fixed)


def compiled(stage: Stage, context: Context) -> Executable:
    """The program of a stage, compiled when it is first needed."""
    if stage.program is None:
        most = context.options.get("threads")
        threads = threads_for(stage.graph, most)
        stage.program = stage.graph.compile(**{**context.options, "threads": threads})
        stage.told = tuple(stage.program.sizes)
    return stage.program


def _pairs(taken: Any, value: Any) -> list[tuple[Tensor, np.ndarray]]:
    if isinstance(taken, list):
        return [pair for t, v in zip(taken, value) for pair in _pairs(t, v)]
    return [(taken.tensor, kinds.inward(value))]


def _mark(gives: Mapping[str, Any]) -> None:
    for name, given in gives.items():
        if isinstance(given, Typed):
            given.tensor.output(name)
        elif isinstance(given, list):
            _mark({f"{name}/{i}": part for i, part in enumerate(given)})


def _held(recorder: Recorder, name: str) -> Any:
    """A constant of the model as a result; text as it is."""
    try:
        return recorder.value(name)
    except ToHost:
        return recorder.context.reader.array(recorder.constants[name])


def _outward(given: Any, results: Mapping[Tensor, np.ndarray]) -> Any:
    if isinstance(given, Typed):
        return kinds.outward(results[given.tensor], given.kind)
    if isinstance(given, list):
        return [_outward(part, results) for part in given]
    return given.copy() if isinstance(given, np.ndarray) else given


def _fresh(name: str, dim: int) -> Index:
    """A size of its own for one dimension of one value."""
    return Index.of(f"size_{plain_name(name)}_{dim}")


def _run_host(context: Context, operator: Operator, store: dict[str, Any]) -> None:
    rule = HOST[operator.domain, operator.name]
    operands = [store[name] if name else None for name in operator.inputs]
    try:
        results = rule(Host(context, operator, store), *operands, **operator.attributes)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        if isinstance(error, LuminalError):
            raise
        raise InputError(f"{operator}: {error}") from error
    results = results if isinstance(results, tuple) else (results,)
    store.update({name: one for name, one in zip(operator.outputs, results) if name})


@dataclass(frozen=True)
class Host:
    """What a rule of the host may ask for."""

    context: Context
    operator: Operator
    store: Mapping[str, Any]

    @property
    def version(self) -> int:
        return self.operator.version

    def runner(self, body: Body) -> Runner:
        """What runs a body again and again."""
        key = id(body)
        if key not in self.context.runners:
            self.context.runners[key] = body, Runner(self.context, body, {})
        runner: Runner = self.context.runners[key][1]
        return runner
