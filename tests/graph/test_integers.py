"""Products of quantised numbers become products of unsigned by signed bytes, and stay exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal
from luminal import Tensor, ops
from luminal.graph.passes import program_of
from luminal.precision import CONTRACTS, default_passes
from luminal.precision.integers import bytes_multiplied

Shifted = Callable[[luminal.Graph, str, tuple[Any, ...]], Tensor]
KINDS = {"u8": np.uint8, "i8": np.int8}
PLAIN = [p for p in default_passes() if p is not bytes_multiplied]


def by_none(cx: luminal.Graph, kind: str, shape: tuple[Any, ...]) -> Tensor:
    return cx.tensor(shape, kind).cast("i32")


def by_number(cx: luminal.Graph, kind: str, shape: tuple[Any, ...]) -> Tensor:
    return cx.tensor(shape, kind).cast("i32") - (121 if kind == "u8" else -7)


def by_value(cx: luminal.Graph, kind: str, shape: tuple[Any, ...]) -> Tensor:
    """A zero point that is an input."""
    return cx.tensor(shape, kind).cast("i32") - cx.tensor((), kind).cast("i32")


def by_rows(cx: luminal.Graph, kind: str, shape: tuple[Any, ...]) -> Tensor:
    """A zero point for each of the first dimension."""
    zero = cx.tensor((shape[0], *(1,) * (len(shape) - 1)), kind).cast("i32")
    return cx.tensor(shape, kind).cast("i32") - zero


def product(cx: luminal.Graph, a: Tensor, b: Tensor) -> Tensor:
    return ops.matmul(a, b.T)


def images(cx: luminal.Graph, a: Tensor, b: Tensor) -> Tensor:
    """Zeros around an image are its zero point, as bytes."""
    return ops.conv2d(a, b, padding=1, stride=2)


def turned(cx: luminal.Graph) -> bool:
    """The pass changes the program."""
    program = program_of(cx)
    for function in PLAIN:
        program = function(program)
    return bytes_multiplied(program).outputs != program.outputs


def given(cx: luminal.Graph, rows: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    found = []
    for t in cx.inputs:
        shape = [n if isinstance(n, int) else rows for n in t.shape]
        low, high = (-100.0, 100.0) if t.dtype.is_float else (t.dtype.lowest, t.dtype.highest + 1)
        found.append(random.uniform(low, high, shape).astype(t.dtype.numpy))
    return found


FIRST, SECOND = (by_none, by_number, by_value, by_rows), (by_none, by_number, by_rows)
CASES = [(product, a, b) for a in FIRST for b in SECOND]
CASES += [(images, a, by_none) for a in FIRST] + [(images, by_number, by_rows)]


@pytest.mark.parametrize("kinds", ["u8 i8", "i8 u8", "i8 i8", "u8 u8"])
@pytest.mark.parametrize("over, first, second", CASES)
def test_sums_of_integers_are_the_same(
    over: Callable[..., Tensor], first: Shifted, second: Shifted, kinds: str
) -> None:
    cx, (one, two) = luminal.Graph(), kinds.split()
    if over is product:
        cx.dim("n", 1, 64)
        over(
            cx, first(cx, one, ("n" if first is not by_rows else 5, 24)), second(cx, two, (33, 24))
        ).output()
    else:
        over(cx, first(cx, one, (1, 8, 6, 7)), second(cx, two, (20, 8, 3, 3))).output()
    assert turned(cx) == (first is not by_none or second is not by_none or one == two)
    want = cx.compile(device="reference", passes=PLAIN)
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    signed = cx.compile(device="reference", passes=default_passes(signed_bytes=True))
    for rows in (5, 1):
        values = given(cx, rows)
        np.testing.assert_array_equal(rt(*values), want(*values))
        np.testing.assert_array_equal(signed(*values), want(*values))


@pytest.mark.parametrize("pads", [0, 1])
def test_sums_of_scaled_integers_are_rounded_once(pads: int) -> None:
    """As of ONNX's pairs of QuantizeLinear and DequantizeLinear."""
    cx = luminal.Graph()
    x, w = cx.tensor((2, 8, 6, 6), "u8"), cx.tensor((20, 8, 3, 3), "i8")
    scale, scales = cx.tensor((), "f32"), cx.tensor((20, 1, 1, 1), "f32")
    a, b = (x.cast("i32") - 121).cast("f32") * scale, w.cast("f32") * scales
    ops.conv2d(a, b, padding=pads).output()
    assert turned(cx)
    values = given(cx, 0)
    found = cx.compile(device="cpu", threads=1, cache=False, database=False)(*values)
    cy = luminal.Graph()
    wide = [cy.constant(v.astype(np.float64)) for v in values]
    exact = ops.conv2d((wide[0] - 121) * wide[2], wide[1] * wide[3], padding=pads).numpy()
    np.testing.assert_allclose(found, exact, rtol=4e-7)


