"""Complex numbers: pairs of real tensors. COMPLEX has the rules of operations that take or make
complex tensors; where an operation has a rule here and one for real tensors, the recorder looks at
the dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import DType, f32, f64
from ....graph.tensor import Tensor
from ....ops import complex as pairs
from ....ops import fourier
from ....ops.base import Size, broadcast, broadcast_shapes, full_like
from ....ops.complex import Complex
from ..arrays import Pairs
from . import source
from .base import RULES, Rule

if TYPE_CHECKING:
    from ..record import Recorder

COMPLEX: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of overloads."""

    def enter(function: Rule) -> Rule:
        for name in names:
            assert name not in COMPLEX, f"{name} has two rules for complex numbers"
            COMPLEX[name] = function
        return function

    return enter


# ---- what acts on the real and the imaginary parts alike

LINEAR = """view.default _unsafe_view.default reshape.default view_copy.default permute.default
permute_copy.default expand.default squeeze.dim squeeze.dims squeeze.default unsqueeze.default
transpose.int t.default select.int slice.Tensor split.Tensor split_with_sizes.default
unbind.int clone.default alias.default detach.default contiguous.default lift_fresh_copy.default
cat.default stack.default flip.default roll.default diagonal.default repeat.default
unfold.default index.Tensor index_select.default gather.default tril.default triu.default
sum.default sum.dim_IntList mean.default mean.dim cumsum.default neg.default copy.default
slice_scatter.default select_scatter.default diagonal_scatter.default index_put.default
index_add.default scatter_add.default scatter.src take.default new_zeros.default zeros_like.default
empty_like.default new_empty.default new_empty_strided.default embedding.default
_unsafe_index.Tensor _unsafe_index_put.default"""


def _parts(name: str) -> Rule:
    def both(*args: Any, **kwargs: Any) -> Any:
        halves = [
            RULES[name](
                *(_half(arg, number) for arg in args),
                **{name: _half(arg, number) for name, arg in kwargs.items()},
            )
            for number in (0, 1)
        ]  # fmt: skip
        if isinstance(halves[0], (tuple, list)):
            return [Complex(*pair) for pair in zip(*halves)]
        return Complex(*halves)

    return both


def _half(arg: Any, number: int) -> Any:
    """One part of an argument; a real tensor has no imaginary part."""
    if isinstance(arg, Complex):
        return arg[number]
    if isinstance(arg, (tuple, list)):
        return [_half(part, number) for part in arg]
    if isinstance(arg, Tensor) and arg.dtype.is_float:
        return arg if number == 0 else ops.zeros_like(arg)
    if isinstance(arg, complex):
        raise Unsupported("a complex factor")
    return arg.part if isinstance(arg, Pairs) else arg


def reals(arg: Any) -> Any:
    """An argument without its imaginary part."""
    return _half(arg, 0)


for _name in LINEAR.split():
    rule(_name)(_parts(_name))


# ---- from real numbers and back


@rule("complex.default")
def make(real: Tensor, imag: Tensor) -> Complex:
    return Complex(*broadcast(real, imag))


@rule("view_as_complex.default")
def view_as_complex(x: Tensor) -> Complex:
    return Complex(x.select(-1, 0), x.select(-1, 1))


@rule("view_as_real.default")
def view_as_real(x: Complex) -> Tensor:
    return ops.stack(list(x), -1)


@rule("polar.default")
def polar(size: Tensor, angle: Tensor) -> Complex:
    return pairs.polar(*broadcast(size, angle))


@rule("_to_copy.default", "prims.convert_element_type.default")
def convert(x: Tensor | Complex, dtype: DType | Pairs | None = None) -> Tensor | Complex:
    """To a complex dtype, or from one to its real part."""
    if isinstance(dtype, Pairs):
        return _pair(x, dtype.part)
    return x.real.cast(dtype) if isinstance(x, Complex) and dtype is not None else x


@rule("real.default")
def real(x: Complex) -> Tensor:
    return x.real


@rule("imag.default")
def imag(x: Complex) -> Tensor:
    return x.imag


# ---- arithmetic

Number = Tensor | Complex | complex


