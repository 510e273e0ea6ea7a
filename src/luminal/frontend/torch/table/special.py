"""Special functions: gamma's relatives, Bessel functions, polynomials, common divisors."""

from __future__ import annotations

from functools import partial

from .... import ops
from ....graph.tensor import Tensor
from ....ops import bessel, gamma
from ....ops.base import Value, operands
from ....ops.chebyshev import chebyshev
from .base import rule, same

same("gcd.default", ops.gcd)
same("lcm.default", ops.lcm)
same("lgamma.default", gamma.lgamma)
same("digamma.default", gamma.digamma)
same("polygamma.default", gamma.polygamma)
same("special_erfcx.default", gamma.erfcx)
same("special_log_ndtr.default", gamma.log_ndtr)
same("special_ndtri.default", gamma.ndtri)
same("i0.default special_modified_bessel_i0.default", bessel.i0)
same("special_i0e.default", bessel.i0e)
same("special_i1.default special_modified_bessel_i1.default", bessel.i1)
same("special_i1e.default", bessel.i1e)
same("special_spherical_bessel_j0.default", bessel.spherical_j0)


def _shifted(kind: str, x: Value, n: Value) -> Tensor:
    """Over 0 .. 1 in place of -1 .. 1."""
    if not isinstance(x, Tensor):
        return chebyshev(kind, 2 * x - 1, n)
    wide = x if x.dtype.is_float else x.cast(ops.base.f32)
    return chebyshev(kind, ops.sub(ops.mul(wide, 2), 1), n)


for _kind in "tuvw":
    _name = f"chebyshev_polynomial_{_kind}"
    _overloads = ("default", "x_scalar", "n_scalar")
    rule(*(f"special_{_name}.{o}" for o in _overloads))(partial(chebyshev, _kind))
    rule(*(f"special_shifted_{_name}.{o}" for o in _overloads))(partial(_shifted, _kind))


@rule("special_zeta.default", "special_zeta.other_scalar", "special_zeta.self_scalar")
def zeta(s: Value, q: Value) -> Tensor:
    return gamma.zeta(*operands(s, q, kind=None if _real(s, q) else ops.base.f32))


def _real(*values: Value) -> bool:
    return any(isinstance(v, Tensor) and v.dtype.is_float for v in values)


@rule("_assert_async.default", "_assert_async.msg")
def asserted(x: Tensor, *message: str) -> None:
    """What `checks` looks at, and no more."""
