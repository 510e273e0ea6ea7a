"""How a parameter follows from its gradient. Formulas and defaults are those of torch.optim.

An optimizer is a record of numbers; it keeps no state. What it has to remember of each parameter
(`slots`) lives in the graph beside the parameter. All is computed in f32, or f64 for a parameter of
f64; one of f16 or bf16 is rounded once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import repeat
from math import inf
from typing import Any, ClassVar, TypeAlias

from .. import ops
from ..errors import InputError
from ..graph.tensor import Tensor
from .limits import check, whole
from .schedules import Schedule, constant

Slots: TypeAlias = Mapping[str, Tensor]
Updated: TypeAlias = tuple[Tensor, dict[str, Tensor]]
NUMBERS = (int, float)


@dataclass(frozen=True)
class Moment:
    """An update's rate, in the dtype that it is computed in, and its number (1, 2, ...; f64)."""

    rate: Tensor
    number: Tensor

    def unbiased(self, decay: float) -> Tensor:
        """1 - decay^number: what the weights of a running mean add up to."""
        whole = -ops.expm1(self.number * math.log(decay)) if decay else self.number * 0.0 + 1.0
        return whole.cast(self.rate.dtype)


@dataclass(frozen=True)
class Optimizer(ABC):
    """lr: the learning rate, a number or a schedule. slots: names of what is remembered of each
    parameter: tensors of its shape that start at 0. divisors: those that something is divided by.
    limits: of other numbers than 0 .. inf, the upper one excluded.

    >>> train.Adam(lr=train.cosine(1e-3, 1000)).slots
    ('mean', 'square')
    """

    lr: float | Schedule
    slots: ClassVar[tuple[str, ...]] = ()
    divisors: ClassVar[tuple[str, ...]] = ("square",)
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"betas": (0, 1), "alpha": (0, 1)}

    def __post_init__(self) -> None:
        """Raises InputError for a number that is out of its limits: mostly, below 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            self._check_count(field.name, value, field.default)
            usual = field.default if isinstance(field.default, tuple) else repeat(field.default)
            several = isinstance(value, (tuple, list)) and type(field.default) not in NUMBERS
            for number, instead in zip(value if several else (value,), usual):
                if not _free(field.name, number, instead):
                    name = f"{type(self).__name__}: {field.name}"
                    check(name, number, *self.limits.get(field.name, (0.0, inf)))
                    if field.type in ("int", int):
                        whole(name, number, 0)

    def _check_count(self, name: str, value: Any, usual: Any) -> None:
        """As many numbers as by default."""
        given = value if isinstance(value, (tuple, list)) else ()
        if isinstance(usual, tuple) and len(given) != len(usual):
            message = f"{type(self).__name__}: {name} is {value!r}: {len(usual)} numbers are"
            raise InputError(f"{message} expected")

    @abstractmethod
    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        """The parameter after its gradient g, and its new slots."""

    @property
    def schedule(self) -> Schedule:
        return self.lr if callable(self.lr) else constant(self.lr)

    @property
    def remembered(self) -> tuple[str, ...]:
        """The slots that these numbers need."""
        return self.slots

    def slots_of(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """What is remembered of a parameter of this shape: name -> shape."""
        return {name: shape for name in self.remembered}


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent; weight decay is added to the gradient.

    >>> w = cx.parameter(1).set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.SGD(lr=0.1))
    >>> dict(cx.states)[w].numpy().round(3)
    array([0.8], dtype=float32)
    """

    lr: float | Schedule = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise InputError("SGD: nesterov needs a momentum")

    @property
    def remembered(self) -> tuple[str, ...]:
        return self.slots if self.momentum else ()

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        g = _decayed(g, p, self.weight_decay)
        if not self.momentum:
            return p - at.rate * g, {}
        m = slots["momentum"] * self.momentum + g
        return p - at.rate * (g + self.momentum * m if self.nesterov else m), {"momentum": m}


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (arXiv 1412.6980); weight decay is added to the gradient.

    >>> w = cx.parameter(1).set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.Adam(lr=0.1))
    >>> dict(cx.states)[w].numpy().round(3)
    array([0.9], dtype=float32)
    """

    lr: float | Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        return _adam(p, _decayed(g, p, self.weight_decay), slots, at, self.betas, self.eps)


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam whose weight decay shrinks the parameter itself (arXiv 1711.05101).

    >>> w = cx.parameter(1).set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.AdamW(lr=0.1))
    >>> dict(cx.states)[w].numpy().round(3)
    array([0.899], dtype=float32)
    """

    lr: float | Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        return _adam(_shrunk(p, at, self.weight_decay), g, slots, at, self.betas, self.eps)


@dataclass(frozen=True)
class Lion(Optimizer):
    """The sign of a running mean (arXiv 2302.06675); weight decay shrinks the parameter.

    >>> w = cx.parameter(1).set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.Lion(lr=0.1))
    >>> dict(cx.states)[w].numpy().round(3)
    array([0.9], dtype=float32)
    """

    lr: float | Schedule = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    slots: ClassVar[tuple[str, ...]] = ("mean",)

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        first, second = self.betas
        direction = ops.sign(_mixed(slots["mean"], g, first))
        mean = _mixed(slots["mean"], g, second)
        return _shrunk(p, at, self.weight_decay) - at.rate * direction, {"mean": mean}


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """The gradient over the root of its running mean square; weight decay is added to it.

    >>> w = cx.parameter(1).set([1.0])
    >>> step = train.Step((w * w).sum(), [w], train.RMSprop())
    >>> dict(cx.states)[w].numpy().round(3)
    array([0.9], dtype=float32)
    """

    lr: float | Schedule = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    slots: ClassVar[tuple[str, ...]] = ("square", "momentum")

    @property
    def remembered(self) -> tuple[str, ...]:
        return self.slots if self.momentum else self.slots[:1]

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        g = _decayed(g, p, self.weight_decay)
        square = _mixed(slots["square"], g * g, self.alpha)
        change = g / (ops.sqrt(square) + self.eps)
        if not self.momentum:
            return p - at.rate * change, {"square": square}
        m = slots["momentum"] * self.momentum + change
        return p - at.rate * m, {"square": square, "momentum": m}


def _free(name: str, value: Any, usual: Any) -> bool:
    """Whether it is no number and need not be: a schedule, or where none is usual either."""
    if name == "lr" and callable(value):
        return True
    loose = callable(value) or isinstance(value, bool) or value is None
    return loose and type(usual) not in NUMBERS


def _adam(
    p: Tensor, g: Tensor, slots: Slots, at: Moment, betas: tuple[float, float], eps: float
) -> Updated:
    mean = _mixed(slots["mean"], g, betas[0])
    square = _mixed(slots["square"], g * g, betas[1])
    size = ops.sqrt(square) / ops.sqrt(at.unbiased(betas[1])) + eps
    rate = at.rate / at.unbiased(betas[0])
    return p - rate * (mean / size), {"mean": mean, "square": square}


def _mixed(old: Tensor, new: Tensor, share: float) -> Tensor:
    """A running mean."""
    return old * share + new * (1.0 - share)


def _decayed(g: Tensor, p: Tensor, weight_decay: float) -> Tensor:
    return g + weight_decay * p if weight_decay else g


def _shrunk(p: Tensor, at: Moment, weight_decay: float) -> Tensor:
    return p * (1.0 - at.rate * weight_decay) if weight_decay else p