def _pair(x: Tensor | Complex, kind: DType) -> Complex:
    """As a pair of that dtype."""
    if isinstance(x, Complex):
        return x.each(lambda part: part.cast(kind))
    wide = x.cast(kind)
    return Complex(wide, full_like(wide, 0))


def _pairs(*values: Number) -> list[Complex]:
    """Numbers as pairs of one shape and dtype."""
    tensors = [v.real if isinstance(v, Complex) else v for v in values]
    known = [t for t in tensors if isinstance(t, Tensor)]
    kind = f64 if any(t.dtype is f64 for t in known) else f32
    shape = broadcast_shapes(*(t.node.shape for t in known))
    made = []
    for value in values:
        if isinstance(value, (Tensor, Complex)):
            pair = _pair(value, kind)
        else:
            number = complex(value)
            parts = (ops.base.literal(known[0].graph, n, kind) for n in (number.real, number.imag))
            pair = Complex(*parts)
        made.append(pair.each(lambda part: part.expand(shape)))
    return made


def _scaled(function: Any) -> Rule:
    def sum_of(x: Number, y: Number, alpha: complex = 1) -> Complex:
        if alpha != 1:
            y = pairs.mul_complex(*_pairs(y, alpha))
        return function(*_pairs(x, y))

    return sum_of


@rule("full.default")
def full(at: Recorder, shape: Sequence[Size], value: complex, dtype: Pairs) -> Complex:
    number = complex(value)
    return Complex(*(source.full(at, shape, n, dtype.part) for n in (number.real, number.imag)))


@rule("zeros.default", "empty.memory_format")
def zeros(at: Recorder, shape: Sequence[Size], dtype: Pairs) -> Complex:
    return full(at, shape, 0, dtype)


@rule("ones.default")
def ones(at: Recorder, shape: Sequence[Size], dtype: Pairs) -> Complex:
    return full(at, shape, 1, dtype)


@rule("scalar_tensor.default")
def scalar_tensor(at: Recorder, value: complex, dtype: Pairs) -> Complex:
    return full(at, (), value, dtype)


@rule("constant_pad_nd.default")
def padded(x: Complex, pads: Sequence[Size], value: complex = 0) -> Complex:
    pad, number = RULES["constant_pad_nd.default"], complex(value)
    return Complex(pad(x.real, pads, number.real), pad(x.imag, pads, number.imag))


@rule("full_like.default", "fill.Scalar", "fill.Tensor")
def filled(x: Tensor | Complex, value: Number, dtype: Any = None) -> Tensor | Complex:
    return convert(_pairs(x, value)[1], dtype)


rule("add.Tensor", "add.Scalar")(_scaled(pairs.add_complex))
rule("sub.Tensor", "sub.Scalar")(_scaled(pairs.sub_complex))
rule("rsub.Tensor", "rsub.Scalar")(lambda x, y, alpha=1: _scaled(pairs.sub_complex)(y, x, alpha))

BINARY: dict[str, Any] = {
    "mul.Tensor mul.Scalar": pairs.mul_complex,
    "div.Tensor div.Scalar": pairs.div_complex,
    "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar": pairs.pow_complex,
    "eq.Tensor eq.Scalar": pairs.equal,
    "ne.Tensor ne.Scalar": lambda x, y: ops.logical_not(pairs.equal(x, y)),
}


def _binary(function: Any) -> Rule:
    return lambda x, y: function(*_pairs(x, y))


for _names, _function in BINARY.items():
    rule(*_names.split())(_binary(_function))

UNARY: dict[str, Any] = {
    "abs": pairs.magnitude, "angle": pairs.angle_of, "exp": pairs.exp_complex,
    "log": pairs.log_complex, "sqrt": pairs.sqrt_complex, "sin": pairs.sin_complex,
    "cos": pairs.cos_complex, "tan": pairs.tan_complex, "cosh": pairs.cosh_complex,
    "sinh": pairs.hyperbolic(pairs.sin_complex), "tanh": pairs.hyperbolic(pairs.tan_complex),
    "sgn": pairs.sgn, "reciprocal": pairs.reciprocal_complex, "square": pairs.square_complex,
    "resolve_conj": lambda x: x, "resolve_neg": lambda x: x,
    "isnan": lambda x: ops.logical_or(*x.each(ops.isnan)),
    "isinf": lambda x: ops.logical_or(*x.each(ops.isinf)),
    "isfinite": lambda x: ops.logical_and(*x.each(ops.isfinite)),
    "logical_not": lambda x: ops.logical_and(*(ops.eq(part, 0) for part in x)),
}  # fmt: skip
for _name, _function in UNARY.items():
    rule(f"{_name}.default")(_function)


