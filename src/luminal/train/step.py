"""A training step: one program that runs forward, backward and the update of all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..errors import DTypeError, InputError, ShapeError
from ..graph.dtype import f32, f64
from ..graph.infer import text
from ..graph.tensor import Tensor
from .autograd import backward
from .clipping import Clip
from .optimizers import Moment, Optimizer


class Step:
    """Records the update of all parameters, which become states of the graph of the loss:

        step = train.Step(loss, model.parameters(), train.AdamW(lr=1e-3))
        rt = loss.graph.compile()
        rt[x], rt[y] = batch
        rt.run()          # forward, backward and update
        rt[loss], rt[model.weight]

    parameters: inputs or parameters of fixed shapes and floats, each once. optimizer: one for all,
    or a function from a parameter to its own. clip: what is done to the gradients first. The loss
    becomes an output.

    gradients: of the parameters, in their order, before they are clipped. count: how often a step
    has been made (a scalar i64). slots: what optimizers remember, by its name in the program.
    Raises ShapeError, DTypeError, InputError.
    """

    def __init__(
        self,
        loss: Tensor,
        parameters: Iterable[Tensor],
        optimizer: Optimizer | Callable[[Tensor], Optimizer],
        clip: Clip | None = None,
    ) -> None:
        self.loss, self.graph = loss, loss.graph
        self.parameters = list(parameters)
        self._check()
        self.gradients = backward(loss, self.parameters)
        gradients = self.gradients if clip is None else clip(self.gradients)
        self.count = self.graph.parameter((), "i64", "steps").set(np.int64(0))
        self.slots: dict[str, Tensor] = {}
        for p, g in zip(self.parameters, gradients):
            self._update(p, g, optimizer if isinstance(optimizer, Optimizer) else optimizer(p))
        self.graph.donate(self.count, self.count + 1)
        loss.output("loss")

    def _update(self, p: Tensor, g: Tensor, optimizer: Optimizer) -> None:
        kind = f64 if p.dtype is f64 else f32
        done = self.count.cast(f64)
        at = Moment(optimizer.schedule(done).cast(kind), done + 1.0)
        slots = {name: self._slot(p, name, kind.name) for name in optimizer.remembered}
        new, remembered = optimizer.update(p.cast(kind), g.cast(kind), slots, at)
        self.graph.donate(p, new.cast(p.dtype))
        for name, slot in slots.items():
            self.graph.donate(slot, remembered[name])

    def _slot(self, p: Tensor, name: str, kind: str) -> Tensor:
        full = f"{p.node.attribute.name}.{name}"
        slot = self.graph.parameter(p.shape, kind, full)
        self.slots[full] = slot.set(np.zeros(tuple(map(int, p.shape)), slot.dtype.numpy))
        return slot

    def _check(self) -> None:
        if not self.parameters:
            raise InputError("a training step needs at least one parameter")
        if len(set(self.parameters)) < len(self.parameters):
            raise InputError("a parameter is named twice: each is updated once")
        for p in self.parameters:
            if p.node.op != "input" or p.node.attribute.kind == "constant":
                raise InputError(f"only inputs and parameters are trained, not {p}")
            name = p.node.attribute.name
            if not p.dtype.is_float:
                raise DTypeError(f"{name} is {p.dtype}: only floats are trained")
            if not all(size.is_constant for size in p.node.shape):
                raise ShapeError(f"{name} has shape {text(p.node.shape)}: a fixed one is trained")
