"""Activation functions."""

from __future__ import annotations

import math

from ..errors import InputError
from ..graph.tensor import Tensor
from .base import Value, composite, dim_of, extent, floating
from .clamping import clamp, limited
from .elementwise import abs, add, div, maximum, mul, neg, reciprocal, sub
from .erf import erf
from .logic import gt, le, logical_and, lt, masked_fill, where
from .math import LOG2_E, expm1, log_one_and_exp, tanh

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def relu(x: Tensor) -> Tensor:
    """max(x, 0); NaN stays.

    >>> ops.relu(cx.constant([-1.0, 2.0])).numpy()
    array([0., 2.], dtype=float32)
    """
    return maximum(x, 0)


def relu6(x: Tensor) -> Tensor:
    """x limited to 0 .. 6.

    >>> ops.relu6(cx.constant([-1.0, 9.0])).numpy()
    array([0., 6.], dtype=float32)
    """
    return limited(x, 0, 6)


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to min_val .. max_val, whole numbers for integers.

    >>> ops.hardtanh(cx.constant([-9.0, 0.5])).numpy()
    array([-1. ,  0.5], dtype=float32)
    """
    if x.dtype.is_integer:
        return limited(x, int(min_val), int(max_val))
    return limited(x, min_val, max_val)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x, or negative_slope x below 0.

    >>> ops.leaky_relu(cx.constant([-1.0, 2.0])).numpy()
    array([-0.01,  2.  ], dtype=float32)
    """
    return where(gt(x, 0), x, mul(x, negative_slope))


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """As leaky_relu, with one slope, or one for each channel (dimension 1).

    >>> ops.prelu(cx.constant([-1.0, 2.0]), cx.constant([0.5])).numpy()
    array([-0.5,  2. ], dtype=float32)
    """
    if weight.ndim and x.ndim > 1:
        weight = weight.reshape((-1, *(1,) * (x.ndim - 2)))
    if x.ndim == 0:
        weight = weight.reshape(())
    return where(gt(x, 0), x, mul(x, weight))


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x where it is above the threshold, else the value; NaN stays.

    >>> ops.threshold(cx.constant([1.0, 3.0]), 2.0, -1.0).numpy()
    array([-1.,  3.], dtype=float32)
    """
    return masked_fill(x, le(x, threshold), value)


@floating
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha (e^x - 1) below 0.

    >>> ops.elu(cx.constant([-1.0, 2.0])).numpy().round(3)
    array([-0.632,  2.   ], dtype=float32)
    """
    return where(gt(x, 0.0), x, mul(expm1(clamp(x, max=0.0)), alpha))


@floating
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha (e^(x / alpha) - 1) below 0.

    >>> ops.celu(cx.constant([-1.0, 2.0]), alpha=2.0).numpy().round(3)
    array([-0.787,  2.   ], dtype=float32)
    """
    return where(gt(x, 0.0), x, mul(expm1(div(clamp(x, max=0.0), alpha)), alpha))


@floating
def selu(x: Tensor) -> Tensor:
    """Self-normalising elu.

    >>> ops.selu(cx.constant([-1.0, 1.0])).numpy().round(3)
    array([-1.111,  1.051], dtype=float32)
    """
    return mul(elu(x, SELU_ALPHA), SELU_SCALE)


@floating
@composite
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x).

    >>> ops.sigmoid(cx.constant([0.0, 2.0])).numpy().round(3)
    array([0.5  , 0.881], dtype=float32)
    """
    return reciprocal(add(x.graph.apply("exp2", [mul(x, -LOG2_E)]), 1.0))


