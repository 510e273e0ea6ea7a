"""Optimizers that look at a matrix as a whole. Formulas and defaults are those of torch.optim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from .. import ops
from ..errors import ShapeError
from ..graph.tensor import Tensor
from .optimizers import Moment, Optimizer, Slots, Updated, _mixed, _shrunk
from .schedules import Schedule


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Adam's second moment as the product of a row and a column (arXiv 1804.04235).

    A matrix (..., rows, columns) is remembered as (..., rows, 1) and (..., 1, columns); a vector
    whole. eps: of the second moment (None: that of the dtype) and of the parameter's size.

    >>> w = cx.parameter((1, 3)).set([[1.0, 2.0, 3.0]])
    >>> step = train.Step((w * w).sum(), [w], train.Adafactor())
    >>> dict(cx.states)[w].numpy().round(3)
    array([[0.978, 1.978, 2.978]], dtype=float32)
    """

    lr: float | Schedule = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    slots: ClassVar[tuple[str, ...]] = ("row", "column", "square")
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {
        "beta2_decay": (-inf, 1e-9), "d": (1, inf)
    }  # fmt: skip

    def slots_of(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        if len(shape) < 2:
            return {"square": shape}
        return {"row": (*shape[:-1], 1), "column": (*shape[:-2], 1, shape[-1])}

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        least = self.eps[0]
        first = float(np.finfo(p.dtype.numpy).eps) if least is None else least
        share = ops.pow(at.number, self.beta2_decay).cast(p.dtype)
        most = ops.rsqrt(at.number).cast(p.dtype)
        size = ops.maximum(_root_mean_square(p), self.eps[1]) * ops.minimum(at.rate, most)
        new, whole = self._moments(g, slots, share, first)
        step = g * ops.rsqrt(ops.maximum(whole, first * first))
        limit = ops.maximum(_root_mean_square(step) / self.d, 1.0)
        return _shrunk(p, at, self.weight_decay) - step * (size / limit), new

    def _moments(
        self, g: Tensor, slots: Slots, share: Tensor, least: float
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The new slots, and the second moment that they stand for."""
        square = g * g
        if "square" in slots:
            square = slots["square"] + (square - slots["square"]) * share
            return {"square": square}, square
        row = slots["row"] + (square.mean(-1, keepdim=True) - slots["row"]) * share
        column = slots["column"] + (square.mean(-2, keepdim=True) - slots["column"]) * share
        whole = row * column / ops.maximum(row.mean(-2, keepdim=True), least)
        return {"row": row, "column": column}, whole


@dataclass(frozen=True)
class Muon(Optimizer):
    """A running mean of a matrix's gradients, made orthogonal by Newton and Schulz's iteration
    (https://kellerjordan.github.io/posts/muon). For hidden matrices; give others another optimizer.

    >>> w = cx.parameter((2, 2)).set(np.eye(2, dtype="f"))
    >>> step = train.Step((w * w).sum(), [w], train.Muon(lr=0.1))
    >>> dict(cx.states)[w].numpy().round(3)
    array([[0.879, 0.   ],
           [0.   , 0.879]], dtype=float32)
    """

    lr: float | Schedule = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    steps: int = 5
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"coefficients": (-inf, inf)}

    def slots_of(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        if len(shape) != 2:
            raise ShapeError(f"Muon trains matrices, not {shape}: use another for these")
        return {"momentum": shape}

    def update(self, p: Tensor, g: Tensor, slots: Slots, at: Moment) -> Updated:
        mean = _mixed(slots["momentum"], g, self.momentum)
        direction = _mixed(g, mean, 1.0 - self.momentum) if self.nesterov else mean
        rows, columns = (int(size) for size in p.shape)
        rate = at.rate * max(1.0, rows / max(columns, 1)) ** 0.5
        made = self._orthogonal(direction, rows > columns)
        return _shrunk(p, at, self.weight_decay) - rate * made, {"momentum": mean}

    def _orthogonal(self, x: Tensor, tall: bool) -> Tensor:
        """Its singular values near 1."""
        a, b, c = self.coefficients
        x = x.T if tall else x
        x = x / ops.maximum(ops.sqrt((x * x).sum()), self.eps)
        for _ in range(self.steps):
            gram = x @ x.T
            x = x * a + (gram * b + (gram @ gram) * c) @ x
        return x.T if tall else x


def _root_mean_square(x: Tensor) -> Tensor:
    return ops.sqrt((x * x).mean())
