"""Learning rates as functions of the step, recorded into the graph.

A schedule takes the number of updates made before this one (0, 1, ...; a scalar f64) and gives the
rate of this update (a scalar f64, or a number).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from .. import ops
from ..errors import InputError
from ..graph.tensor import Tensor
from ..ops.base import full_like
from .limits import check, whole

Schedule: TypeAlias = Callable[[Tensor], Tensor | float]


def constant(rate: float) -> Schedule:
    """The same rate at every step.

    >>> train.constant(0.1)(cx.constant([0.0, 5.0])).numpy().round(3)
    array([0.1, 0.1], dtype=float32)
    """
    check("constant: rate", rate)
    return lambda step: full_like(step, rate)


def linear(first: float, last: float, steps: int) -> Schedule:
    """From first to last in so many steps, then last.

    >>> train.linear(1.0, 0.0, 10)(cx.constant([0.0, 5.0, 20.0])).numpy().round(3)
    array([1. , 0.5, 0. ], dtype=float32)
    """
    _check("linear", steps, first=first, last=last)
    return lambda step: first + (last - first) * _share(step, steps)


def cosine(rate: float, steps: int, last: float = 0.0) -> Schedule:
    """Half a cosine from rate down to last in so many steps, then last (arXiv 1608.03983).

    >>> train.cosine(1.0, 10)(cx.constant([0.0, 5.0, 10.0])).numpy().round(3)
    array([1. , 0.5, 0. ], dtype=float32)
    """
    _check("cosine", steps, rate=rate, last=last)
    return lambda step: last + (rate - last) * 0.5 * (1.0 + ops.cos(_share(step, steps) * math.pi))


def warm_up(schedule: float | Schedule, steps: int) -> Schedule:
    """1/n, 2/n, ... of the schedule's first rate in n steps; then the schedule from its start. A
    number is the same rate at every step.

    >>> train.warm_up(train.constant(1.0), 4)(cx.constant([0.0, 1.0, 9.0])).numpy().round(3)
    array([0.25, 0.5 , 1.  ], dtype=float32)
    """
    if not callable(schedule):
        check("warm_up: schedule", schedule)
    given = schedule if callable(schedule) else constant(schedule)
    _check("warm_up", steps)

    def rate(step: Tensor) -> Tensor:
        first = given(full_like(step, 0.0)) * ((step + 1.0) / steps)
        return ops.where(step < steps, first, given(ops.maximum(step - float(steps), 0.0)))

    return rate


def one_cycle(
    rate: float, steps: int, rise: float = 0.3, first: float = 25.0, last: float = 1e4
) -> Schedule:
    """Up from rate / first in the share `rise` of the steps, then down to rate / (first last), both
    along half a cosine (arXiv 1708.07120).

    >>> train.one_cycle(1.0, 11)(cx.constant([0.0, 2.3, 10.0])).numpy().round(3)
    array([0.04, 1.  , 0.  ], dtype=float32)
    """
    _check("one_cycle", steps, rate=rate, rise=rise)
    for name, divisor in (("first", first), ("last", last)):
        check(f"one_cycle: {name}", divisor, 1e-30)
    top = rise * steps - 1.0
    if not 0.0 < top < steps - 1.0:
        raise InputError(f"one_cycle: {rise} of {steps} steps leaves no step to rise or to fall")
    low, end = rate / first, rate / (first * last)

    def at(step: Tensor) -> Tensor:
        up = _half_wave(low, rate, step / top)
        down = _half_wave(rate, end, (step - top) / (steps - 1.0 - top))
        return ops.where(step <= top, up, down)

    return at


def _half_wave(start: float, end: float, share: Tensor) -> Tensor:
    share = ops.clamp(share, 0.0, 1.0)
    return end + (start - end) * 0.5 * (1.0 + ops.cos(share * math.pi))


def _share(step: Tensor, steps: int) -> Tensor:
    return ops.minimum(step / float(steps), 1.0)


def _check(schedule: str, steps: int, **numbers: float) -> None:
    for name, number in numbers.items():
        check(f"{schedule}: {name}", number)
    whole(f"{schedule}: steps", steps, 1)