@floating
def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)) without overflow.

    >>> ops.logsigmoid(cx.constant([0.0, -100.0])).numpy().round(3)
    array([  -0.693, -100.   ], dtype=float32)
    """
    return neg(log_one_and_exp(neg(x)))


@floating
def silu(x: Tensor) -> Tensor:
    """x sigmoid(x).

    >>> ops.silu(cx.constant([-1.0, 0.0, 1.0])).numpy().round(4)
    array([-0.2689,  0.    ,  0.7311], dtype=float32)
    """
    return mul(x, sigmoid(x))


@floating
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x; approximate "tanh" as in GPT-2.

    >>> ops.gelu(cx.constant([-1.0, 0.0, 1.0])).numpy().round(4)
    array([-0.1587,  0.    ,  0.8413], dtype=float32)
    """
    if approximate not in ("none", "tanh"):
        raise InputError(f'gelu: approximate is "none" or "tanh", not {approximate!r}')
    if approximate == "tanh":
        inner = mul(mul(x, add(mul(mul(x, x), 0.044715), 1.0)), math.sqrt(2 / math.pi))
        # (1 + tanh(y)) / 2 = sigmoid(2 y)
        return mul(x, sigmoid(mul(inner, 2.0)))
    return mul(mul(x, 0.5), add(erf(mul(x, math.sqrt(0.5))), 1.0))


@floating
def mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x)).

    >>> ops.mish(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.865], dtype=float32)
    """
    return mul(x, tanh(softplus(x)))


@floating
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta x)) / beta; x itself above the threshold.

    >>> ops.softplus(cx.constant([0.0, 100.0])).numpy().round(3)
    array([  0.693, 100.   ], dtype=float32)
    """
    scaled = mul(x, beta)
    return where(gt(scaled, threshold), x, div(log_one_and_exp(scaled), beta))


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> ops.softsign(cx.constant([-1.0, 3.0])).numpy()
    array([-0.5 ,  0.75], dtype=float32)
    """
    return div(x, add(abs(x), 1))


@floating
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x).

    >>> ops.tanhshrink(cx.constant([0.0, 1.0])).numpy().round(3)
    array([0.   , 0.238], dtype=float32)
    """
    return sub(x, tanh(x))


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x, but 0 where |x| <= lambd.

    >>> ops.hardshrink(cx.constant([0.4, -2.0])).numpy()
    array([ 0., -2.], dtype=float32)
    """
    inside = logical_and(logical_not_above(x, lambd), logical_not_above(neg(x), lambd))
    return where(inside, 0.0, x)


def logical_not_above(x: Tensor, limit: float) -> Tensor:
    """x <= limit."""
    return x <= limit


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd.

    >>> ops.softshrink(cx.constant([0.25, -2.0])).numpy()
    array([ 0. , -1.5], dtype=float32)
    """
    return where(gt(x, lambd), sub(x, lambd), where(lt(x, -lambd), add(x, lambd), mul(x, 0.0)))


def hardsigmoid(x: Tensor) -> Tensor:
    """x / 6 + 1/2, limited to 0 .. 1.

    >>> ops.hardsigmoid(cx.constant([-9.0, 0.0, 9.0])).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return div(limited(add(x, 3.0), 0.0, 6.0), 6.0)


def hardswish(x: Tensor) -> Tensor:
    """x hardsigmoid(x).

    >>> ops.hardswish(cx.constant([-9.0, 3.0])).numpy()
    array([-0.,  3.], dtype=float32)
    """
    return div(mul(x, limited(add(x, 3.0), 0.0, 6.0)), 6.0)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second.

    >>> ops.glu(cx.constant([1.0, 2.0, 0.0, 0.0])).numpy()
    array([0.5, 1. ], dtype=float32)
    """
    first, second = halves(x, dim)
    return mul(first, sigmoid(second))


def swiglu(x: Tensor, gate: Value | None = None, dim: int = -1) -> Tensor:
    """silu(gate) x; without a gate, the first half of x is the gate of the second.

    >>> ops.swiglu(cx.constant([1.0, 2.0]), cx.constant([0.0, 100.0])).numpy()
    array([  0., 200.], dtype=float32)
    """
    if isinstance(gate, Tensor):
        return mul(silu(gate), x)
    first, second = halves(x, dim)
    return mul(silu(first), second)


def halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """A dimension of even size, cut in the middle. Raises ShapeError."""
    dim = dim_of(x, dim)
    half, odd = extent(x, dim) // 2, extent(x, dim) % 2
    x.graph.require(-odd, f"the dimension that is halved must be even, not {dim} of {x}")
    return x.narrow(dim, 0, half), x.narrow(dim, half, half)
