"""A training step: one program that runs forward, backward and the update of all parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral

import numpy as np

from .. import ops
from ..errors import DTypeError, InputError, ShapeError
from ..graph.dtype import DType, f32, f64, i8
from ..graph.infer import text
from ..graph.scope import scope
from ..graph.tensor import Tensor
from ..ops.base import full_like, tensor_of
from .autograd import slopes, tensors
from .budget import settle
from .clipping import Clip
from .limits import check
from .narrow import BLOCK, Narrow
from .optimizers import Moment, Optimizer
from .scaling import LossScale, Scaled, all_finite


class Step:
    """Records the update of all parameters, which become states of the graph of the loss:

        step = train.Step(loss, model.parameters(), train.AdamW(lr=1e-3))
        rt = loss.graph.compile()
        rt[x], rt[y] = batch
        rt.run()          # forward, backward and update
        rt[loss], rt[model.weight]

    parameters: inputs or parameters of fixed shapes and floats, each once; what does not reach the
    loss stays as it is, without decay. optimizer: one for all, or a function from a parameter to
    its own. clip: what is done to the gradients first. The loss
    becomes an output.

    accumulate: parameters change with every so-manieth run, by the mean of the gradients. scaling:
    of the loss, for parameters or activations of f16. masters: parameters of f16 and bf16, which
    must be set, are updated in f32 and rounded for each run. ema: the share of the old in running
    means of the parameters. narrow: what optimizers remember of large parameters takes 8 bits a
    number (see `narrow.py`). memory: bytes for what parts under `checkpoint()` make; those that
    fit are kept rather than computed again (see `budget.py`; `parts` says which).

    gradients: of the parameters, in their order, before they are clipped. count: how often the
    parameters have been updated (a scalar i64). slots: what optimizers remember, by its name in the
    program. averages: the running mean of each parameter. Raises ShapeError, DTypeError,
    InputError; Unsupported for `memory` where a part has a loop in it (a scan, an LSTM).

    >>> w = cx.parameter(1, name="w").set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.SGD(lr=0.1), clip=train.clip_norm(1.0))
    >>> [state.node.attribute.name for state, new in cx.states]
    ['w', 'steps']
    """

    def __init__(
        self,
        loss: Tensor,
        parameters: Iterable[Tensor],
        optimizer: Optimizer | Callable[[Tensor], Optimizer],
        clip: Clip | None = None,
        *,
        accumulate: int = 1,
        scaling: LossScale | None = None,
        masters: bool = False,
        ema: float | None = None,
        narrow: bool = False,
        memory: int | None = None,
    ) -> None:
        (self.loss,) = tensors("the loss", [loss])
        self.graph = loss.graph
        self.parameters = tensors("parameters", parameters)
        self._check(accumulate)
        chosen = [_optimizer_of(p, optimizer) for p in self.parameters]
        if ema is not None:
            check("ema", ema, 0.0, 1.0)
        self._masters, self._ema, self._narrow = masters, ema, narrow
        self.slots: dict[str, Tensor] = {}
        self.averages: dict[Tensor, Tensor] = {}
        self.parts = [] if memory is None else settle(loss, memory)
        before = list(self.graph.states)
        try:
            self._record(accumulate, scaling, clip, chosen)
        except BaseException:
            self.graph.states[:] = before  # so that it can be tried again
            raise
        loss.output("loss")

    def _record(
        self, accumulate: int, scaling: LossScale | None, clip: Clip | None,
        chosen: Sequence[Optimizer],
    ) -> None:  # fmt: skip
        self._counters(accumulate)
        gradients = self._gradients(scaling)
        gradients = gradients if clip is None else clip(gradients)
        for p, g, own in zip(self.parameters, gradients, chosen):
            with scope(f"update.{p.node.attribute.name}".rpartition(".")[0]):
                if p in self._still:
                    self._keep(p)
                else:
                    self._update(p, g, own)
        self.graph.donate(self.count, self._settled(self.count, self.count + 1))

    def _counters(self, accumulate: int) -> None:
        """count; last: whether this run updates the parameters (None: always)."""
        self.count = self.graph.parameter((), "i64", "steps").set(np.int64(0))
        self._last: Tensor | None = None
        if accumulate > 1:
            runs = self.graph.parameter((), "i64", "runs").set(np.int64(0))
            self._runs = runs + 1
            self._last = self._runs >= accumulate  # more: resumed with fewer
            self.graph.donate(runs, ops.where(self._last, runs * 0, self._runs))
        self._applied = self._last

    def _gradients(self, scaling: LossScale | None) -> list[Tensor]:
        """Of all runs since the last update, without the scale."""
        if scaling is None:
            self.gradients = self._slopes(self.loss)
            return self._summed(self.gradients)
        scaled = Scaled(self.graph, scaling)
        found = self._slopes(self.loss * scaled.factor.cast(self.loss.dtype))
        self.gradients = [g.cast(_wide(g)) / scaled.factor.cast(_wide(g)) for g in found]
        total = self._summed(self.gradients)
        finite = all_finite(total)
        self._applied = finite if self._last is None else ops.logical_and(self._last, finite)
        scaled.renew(finite, self._last)
        return total

    def _slopes(self, loss: Tensor) -> list[Tensor]:
        found = slopes(loss, self.parameters)
        self._still = {p for p, g in zip(self.parameters, found) if g is None}
        return [full_like(p, 0.0) if g is None else g for p, g in zip(self.parameters, found)]

    def _summed(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Their mean over the runs since the last update, in f32 or f64."""
        if self._last is None:
            return [g.cast(_wide(g)) for g in gradients]
        total = []
        for p, g in zip(self.parameters, gradients):
            slot = self._slot(p, "gradient", tuple(map(int, p.shape)), _wide(p))
            whole = slot + g.cast(slot.dtype)
            self.graph.donate(slot, ops.where(self._last, ops.zeros_like(whole), whole))
            total.append(whole / self._runs.cast(whole.dtype))
        return total

    def _settled(self, old: Tensor, new: Tensor) -> Tensor:
        """The new value, where this run updates."""
        return new if self._applied is None else ops.where(self._applied, new, old)

    def _update(self, p: Tensor, g: Tensor, optimizer: Optimizer) -> None:
        kind = _wide(p)
        shape = tuple(map(int, p.shape))
        done = self.count.cast(f64)
        rate = tensor_of(self.graph, optimizer.schedule(done), f64)
        at = Moment(rate.cast(kind), done + 1.0)
        shapes = optimizer.slots_of(shape)
        narrow = {n: self._blocks(p, n, s) for n, s in shapes.items() if self._fits(s, kind)}
        slots = {n: self._slot(p, n, s, kind) for n, s in shapes.items() if n not in narrow}
        read = {n: blocks.read(shapes[n]) for n, blocks in narrow.items()}
        before, master = p.cast(kind), None
        if self._masters and p.dtype is not kind:
            master = self._master(p)  # until the parameter is set, which is then no rounding of it
            before = ops.where(ops.eq(p, master.cast(p.dtype)), master, before)
        new, remembered = optimizer.update(before, g.cast(kind), slots | read, at)
        self.graph.donate(p, self._settled(p, new.cast(p.dtype)))
        if master is not None:
            self.graph.donate(master, self._settled(master, new))
        for name, slot in slots.items():
            self.graph.donate(slot, self._settled(slot, remembered[name]))
        for name, old in narrow.items():
            made = old.written(remembered[name], self.count, name in optimizer.divisors)
            self.graph.donate(old.codes, self._settled(old.codes, made.codes))
            self.graph.donate(old.scales, self._settled(old.scales, made.scales))
        if self._ema is not None:
            self._average(p, new, self._ema)

    def _keep(self, p: Tensor) -> None:
        """What does not reach the loss."""
        self.graph.donate(p, p)
        if self._ema is not None:
            self._average(p, p.cast(_wide(p)), self._ema)

    def _average(self, p: Tensor, new: Tensor, share: float) -> None:
        """Begins with the parameters after the first update."""
        slot = self.averages[p] = self._slot(p, "average", tuple(map(int, p.shape)), new.dtype)
        mixed = slot * share + new * (1.0 - share)
        first = ops.eq(self.count, 0)
        self.graph.donate(slot, self._settled(slot, ops.where(first, new, mixed)))

    def _master(self, p: Tensor) -> Tensor:
        value = self.graph.values.get(p.node)
        if value is None:
            name = p.node.attribute.name
            raise InputError(f"{name} has no value yet: set it before masters are made of it")
        full = f"{p.node.attribute.name}.master"
        self.slots[full] = self.graph.parameter(p.shape, "f32", full)
        return self.slots[full].set(value.astype(np.float32))

    def _slot(self, p: Tensor, name: str, shape: tuple[int, ...], kind: DType) -> Tensor:
        full = f"{p.node.attribute.name}.{name}"
        slot = self.graph.parameter(shape, kind.name, full)
        self.slots[full] = slot.set(np.zeros(shape, slot.dtype.numpy))
        return slot

    def _fits(self, shape: tuple[int, ...], kind: DType) -> bool:
        return self._narrow and kind is f32 and Narrow.suits(shape)

    def _blocks(self, p: Tensor, name: str, shape: tuple[int, ...]) -> Narrow:
        blocks = math.prod(shape) // BLOCK
        codes = self._slot(p, f"{name}.codes", (blocks, BLOCK), i8)
        return Narrow(codes, self._slot(p, f"{name}.scales", (blocks, 1), f32))

    def _check(self, accumulate: int) -> None:
        if not isinstance(accumulate, Integral) or accumulate < 1:
            raise InputError(f"gradients of at least one run are needed, not of {accumulate}")
        if not self.parameters:
            raise InputError("a training step needs at least one parameter")
        if len(set(self.parameters)) < len(self.parameters):
            raise InputError("a parameter is named twice: each is updated once")
        for p in self.parameters:
            if p.node.op != "input" or p.node.attribute.kind == "constant":
                raise InputError(f"only inputs and parameters are trained, not {p}")
            name = p.node.attribute.name
            if any(p is state for state, _ in self.graph.states):
                raise InputError(f"{name} is updated already: record the loss in a new graph")
            if not p.dtype.is_float:
                raise DTypeError(f"{name} is {p.dtype}: only floats are trained")
            if not all(size.is_constant for size in p.node.shape):
                raise ShapeError(f"{name} has shape {text(p.node.shape)}: a fixed one is trained")


def _optimizer_of(p: Tensor, given: Optimizer | Callable[[Tensor], Optimizer]) -> Optimizer:
    own = given if isinstance(given, Optimizer) else given(p)
    if not isinstance(own, Optimizer):
        raise InputError(f"{p.node.attribute.name}: {own!r} is no optimizer")
    return own


def _wide(x: Tensor) -> DType:
    return f64 if x.dtype is f64 else f32
