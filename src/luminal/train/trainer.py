"""A training loop: batches in, steps, checkpoints, validation, a log. Resumes exactly."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.reference.graph import evaluate
from ..errors import InputError, NotFinite
from ..graph.graph import Graph
from ..graph.loops import Scopes
from ..graph.order import reachable
from ..graph.tensor import Tensor
from ..progress import Line
from ..runtime.executable import Executable
from ..weights.safetensors import METADATA
from . import checkpoints, log
from .checkpoints import Checkpoints
from .data import Place, Prefetch, Source, arrays_of, described, one_epoch, stream
from .limits import whole
from .log import Record
from .optimizers import Optimizer
from .step import Step

Inputs = Sequence[Tensor] | Mapping[str, Tensor]


class Trainer:
    """Trains parameters on batches:

        trainer = train.Trainer(loss, [x, y], model.parameters(), train.AdamW(1e-3), folder="run")
        trainer.fit(train.Batches(images, targets, size=64), steps=1000)
        trainer[model.weight]

    loss: a scalar. inputs: the tensors that a batch gives, in its order, or by its names. options:
    of `Step` (clip, accumulate, ...). validation_loss: taken of validation data, without an update;
    often the loss itself, or that of the model recorded in `eval()`.

    folder: where checkpoints (`step-*.safetensors`: all states, the place in the data; the last
    `keep` stay), `best.safetensors` (parameters, and other states that validation reads, at its
    lowest loss) and `log.csv` lie. A fit goes on where the newest checkpoint stands, with exactly
    the losses that it would have had: nothing but steps after that checkpoint is lost, whenever
    the process is killed. The first checkpoint of a training begun anew (resume=False) takes the
    place of those of later steps.

    find_nan: keeps all states of the step before (slow), and where the loss is not finite puts
    them back, as if the step had not been, and raises NotFinite with the step and the first tensor
    that was not.

    >>> x, w = cx.tensor((4, 2)), cx.parameter(2).set([0.0, 0.0])
    >>> loss = (x @ w - 1.0).square().mean()
    >>> trainer = train.Trainer(loss, [x], [w], train.SGD(0.1))
    >>> records = trainer.fit(train.Batches(np.ones((8, 2), "f"), size=4), steps=3)
    >>> [round(record.loss, 3) for record in records]
    [1.0, 0.36, 0.13]
    """

    def __init__(
        self,
        loss: Tensor,
        inputs: Inputs,
        parameters: Iterable[Tensor],
        optimizer: Optimizer | Callable[[Tensor], Optimizer],
        *,
        validation_loss: Tensor | None = None,
        folder: str | Path | None = None,
        save_every: int = 1000,
        keep: int = 3,
        log_every: int = 1,
        tensorboard: bool = False,
        find_nan: bool = False,
        compile_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        for name, number in (("save_every", save_every), ("log_every", log_every), ("keep", keep)):
            whole(name, number, 1)
        self.loss, self.inputs, self.graph = loss, inputs, loss.graph
        self.parameters, chosen = list(parameters), dict(compile_options or {})
        self._check = None if validation_loss is None else _alone(validation_loss, chosen)
        self._validation_loss = validation_loss
        self.recorded = Step(loss, self.parameters, optimizer, **options)
        self.program: Executable = self.graph.compile(**chosen)
        self._names = _names([state for state, _ in self.graph.states])
        read = set() if validation_loss is None else set(reachable([validation_loss.node]))
        self._read = [state for state in self._names if state.node in read]
        self._folder = None if folder is None else Checkpoints(folder, keep)
        self._every = save_every, log_every
        self._tensorboard, self._find_nan = tensorboard, find_nan
        self.step, self.best, self._waited = 0, math.inf, 0
        self._place: Place = (0, 0)
        self._data: str | None = None  # what the place is in
        self._resumed = False  # and nothing read since
        self.records: list[Record] = []

    def __getitem__(self, tensor: Any) -> np.ndarray:
        """A parameter, a state or an output."""
        return self.program[tensor]

    # ---- training

    def fit(
        self,
        data: Source,
        steps: int,
        validation: Source | None = None,
        validate_every: int = 100,
        patience: int | None = None,
        resume: bool = True,
    ) -> list[Record]:
        """Trains until `steps` steps have been made in all; the records of those of this fit.

        data: `Batches`, or what can be iterated over once an epoch (a PyTorch DataLoader), or a
        function that gives it anew (`lambda: dataset.with_format("numpy").iter(64)` of Hugging
        Face). A batch is a tuple of arrays or tensors, or a dict of them. No more of them are
        asked for than there are steps to make.
        On a resume batches that were used are taken again and left out: the order must be the same
        for equal losses, and `Batches` of the same size and number of rows. So they are in a later
        fit, but an iterator, which serves once, goes on where it stands (behind up to three more
        batches than were used, if the fit before ended early).
        Training ends early when an epoch is empty, or when `patience` validations in a row were no
        better than the best. Raises InputError, NotFinite.
        """
        if validation is not None and self._check is None:
            raise InputError("validation needs Trainer(..., validation_loss=...)")
        whole("steps", steps, 0)
        whole("validate_every", validate_every, 1)
        if patience is not None:
            whole("patience", patience, 1)
        most = math.inf if patience is None else patience
        if resume and self.step == 0:
            self._resume()
        left = 0 if self._waited >= most else max(steps - self.step, 0)
        if left and self._resumed:
            self._agree(described(data))
        table = self._table()
        first = len(self.records)
        try:
            wanted = islice(stream(data, self._place, not self._resumed), left)
            with Prefetch(wanted) as batches, Line(steps) as line:
                for place, batch in batches:
                    self._resumed = False
                    record = self._made(place, batch)
                    self._data = described(data)
                    if validation is not None and self.step % validate_every == 0:
                        record = self._validated(record, validation)
                    self._keep(record, table, line)
                    if self._waited >= most:
                        break
            self.save()
        finally:
            if table is not None:
                table.close()
        return self.records[first:]

    def validate(self, data: Source) -> float:
        """The mean of the validation loss over the tokens, or else rows, of an epoch of batches."""
        if self._check is None or self._validation_loss is None:
            raise InputError("validation needs Trainer(..., validation_loss=...)")
        for state in self._read:
            self._check[state] = self.program[state]
        losses, items = [], []
        for batch in one_epoch(data):
            items.append(self._feed(self._check, arrays_of(batch)))
            self._check.run()
            losses.append(float(self._check[self._validation_loss]))
        if not losses:
            raise InputError("the validation data gave no batch: an iterator serves one epoch only")
        return float(np.average(losses, weights=items))

    def _made(self, place: Place, batch: Any) -> Record:
        """A step."""
        start = time.perf_counter()
        before = self._states() if self._find_nan else {}
        items = self._feed(self.program, batch)
        self.program.run()
        loss = float(self.program[self.loss])
        if self._find_nan and not math.isfinite(loss):
            for state, array in before.items():
                self.program[state] = array
            raise NotFinite(self._first_of(before, batch, loss))
        self.step, self._place = self.step + 1, place
        seconds = time.perf_counter() - start
        return Record(self.step, place[0], loss, seconds, items / seconds)

    def _feed(self, program: Executable, batch: Any) -> int:
        """Sets the inputs; tokens, or else rows, of the first (1 where there is none)."""
        given = self._given(batch)
        for tensor, array in given:
            program[tensor] = array
        first = given[0][1] if given else np.zeros(())
        return first.size if first.dtype.kind in "iu" else len(first) if first.ndim else 1

    def _given(self, batch: Any) -> list[tuple[Tensor, np.ndarray]]:
        if isinstance(self.inputs, Mapping):
            if not isinstance(batch, Mapping) or self.inputs.keys() - batch.keys():
                raise InputError(f"a batch must have {', '.join(self.inputs)} by name")
            return [(tensor, batch[name]) for name, tensor in self.inputs.items()]
        if isinstance(batch, Mapping) or len(batch) != len(self.inputs):
            raise InputError(f"a batch must be {len(self.inputs)} arrays, as the inputs")
        return list(zip(self.inputs, batch))

    def _validated(self, record: Record, data: Source) -> Record:
        found = self.validate(data)
        self._waited = 0 if found < self.best else self._waited + 1
        if found < self.best:
            self.best = found
            if self._folder is not None:
                states = self._states()
                wanted = dict.fromkeys([*self.parameters, *self._read])
                best = {self._names[state]: states[state] for state in wanted}
                checkpoints.save(self._folder.folder / "best.safetensors", best)
        return Record(record.step, record.epoch, record.loss, record.seconds, record.rate, found)

    def _keep(self, record: Record, table: log.Table | None, line: Line) -> None:
        save_every, log_every = self._every
        line.tell(self.step, f"step {self.step}: loss {record.loss:.4f}, {record.rate:.0f} / s")
        if record.step % log_every == 0 or record.validation is not None:
            self.records.append(record)
            if table is not None:
                table.add(record)
        if self.step % save_every == 0:
            self.save()

    # ---- checkpoints

    def save(self) -> None:
        """A checkpoint now, where there is a folder."""
        if self._folder is None:
            return
        arrays = {self._names[state]: array for state, array in self._states().items()}
        best = None if math.isinf(self.best) else self.best
        progress = {"step": self.step, "place": self._place, "best": best, "waited": self._waited}
        self._folder.save(self.step, arrays, {**progress, "data": self._data})

    def _resume(self) -> None:
        found = None if self._folder is None else self._folder.newest()
        if found is None or self._folder is None:
            return
        arrays, progress = found
        fit = {name for state, name in self._names.items() if _fits(arrays.get(name), state)}
        other = (arrays.keys() | self._names.values()) - fit
        if other:
            raise InputError(
                f"{self._folder.folder} holds another training: {min(other)!r} is a state of one "
                "of them only, or of another shape or dtype; name another folder, or resume=False"
            )
        for state, name in self._names.items():
            self.program[state] = np.array(arrays[name])
        self.step, self._waited = progress["step"], progress["waited"]
        self.best = math.inf if progress["best"] is None else progress["best"]
        epoch, number = progress["place"]
        self._place, self._resumed = (epoch, number), True
        self._data = progress.get("data")  # not in checkpoints of before it was kept

    def _agree(self, given: str | None) -> None:
        """Raises InputError where the place is known to be in other data."""
        if None not in (given, self._data) and given != self._data:
            raise InputError(
                f"the checkpoint is of a training on {self._data}, not on {given}: go on with the "
                "same data, or begin a new Trainer in another folder, or with resume=False"
            )

    def _states(self) -> dict[Tensor, np.ndarray]:
        return {state: np.array(self.program[state]) for state in self._names}

    def _table(self) -> log.Table | None:
        if self._folder is None:
            return None
        table = log.Table(self._folder.folder, self.step, self._tensorboard)
        self.records = self.records or list(table.kept)
        return table

    def _repr_html_(self) -> str:
        """For notebooks: the losses of all steps."""
        from ..view.plots import curve

        losses = [record.loss for record in self.records]
        return f"<div>Trainer, step {self.step}<br>{curve(losses, 'loss')}</div>"

    def plot(self, path: str | Path) -> None:
        """The losses as a picture (needs matplotlib)."""
        log.picture(self.records, path)

    # ---- what is not finite

    def _first_of(self, before: Mapping[Tensor, np.ndarray], batch: Any, loss: float) -> str:
        """Names the first value of the next step that was not finite, by NumPy."""
        step = f"step {self.step + 1}: the loss is {loss}"
        feeds = dict(before) | dict(self._given(arrays_of(batch)))
        outside = Scopes([self.loss.node]).ordered([self.loss.node])
        nodes = [node for node in outside if node.op != "loop"]  # whose values are its results
        with np.errstate(all="ignore"):
            made = evaluate(self.graph, nodes, feeds)
        bad = np.isnan if math.isnan(loss) else np.isinf
        for node in nodes:
            if node.dtype.is_float and bad(made[node].astype(np.float64)).any():
                where = self.graph.locations.get(node)
                name = f"input '{node.attribute.name}'" if node.op == "input" else repr(node)
                place = f" ({where[0]}:{where[1]})" if where else ""
                said = f"the first such value is in {name}{place}"
                return f"{step}; {said}"
        return f"{step}, which NumPy does not repeat"


def _fits(array: np.ndarray | None, state: Tensor) -> bool:
    """Whether it has the state's dtype and shape, sizes that vary left out."""
    if array is None or array.dtype != state.dtype.numpy or array.ndim != state.ndim:
        return False
    sizes = zip(array.shape, state.node.shape)
    return all(size == wanted.constant for size, wanted in sizes if wanted.is_constant)


def _names(states: Sequence[Tensor]) -> dict[Tensor, str]:
    names = {state: state.node.attribute.name for state in states}
    if METADATA in names.values():
        raise InputError(f"no entry can be called {METADATA!r} in a checkpoint: rename the state")
    counted = Counter([checkpoints.PROGRESS, *names.values()])
    for name, count in counted.items():
        if count > 1:
            raise InputError(
                f"a checkpoint would hold two entries {name!r}: give states names of their own"
            )
    return names


def _alone(loss: Tensor, options: Mapping[str, Any]) -> Executable:
    """A program of the loss only, which changes no state."""
    graph: Graph = loss.graph
    outputs, states = list(graph.outputs), list(graph.states)
    graph.outputs[:], graph.states[:] = [], []
    try:
        loss.output("validation_loss")
        return graph.compile(**options)
    finally:
        graph.outputs[:], graph.states[:] = outputs, states
