"""Complex numbers: pairs of real tensors. COMPLEX has the rules of operations that take or make
complex tensors; where an operation has a rule here and one for real tensors, the recorder looks at
the dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import DType, f32, f64
from ....graph.tensor import Tensor
from ....ops import complex as pairs
from ....ops import fourier
from ....ops.base import broadcast, result_type, static
from ....ops.complex import Complex, complex_of
from .base import RULES, Rule

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
sum.default sum.dim_IntList mean.default mean.dim cumsum.default neg.default
constant_pad_nd.default as_strided.default copy.default slice_scatter.default
select_scatter.default diagonal_scatter.default index_put.default index_add.default
scatter_add.default scatter.src take.default new_zeros.default zeros_like.default
empty_like.default new_empty.default new_empty_strided.default embedding.default"""


def _parts(function: Rule) -> Rule:
    def both(*args: Any, **kwargs: Any) -> Any:
        halves = [
            function(
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
        return arg.imag if number else arg.real
    return arg


for _name in LINEAR.split():
    rule(_name)(_parts(RULES[_name]))


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
def convert(x: Tensor | Complex, dtype: Any = None) -> Tensor | Complex:
    """To a complex dtype (given by its real one's width, set right by the recorder) or from one."""
    if isinstance(x, Complex):
        return x if dtype is None or isinstance(dtype, ComplexKind) else x.real.cast(dtype)
    kind = dtype.part if isinstance(dtype, ComplexKind) else f32
    return complex_of(x, ops.zeros_like(x).cast(kind))


@rule("real.default")
def real(x: Complex) -> Tensor:
    return x.real


@rule("imag.default")
def imag(x: Complex) -> Tensor:
    return x.imag
