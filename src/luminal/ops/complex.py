"""Complex numbers as pairs of real tensors, with PyTorch's functions on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..graph.tensor import Tensor
from .base import full_like, literal
from .elementwise import abs, add, div, mul, neg, square, sub
from .linalg import matmul
from .logic import eq, ge, logical_and, where
from .math import atan2, cos, cosh, exp, log, sin, sinh, sqrt
from .special import copysign, hypot


class Complex(NamedTuple):
    """real + i imag: two tensors of one shape and dtype.

    >>> z = ops.Complex(cx.constant([3.0]), cx.constant([4.0]))
    >>> ops.hypot(z.real, z.imag).numpy()
    array([5.], dtype=float32)
    """

    real: Tensor
    imag: Tensor

    def each(self, function: Callable[..., Tensor], *args: Any) -> Complex:
        """The function of both parts."""
        return Complex(function(self.real, *args), function(self.imag, *args))


def complex_of(value: Tensor | Complex | complex, like: Tensor) -> Complex:
    """Any number as a pair, in the dtype of `like`."""
    if isinstance(value, Complex):
        return value.each(lambda part: part.cast(like.dtype))
    if isinstance(value, Tensor):
        real = value.cast(like.dtype)
        return Complex(real, full_like(real, 0))
    number = complex(value)
    return Complex(
        literal(like.graph, number.real, like.dtype), literal(like.graph, number.imag, like.dtype)
    )


def add_complex(x: Complex, y: Complex) -> Complex:
    """x + y."""
    return Complex(add(x.real, y.real), add(x.imag, y.imag))


def sub_complex(x: Complex, y: Complex) -> Complex:
    """x - y."""
    return Complex(sub(x.real, y.real), sub(x.imag, y.imag))


def mul_complex(x: Complex, y: Complex) -> Complex:
    """x y."""
    return Complex(
        sub(mul(x.real, y.real), mul(x.imag, y.imag)),
        add(mul(x.real, y.imag), mul(x.imag, y.real)),
    )


def div_complex(x: Complex, y: Complex) -> Complex:
    """x / y, by the ratio of y's smaller part to its larger one (Smith), so that nothing of a
    finite result overflows."""
    wide = ge(abs(y.real), abs(y.imag))
    large, small = where(wide, y.real, y.imag), where(wide, y.imag, y.real)
    ratio = div(small, large)
    ratio = where(logical_and(eq(large, 0), eq(small, 0)), 0.0, ratio)
    below = add(large, mul(small, ratio))
    first, second = where(wide, x.real, x.imag), where(wide, x.imag, x.real)
    real = div(add(first, mul(second, ratio)), below)
    turned = div(sub(second, mul(first, ratio)), below)
    return Complex(real, where(wide, turned, neg(turned)))


def conj(x: Complex) -> Complex:
    """real - i imag."""
    return Complex(x.real, neg(x.imag))


def polar(size: Tensor, angle: Tensor) -> Complex:
    """size e^(i angle)."""
    return Complex(mul(size, cos(angle)), mul(size, sin(angle)))


def magnitude(x: Complex) -> Tensor:
    """|x|, without overflow."""
    return hypot(x.real, x.imag)


def angle_of(x: Complex) -> Tensor:
    """The angle from the positive reals, in (-pi, pi]."""
    return atan2(x.imag, x.real)


def exp_complex(x: Complex) -> Complex:
    """e^real (cos imag + i sin imag)."""
    return polar(exp(x.real), x.imag)


def log_complex(x: Complex) -> Complex:
    """log |x| + i angle."""
    return Complex(log(magnitude(x)), angle_of(x))


def sqrt_complex(x: Complex) -> Complex:
    """The root with real part >= 0."""
    half = sqrt(mul(add(magnitude(x), abs(x.real)), 0.5))
    other = where(eq(half, 0), 0.0, div(abs(x.imag), mul(half, 2.0)))
    right = ge(x.real, 0)
    return Complex(where(right, half, other), copysign(where(right, other, half), x.imag))


def pow_complex(x: Complex, power: Complex) -> Complex:
    """e^(power log x); 0 where x is 0 and the power's real part is positive, 1 for a power of 0."""
    general = exp_complex(mul_complex(power, log_complex(x)))
    zero = logical_and(eq(x.real, 0), eq(x.imag, 0))
    none = logical_and(eq(power.real, 0), eq(power.imag, 0))
    real = where(none, 1.0, where(zero, 0.0, general.real))
    return Complex(real, where(zero, 0.0, where(none, 0.0, general.imag)))


def sin_complex(x: Complex) -> Complex:
    """sin real cosh imag + i cos real sinh imag."""
    return Complex(mul(sin(x.real), cosh(x.imag)), mul(cos(x.real), sinh(x.imag)))


def cos_complex(x: Complex) -> Complex:
    """cos real cosh imag - i sin real sinh imag."""
    return Complex(mul(cos(x.real), cosh(x.imag)), neg(mul(sin(x.real), sinh(x.imag))))


def tan_complex(x: Complex) -> Complex:
    """(sin 2 real + i sinh 2 imag) / (cos 2 real + cosh 2 imag)."""
    real, imag = mul(x.real, 2.0), mul(x.imag, 2.0)
    below = add(cos(real), cosh(imag))
    far = where(ge(x.imag, 0), full_like(imag, 1), full_like(imag, -1))
    near = div(sinh(imag), below)
    return Complex(div(sin(real), below), where(ge(abs(imag), 40.0), far, near))


def times_i(x: Complex) -> Complex:
    """i x."""
    return Complex(neg(x.imag), x.real)


def hyperbolic(function: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
    """sinh from sin, tanh from tan: -i f(i x)."""
    return lambda x: times_i(function(times_i(x))).each(neg)


def cosh_complex(x: Complex) -> Complex:
    """cos(i x)."""
    return cos_complex(times_i(x))


def sgn(x: Complex) -> Complex:
    """x / |x|, 0 for 0."""
    size = magnitude(x)
    return x.each(lambda part: where(eq(size, 0), 0.0, div(part, size)))


def reciprocal_complex(x: Complex) -> Complex:
    """1 / x."""
    return div_complex(complex_of(1, x.real), x)


def square_complex(x: Complex) -> Complex:
    """x x."""
    imag = mul(mul(x.real, x.imag), 2.0)
    return Complex(sub(square(x.real), square(x.imag)), imag)


def matmul_complex(x: Complex, y: Complex) -> Complex:
    """The matrix product."""
    real = sub(matmul(x.real, y.real), matmul(x.imag, y.imag))
    return Complex(real, add(matmul(x.real, y.imag), matmul(x.imag, y.real)))


def equal(x: Complex, y: Complex) -> Tensor:
    """Both parts are equal."""
    return logical_and(eq(x.real, y.real), eq(x.imag, y.imag))