@rule("_conj.default", "_conj_physical.default", "conj_physical.default")
def conj(x: Complex | complex) -> Complex | complex:
    return pairs.conj(x) if isinstance(x, Complex) else x.conjugate()


@rule("rsqrt.default")
def rsqrt(x: Complex) -> Complex:
    return pairs.reciprocal_complex(pairs.sqrt_complex(x))


@rule("sigmoid.default")
def sigmoid(x: Complex) -> Complex:
    below = pairs.exp_complex(x.each(ops.neg))
    return pairs.reciprocal_complex(Complex(ops.add(below.real, 1), below.imag))


@rule("silu.default")
def silu(x: Complex) -> Complex:
    return pairs.mul_complex(x, sigmoid(x))


@rule("mm.default", "bmm.default", "mv.default", "dot.default")
def product(x: Complex, y: Complex) -> Complex:
    kind = f64 if f64 in (x.real.dtype, y.real.dtype) else f32
    return pairs.matmul_complex(_pair(x, kind), _pair(y, kind))


@rule("vdot.default")
def vdot(x: Complex, y: Complex) -> Complex:
    return product(pairs.conj(x), y)


@rule("addmm.default", "baddbmm.default", "addmv.default")
def addmm(x: Complex, a: Complex, b: Complex, beta: complex = 1, alpha: complex = 1) -> Complex:
    scaled = pairs.mul_complex(*_pairs(product(a, b), alpha))
    return scaled if beta == 0 else pairs.add_complex(*_pairs(scaled, _times(x, beta)))


def _times(x: Number, factor: complex) -> Complex:
    return pairs.mul_complex(*_pairs(x, factor))


@rule("addcmul.default")
def addcmul(x: Complex, a: Number, b: Number, value: complex = 1) -> Complex:
    return _scaled(pairs.add_complex)(x, pairs.mul_complex(*_pairs(a, b)), value)


@rule("addcdiv.default")
def addcdiv(x: Complex, a: Number, b: Number, value: complex = 1) -> Complex:
    return _scaled(pairs.add_complex)(x, pairs.div_complex(*_pairs(a, b)), value)


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(x: Complex, y: Number, weight: Number) -> Complex:
    way = pairs.sub_complex(*_pairs(y, x))
    return pairs.add_complex(*_pairs(x, pairs.mul_complex(*_pairs(way, weight))))


@rule("linalg_vector_norm.default")
def norm(x: Complex, *args: Any, dtype: Pairs | DType | None = None) -> Tensor:
    return RULES["linalg_vector_norm.default"](pairs.magnitude(x), *args, dtype=reals(dtype))


@rule("where.self", "where.ScalarSelf", "where.ScalarOther")
def where(condition: Tensor, x: Number, y: Number) -> Complex:
    a, b = _pairs(x, y)
    return Complex(ops.where(condition, a.real, b.real), ops.where(condition, a.imag, b.imag))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Complex, mask: Tensor, value: Number) -> Complex:
    return where(mask, value, x)


# ---- Fourier transforms


@rule("_fft_c2c.default")
def fft_c2c(x: Complex, dims: Sequence[int], mode: int, forward: bool) -> Complex:
    factor = fourier.factor(x.real, dims, mode)
    return fourier.transform(x, list(dims), forward).each(ops.mul, factor)


@rule("_fft_r2c.default")
def fft_r2c(x: Tensor, dims: Sequence[int], mode: int, onesided: bool) -> Complex:
    factor = fourier.factor(x, dims, mode)
    if onesided:
        return fourier.real_to_half(x, list(dims)).each(ops.mul, factor)
    return fourier.transform(_pair(x, x.dtype), list(dims)).each(ops.mul, factor)


@rule("_fft_c2r.default")
def fft_c2r(x: Complex, dims: Sequence[int], mode: int, size: int) -> Tensor:
    result = fourier.half_to_real(x, list(dims), size)
    return ops.mul(result, fourier.factor(result, dims, mode))
