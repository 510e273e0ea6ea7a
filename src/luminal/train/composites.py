"""Derivatives of functions of `ops` that graphs remember (`ops.base.composite`).

They are simpler than those of the parts, which approximate, choose among branches or round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import ops
from ..graph.dtype import i32
from ..graph.index import Index
from ..graph.node import Composite
from ..graph.tensor import Tensor
from ..ops import attention, bags, bessel, gamma, maxima
from ..ops.base import extent
from ..ops.math import LN_2, polynomial
from .rules import Change, Maybe, Structural, behind_zero, spread

TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)
ROOT_TWO_PI = math.sqrt(2 * math.pi)
SINC = [(-1) ** k * math.pi ** (2 * k) * 2 * k / math.factorial(2 * k + 1) for k in range(1, 10)]


def _softmax(dim: int) -> tuple[Change]:
    return (lambda t, y, x: y * (t - (t * y).sum(dim, keepdim=True)),)


def _pow(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return ops.where(ops.eq(b, 0.0), 0.0, t * (b * ops.pow(a, b - 1.0)))


def _pow_of(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    nothing = ops.logical_and(ops.eq(a, 0.0), b >= 0.0)
    return ops.where(nothing, 0.0, t * (y * ops.log(a)))


def _within(x: Tensor, low: float | None, high: float | None) -> Tensor:
    """low <= x <= high; False for NaN."""
    above = ops.ge(x, -math.inf if low is None else low)
    return ops.logical_and(above, ops.le(x, math.inf if high is None else high))


def _sinc(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Near 0, where (cos(pi x) - y) / x loses digits, by its power series."""
    near = ops.abs(x) < 0.25
    series = polynomial(ops.square(x), SINC)
    far = ops.where(near, 1.0, x)
    return t * ops.where(near, x * series, (ops.cos(x * math.pi) - y) / far)


def _log_loss(t: Tensor, y: Tensor, x: Tensor, target: Tensor) -> Tensor:
    """The divisor limited as by PyTorch."""
    return t * ((x - target) / ops.maximum((1.0 - x) * x, 1e-12))


