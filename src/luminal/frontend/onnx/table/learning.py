"""One step of an optimiser, as ai.onnx.preview.training has them; classical learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....graph.tensor import Tensor
from .base import ML, op

if TYPE_CHECKING:
    from ..record import Recorder

TRAINING = "ai.onnx.preview.training"


@op("Adagrad", domain=TRAINING)
def adagrad(
    at: Recorder, rate: Tensor, count: Tensor, *tensors: Tensor, decay_factor: float = 0.0,
    epsilon: float = 0.0, norm_coefficient: float = 0.0,
) -> Any:  # fmt: skip
    """tensors: values, gradients, sums of squares. The new values and sums."""
    values, gradients, sums = _columns(tensors, 3)
    slowed = ops.div(rate, ops.add(ops.mul(count.cast(rate.dtype), decay_factor), 1.0))
    new, kept = [], []
    for x, g, h in zip(values, gradients, sums):
        g = ops.add(ops.mul(x, norm_coefficient), g)
        h = ops.add(h, ops.square(g))
        new.append(ops.sub(x, ops.div(ops.mul(slowed, g), ops.add(ops.sqrt(h), epsilon))))
        kept.append(h)
    return *new, *kept


@op("Adam", domain=TRAINING)
def adam(
    at: Recorder, rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float = 0.9,
    beta: float = 0.999, epsilon: float = 0.0, norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    values, gradients, firsts, seconds = _columns(tensors, 4)
    steps = count.cast("f32")
    later = count > 0
    kept_1, kept_2 = (ops.sub(1.0, ops.pow(ops.base.full_like(steps, b), steps))
                      for b in (alpha, beta))  # fmt: skip
    corrected = ops.where(later, ops.div(ops.mul(rate, ops.sqrt(kept_2)), kept_1), rate)
    new, v_new, h_new = [], [], []
    for x, g, v, h in zip(values, gradients, firsts, seconds):
        g = ops.add(ops.mul(x, norm_coefficient), g)
        v = ops.add(ops.mul(v, alpha), ops.mul(g, 1 - alpha))
        h = ops.add(ops.mul(h, beta), ops.mul(ops.square(g), 1 - beta))
        moved = ops.div(ops.mul(corrected, v), ops.add(ops.sqrt(h), epsilon))
        new.append(ops.mul(ops.sub(x, moved), 1 - norm_coefficient_post))
        v_new.append(v)
        h_new.append(h)
    return *new, *v_new, *h_new


@op("Momentum", domain=TRAINING)
def momentum(
    at: Recorder, rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float, beta: float,
    mode: str, norm_coefficient: float,
) -> Any:  # fmt: skip
    values, gradients, moments = _columns(tensors, 3)
    share = ops.where(count > 0, beta, ops.base.full_like(rate, 1.0))
    new, kept = [], []
    for x, g, v in zip(values, gradients, moments):
        g = ops.add(ops.mul(x, norm_coefficient), g)
        v = ops.add(ops.mul(v, alpha), ops.mul(g, share))
        step = ops.add(g, ops.mul(v, alpha)) if mode == "nesterov" else v
        new.append(ops.sub(x, ops.mul(rate, step)))
        kept.append(v)
    return *new, *kept


def _columns(tensors: Sequence[Tensor], kinds: int) -> list[Sequence[Tensor]]:
    number = len(tensors) // kinds
    return [tensors[k * number : (k + 1) * number] for k in range(kinds)]


# ---- ai.onnx.ml


@op("Binarizer", domain=ML)
def binarizer(at: Recorder, x: Tensor, threshold: float = 0.0) -> Tensor:
    return (x > threshold).cast(x.dtype)


@op("Scaler", domain=ML)
def scaler(at: Recorder, x: Tensor, offset: Any = (0.0,), scale: Any = (1.0,)) -> Tensor:
    import numpy as np

    shift, factor = (at.graph.constant(np.array(v, np.float32)) for v in (offset, scale))
    return ops.mul(ops.sub(x.cast("f32"), shift), factor)


@op("Normalizer", domain=ML)
def normalizer(at: Recorder, x: Tensor, norm: str = "MAX") -> Tensor:
    wide = x.cast("f32")
    if norm == "MAX":
        size = ops.amax(wide, -1, True)
    elif norm == "L1":
        size = ops.sum(ops.abs(wide), -1, True)
    else:
        size = ops.sqrt(ops.sum(ops.square(wide), -1, True))
    return ops.where(ops.eq(size, 0.0), wide, ops.div(wide, size))


@op("LinearRegressor", domain=ML)
def linear_regressor(
    at: Recorder, x: Tensor, coefficients: Any = (), intercepts: Any = (),
    post_transform: str = "NONE", targets: int = 1,
) -> Tensor:  # fmt: skip
    import numpy as np

    table = np.array(coefficients, np.float32).reshape(targets, -1)
    found = ops.matmul(x.cast("f32"), at.graph.constant(table).T)
    shift = np.array(intercepts, np.float32) if len(intercepts) else np.zeros(targets, np.float32)
    return ops.add(found, at.graph.constant(shift))