@pytest.mark.parametrize("groups, kernel", [(4, 3), (1, 3)])
def test_small_sums_are_floats(groups: int, kernel: int) -> None:
    """No instruction adds up so few products; a float holds them."""
    cx = luminal.Graph()
    inside = 4 if groups > 1 else 3
    x = cx.tensor((1, inside, 7, 7), "u8").cast("i32") - 200
    random = np.random.default_rng(1)
    shape = (4, inside // groups, kernel, kernel)
    w = cx.parameter(shape, "i8").set(random.integers(-128, 128, shape).astype("i1"))
    ops.conv2d(x, w.cast("i32"), padding=1, groups=groups).output()
    assert turned(cx)
    want = cx.compile(device="reference", passes=PLAIN)
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    (image,) = (v for v, t in zip(given(cx, 0), cx.inputs))
    np.testing.assert_array_equal(rt(image), want(image))


def test_what_i32_does_not_hold_stays_as_it_is() -> None:
    """Sums of floats do not wrap."""
    for count, expected in ((33024, True), (65536, False)):
        cx = luminal.Graph()
        x, w = cx.tensor((2, count), "u8").cast("f32"), cx.tensor((3, count), "u8").cast("f32")
        ops.matmul(x, w.T).output()
        assert turned(cx) == expected


NOT_OF_BYTES = ["scale along the sum", "one side only", "an infinite shift", "windows of a channel"]


@pytest.mark.parametrize("name", NOT_OF_BYTES)
def test_what_is_no_product_of_bytes_stays_as_it_is(name: str) -> None:
    cx = luminal.Graph()
    x, w = cx.tensor((4, 24), "u8").cast("f32"), cx.tensor((5, 24), "i8").cast("f32")
    if name == "scale along the sum":
        ops.matmul(x * cx.tensor((24,), "f32"), w.T).output()
    elif name == "one side only":
        ops.matmul(x + 0.5, w.T).output()
    elif name == "an infinite shift":
        ops.matmul(x - np.inf, w.T).output()
    else:
        image = cx.tensor((1, 4, 6, 6), "u8").cast("i32") - 3
        ops.conv2d(image, cx.tensor((4, 1, 2, 2), "i8").cast("i32"), groups=4).output()
    assert not turned(cx)


@pytest.mark.parametrize("precision", CONTRACTS)
@pytest.mark.parametrize("kinds", ["u8 i8", "i8 i8"])
@pytest.mark.parametrize("columns", [1, 33])
def test_integers_are_exact_whatever_the_precision(
    columns: int, kinds: str, precision: str
) -> None:
    """Sums that f32 holds are taken there, which is nothing that a contract may round."""
    random, (first, second) = np.random.default_rng(2), kinds.split()
    image, weight = (
        random.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
        for kind, shape in ((KINDS[first], (16, 33)), (KINDS[second], (33, columns)))
    )
    cx = luminal.Graph()
    x, w = cx.tensor((16, 33), first), cx.parameter((33, columns), second).set(weight)
    ops.matmul(x.cast("i32"), w.cast("i32")).output()
    rt = cx.compile(device="cpu", threads=1, precision=precision, cache=False, database=False)
    np.testing.assert_array_equal(rt(image), image.astype(np.int32) @ weight.astype(np.int32))