def _log_loss_of(t: Tensor, y: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return t * (ops.log1p(-x) - ops.log(x))


def _atan2(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return t * b * _whole(a * a + b * b)


def _atan2_of(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return -(t * a * _whole(a * a + b * b))


def _whole(square: Tensor) -> Tensor:
    """1 / r^2; 0 where the point has no angle."""
    return ops.where(ops.eq(square, 0.0), 0.0, 1.0 / square)


def _share(a: Tensor, b: Tensor) -> Tensor:
    """e^a / (e^a + e^b)."""
    both = ops.logical_and(ops.isinf(a), ops.eq(a, b))
    return ops.sigmoid(ops.where(both, 0.0, a - b))


def _of_length(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Of hypot; 0 at the origin."""
    return t * x / ops.where(ops.eq(y, 0.0), 1.0, y)


def _root(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    flat = ops.eq(y, 0.0)
    return t * ops.where(flat, 0.0, 0.5 / ops.where(flat, 1.0, y))


def _i1(t: Tensor, x: Tensor, scale: Tensor | float, even: Tensor, odd: Tensor) -> Tensor:
    """Of scale I1(x), given those of orders 0 and 1; near 0, where the latter has lost its digits,
    by its power series."""
    near = ops.abs(x) < 0.01
    series = polynomial(ops.square(x), [1 / 2, 3 / 16, 5 / 384, 7 / 18432]) * scale
    return t * ops.where(near, series, even - odd / ops.where(near, 1.0, x))


def _i1e(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return _i1(t, x, ops.exp(-ops.abs(x)), bessel.i0e(x), y) - t * ops.sign(x) * y


def _silent(a: Tensor, b: Tensor, change: Tensor) -> Tensor:
    """0 where an `a` of 0 met a logarithm that is none."""
    return ops.where(ops.logical_and(ops.eq(a, 0.0), b <= 0.0), 0.0, change)


# name: (options of the call) -> a row as in `rules.ELEMENTWISE`; that of softmax is its own
# transpose too
COMPOSITE: dict[str, Callable[..., tuple[Change | None, ...]]] = {
    "again": lambda: (lambda t, y, x: t,),
    "sigmoid": lambda: (lambda t, y, x: t * (y * (1.0 - y)),),
    "clamp": lambda low, high: (lambda t, y, x: ops.where(_within(x, low, high), t, 0.0),),
    "clamp_low": lambda: (
        lambda t, y, x, low: ops.where(ops.ge(x, low), t, 0.0),
        lambda t, y, x, low: ops.where(x < low, t, 0.0),
    ),
    "clamp_high": lambda: (
        lambda t, y, x, high: ops.where(ops.le(x, high), t, 0.0),
        lambda t, y, x, high: ops.where(high < x, t, 0.0),
    ),
    "tanh": lambda: (lambda t, y, x: t * (1.0 - y * y),),
    "erf": lambda: (lambda t, y, x: t * (ops.exp(-(x * x)) * TWO_BY_ROOT_PI),),
    "erfc": lambda: (lambda t, y, x: t * (ops.exp(-(x * x)) * -TWO_BY_ROOT_PI),),
    "expm1": lambda: (lambda t, y, x: t * ops.exp(x),),
    "log1p": lambda: (lambda t, y, x: t / (x + 1.0),),
    "tan": lambda: (lambda t, y, x: t * (1.0 + y * y),),
    "asin": lambda: (lambda t, y, x: t * ops.rsqrt(1.0 - x * x),),
    "acos": lambda: (lambda t, y, x: -(t * ops.rsqrt(1.0 - x * x)),),
    "atan": lambda: (lambda t, y, x: t / (x * x + 1.0),),
    "sinh": lambda: (lambda t, y, x: t * ops.cosh(x),),
    "cosh": lambda: (lambda t, y, x: t * ops.sinh(x),),
    "asinh": lambda: (lambda t, y, x: t * ops.rsqrt(x * x + 1.0),),
    "acosh": lambda: (lambda t, y, x: t * ops.rsqrt(x * x - 1.0),),
    "atanh": lambda: (lambda t, y, x: t / ((1.0 - x) * (1.0 + x)),),
    "atan2": lambda: (_atan2, _atan2_of),
    "remainder": lambda: (lambda t, y, a, b: t, lambda t, y, a, b: -(t * ops.floor(a / b))),
    "fmod": lambda: (lambda t, y, a, b: t, lambda t, y, a, b: -(t * ops.trunc(a / b))),
    "pow_below_zero": lambda n: (lambda t, y, x: t * (y / x * n),),
    "pow_float": lambda: (_pow, _pow_of),
    "softmax": _softmax,
    "symmetric": lambda: (lambda t, y, x: (t + t.transpose(-1, -2)) * 0.5,),
    "straight_through": lambda dim: (lambda t, y, x: t,),
    "sinc": lambda: (_sinc,),
    "log_one_and_exp": lambda: (lambda t, y, x: t * ops.sigmoid(x),),
    "logaddexp": lambda: (
        lambda t, y, a, b: t * _share(a, b),
        lambda t, y, a, b: t * _share(b, a),
    ),
    "logaddexp2": lambda: (
        lambda t, y, a, b: t * _share(a * LN_2, b * LN_2),
        lambda t, y, a, b: t * _share(b * LN_2, a * LN_2),
    ),
    "hypot": lambda: (
        lambda t, y, a, b: _of_length(t, y, a),
        lambda t, y, a, b: _of_length(t, y, b),
    ),
    "xlogy": lambda: (
        lambda t, y, a, b: _silent(a, b, t * ops.log(b)),
        lambda t, y, a, b: t * a / b,
    ),
    "xlog1py": lambda: (
        lambda t, y, a, b: _silent(a, b + 1.0, t * ops.log1p(b)),
        lambda t, y, a, b: t * a / (b + 1.0),
    ),
    "lgamma": lambda: (lambda t, y, x: t * ops.digamma(x),),
    "digamma": lambda: (lambda t, y, x: t * ops.polygamma(1, x),),
    "polygamma": lambda n: (lambda t, y, x: t * ops.polygamma(n + 1, x),),
    "i0": lambda: (lambda t, y, x: t * bessel.i1(x),),
    "i1": lambda: (lambda t, y, x: _i1(t, x, 1.0, ops.i0(x), y),),
    "i1e": lambda: (_i1e,),
    "erfinv": lambda: (lambda t, y, x: t * (ops.exp(y * y) / TWO_BY_ROOT_PI),),
    "erfcx": lambda: (lambda t, y, x: t * (x * y * 2.0 - TWO_BY_ROOT_PI),),
    "ndtri": lambda: (lambda t, y, x: t * (ops.exp(y * y * 0.5) * ROOT_TWO_PI),),
    "log_ndtr": lambda: (
        lambda t, y, x: t * 2.0 / (gamma.erfcx(x * -math.sqrt(0.5)) * ROOT_TWO_PI),
    ),
    "entr": lambda: (lambda t, y, x: -(t * (ops.log(x) + 1.0)),),
    "root": lambda: (_root,),
    "log_loss": lambda: (_log_loss, _log_loss_of),
    "behind_zero": lambda dim, ahead: (
        lambda t, y, zero, x, change: t * behind_zero(x, change, dim, ahead), None, None,
    ),
}

# Equal functions whose parts have derivatives where those of the original have none, or none where
# it should have none: a row of padding.
# That of attention keeps queries, keys and values: no weights of (queries, keys) wait for it.
INSTEAD: dict[str, Callable[..., Tensor]] = {
    "attention": attention.weighted,
    "masked_attention": attention.masked,
    "padded_embedding": bags.spared_embedding,
    "adaptive_max": maxima.adaptive_at_once,
    "picked": lambda x, index: x._gather(index.unsqueeze(-1), x.ndim - 1).squeeze(-1),
}


def composite(node: Composite) -> tuple[Change | None, ...] | Structural:
    """The derivative of a composite."""
    if node.name in MOVING:
        return MOVING[node.name](*node.options)
    return COMPOSITE[node.name](*node.options)


def _first(dims: Sequence[int]) -> Structural:
    """All to the first element that attains an extremum, or is NaN."""

    def chosen(y: Tensor, x: Tensor) -> Tensor:
        number = Index.of(0)
        for d in dims:
            number = number * extent(x, d) + Index.of(f"i{d}")
        place = x.graph.iota(x.shape, number, i32)
        hit = ops.logical_or(ops.eq(x, spread(y, dims, x)), ops.isnan(x))
        first = ops.where(hit, place, i32.highest).amin(dims)
        return ops.eq(place, spread(first, dims, x))

    def pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
        (x,) = inputs
        return (ops.where(chosen(y, x), spread(g, dims, x), 0.0),)

    def push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        (t,), (x,) = tangents, inputs
        assert t is not None
        return ops.where(chosen(y, x), t, 0.0).sum(dims)

    return Structural(pull, push)


def _middle() -> Structural:
    """Shared equally among all elements that equal the one of the middle, or are NaN as it is."""

    def shares(y: Tensor, x: Tensor) -> Tensor:
        both = ops.logical_and(ops.isnan(x), ops.isnan(y))
        hit = ops.logical_or(ops.eq(x, y), both).cast(y.dtype)
        return hit / hit.sum()

    def pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
        return (g * shares(y, inputs[0]),)

    def push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        (t,), (x,) = tangents, inputs
        assert t is not None
        return (t * shares(y, x)).sum()

    return Structural(pull, push)


def _log_softmax(dim: int) -> Structural:
    def pull(g: Tensor, y: Tensor, inputs: Sequence[Tensor]) -> Sequence[Maybe]:
        return (g - ops.exp(y) * g.sum(dim, keepdim=True),)

    def push(tangents: Sequence[Maybe], y: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        (t,) = tangents
        assert t is not None
        return t - (ops.exp(y) * t).sum(dim, keepdim=True)

    return Structural(pull, push)


MOVING: dict[str, Callable[..., Structural]] = {
    "log_softmax": _log_softmax,
    "first": _first,
    "middle": _middle,
}
