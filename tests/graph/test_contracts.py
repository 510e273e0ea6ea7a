"""Precision contracts: what they promise holds on random and on hostile numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal
from luminal import ops, train
from luminal.backend import cpu
from luminal.errors import Unsupported
from luminal.graph import Graph, Tensor
from luminal.graph.dtype import bf16
from luminal.graph.node import Node
from luminal.graph.passes import Program, run_passes
from luminal.models.llm.projection import Blocks
from luminal.models.llm.storage import FORMATS, quantise4, quantise8
from luminal.precision import default_passes, narrowed
from luminal.precision.contracts import TINY, below_views
from luminal.precision.rounding import STREAMED, bf16_contraction, sums_rounded

Record = Callable[[Graph, Tensor], Tensor]
ROUNDING = 2.0**-20  # of f32 sums and scales, relative to the sum of absolute products
KINDS = ("plain", "outliers", "wide", "ties", "zero")


def activations(kind: str, rows: int, inside: int) -> np.ndarray:
    """Rows that are hard to quantise."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, inside)).astype(np.float32)
    if kind == "outliers":
        x[:, ::37] *= 1e4
    elif kind == "wide":
        x *= (10.0 ** rng.integers(-38, 30, x.shape)).astype(np.float32)
    elif kind == "ties":
        x = np.round(x * 4) / 8 * np.float32(127)
    elif kind == "zero":
        x[:, : inside // 2] = 0
    return x


def run(x: np.ndarray, record: Record, precision: str, device: str = "cpu") -> np.ndarray:
    cx = luminal.Graph()
    a = cx.tensor(x.shape)
    y = record(cx, a).output()
    rt = cx.compile(threads=1, precision=precision, device=device, database=False)
    rt[a] = x
    rt.run()
    return np.array(rt[y])


def blocks(kind: str, inside: int, out: int) -> tuple[Record, np.ndarray]:
    """(x @ weight^T with a weight in blocks, that weight)."""
    rng = np.random.default_rng(6)
    weight = (rng.standard_normal((out, inside)) / 8).astype(np.float32)
    if kind == "q8":
        quants, scales = quantise8(weight)
        quants[0, 0] = 0  # -128: no quantiser of ours makes it, but a file may hold it
        whole = quants.astype(np.float64) - 128
    else:
        quants, scales = quantise4(weight)
        whole = np.concatenate([quants & 15, quants >> 4], -1).astype(np.float64) - 8

    def record(cx: Graph, a: Tensor) -> Tensor:
        linear = Blocks(cx, inside, out, False, FORMATS[kind])
        linear.quants.set(quants)
        linear.scales.set(scales)
        return linear(a)

    return record, (whole * scales.astype(np.float64)[..., None]).reshape(out, inside)


def test_quantised_touches_integer_weights_only() -> None:
    rng = np.random.default_rng(1)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64), (24, 64)))

    def floats(cx: Graph, a: Tensor) -> Tensor:
        return ops.linear(a, cx.parameter((24, 64)).set(weight))

    whole, _ = blocks("q8", 64, 24)
    np.testing.assert_array_equal(run(x, floats, "quantised"), run(x, floats, "f32"))
    np.testing.assert_array_equal(run(x, whole, "quantised"), run(x, whole, "int8"))
    assert not np.array_equal(run(x, whole, "quantised"), run(x, whole, "f32"))


def lost(x: np.ndarray, group: int) -> np.ndarray:
    """s_b / 2 + TINY for each number."""
    most = np.abs(x.astype(np.float64)).reshape(len(x), -1, group).max(-1)
    return np.repeat(most / 127 / 2 + TINY, group, -1)


def sums(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)).T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", ("q8", "q4"))
@pytest.mark.parametrize("rows", (1, 13))
def test_blocks_of_integers(weight: str, rows: int, kind: str) -> None:
    x = activations(kind, rows, 96)
    record, exact = blocks(weight, 96, 40)
    bound = lost(x, 32) @ np.abs(exact).T + ROUNDING * sums(x, exact) + 1e-37
    error = np.abs(run(x, record, "int8") - x.astype(np.float64) @ exact.T)
    assert (error <= bound).all()
    if kind == "plain":  # the contract does something, and f32 keeps out of it
        plain = np.abs(run(x, record, "f32") - x.astype(np.float64) @ exact.T)
        assert error.max() > 100 * plain.max()


def test_interpreted_as_native() -> None:
    """Integer sums are exact: NumPy's meaning of the rewritten program differs by f32 rounding."""
    x = activations("outliers", 5, 64)
    record, exact = blocks("q8", 64, 24)
    apart = np.abs(run(x, record, "int8") - run(x, record, "int8", "reference"))
    assert (apart <= ROUNDING * sums(x, exact)).all()


@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_what_is_not_finite_stays_in_its_row_and_is_seen(bad: float) -> None:
    x = activations("plain", 4, 64)
    x[2, 40] = bad
    y = run(x, blocks("q8", 64, 24)[0], "int8")
    assert np.isnan(y[2]).all() and np.isfinite(np.delete(y, 2, 0)).all()


def test_sums_of_one_product_stay_as_they_are() -> None:
    x, w = np.float32([[0.1], [3], [-7]]), np.float32([0.3])

    def record(cx: Graph, a: Tensor) -> Tensor:
        return (a * cx.parameter(w.shape).set(w).expand(3, 1)).sum(1)

    np.testing.assert_array_equal(run(x, record, "int8"), (x * w)[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_float_weights_are_rounded_by_rows(kind: str) -> None:
    x = activations(kind, 6, 80)
    w = (np.random.default_rng(7).standard_normal((48, 80)) / 8).astype(np.float32)
    steps = np.abs(w).max(-1, keepdims=True).astype(np.float64) / 127

    def record(cx: Graph, a: Tensor) -> Tensor:
        return ops.linear(a, cx.parameter(w.shape).set(w))

    bound = (
        lost(x, 80) @ (np.abs(w) + steps / 2).T
        + np.abs(x.astype(np.float64)) @ (np.ones_like(w) * steps / 2).T
    )
    error = np.abs(run(x, record, "int8") - x.astype(np.float64) @ w.T)
    assert (error <= bound + ROUNDING * sums(x, w) + 1e-37).all()


def test_integer_scales() -> None:
    """Of two integers that are multiplied, the one that is constant over groups is a scale: all is
    a sum of integers, and the weight is not rounded."""
    rng = np.random.default_rng(9)
    x = activations("plain", 4, 128)
    whole = rng.integers(-128, 128, (24, 4, 32)).astype(np.int8)
    scales = rng.integers(0, 64, (24, 4)).astype(np.uint8)
    exact = (whole * scales[..., None].astype(np.float64)).reshape(24, 128)

    def record(cx: Graph, a: Tensor) -> Tensor:
        w = cx.parameter(whole.shape, "i8").set(whole).cast("f32")
        s = cx.parameter(scales.shape, "u8").set(scales).cast("f32")
        return ops.linear(a, (w * s.unsqueeze(-1)).flatten(1, 2))

    bound = lost(x, 128) @ np.abs(exact).T + ROUNDING * sums(x, exact)
    error = np.abs(run(x, record, "quantised") - x.astype(np.float64) @ exact.T)
    assert (error <= bound).all()
    assert error.max() > 100 * np.abs(run(x, record, "f32") - x @ exact.T).max()


def test_two_integers_in_a_product_are_rounded_as_a_float() -> None:
    rng = np.random.default_rng(10)
    x = activations("plain", 4, 80)
    a8, b8 = (rng.integers(-128, 128, (24, 80)).astype(np.int8) for _ in range(2))
    w = a8.astype(np.float64) * b8
    steps = np.abs(w).max(-1, keepdims=True) / 127

    def record(cx: Graph, a: Tensor) -> Tensor:
        first, second = (cx.parameter(n.shape, "i8").set(n).cast("f32") for n in (a8, b8))
        return ops.linear(a, first * second)

    bound = lost(x, 80) @ (np.abs(w) + steps / 2).T + np.abs(x) @ (np.ones_like(w) * steps / 2).T
    error = np.abs(run(x, record, "int8") - x.astype(np.float64) @ w.T)
    assert (error <= bound + ROUNDING * sums(x, w)).all()
    assert np.array_equal(run(x, record, "quantised"), run(x, record, "f32"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", (1, 9, 20))
def test_half_precision(rows: int, kind: str) -> None:
    """Equal to the product of rounded factors but for the order of additions; within the bound.
    Where the machine does not multiply bf16, only weights of few rows are rounded; where it does,
    what no instruction of such takes may stay as it is."""
    x = activations(kind, rows, 70)
    w = np.random.default_rng(8).standard_normal((33, 70)).astype(np.float32)

    def record(cx: Graph, a: Tensor) -> Tensor:
        return ops.linear(a, cx.parameter(w.shape).set(w))

    got = run(x, record, "bf16")
    narrow = [n.astype(ml_dtypes.bfloat16).astype(np.float64) for n in (x, w)]
    ways = [*itertools.product(*zip(narrow, (x.astype(np.float64), w.astype(np.float64))))]
    if not any(i.first is bf16 for i in cpu.host().instructions):
        ways = [ways[2 if rows <= STREAMED else 3]]
    near = [np.abs(got - a @ b.T) <= ROUNDING * sums(x, w) + 1e-37 for a, b in ways]
    assert any(map(np.all, near))
    error = np.abs(got - x.astype(np.float64) @ w.astype(np.float64).T)
    assert (error <= (2.0**-7 + 2.0**-16 + ROUNDING) * sums(x, w) + 1e-37).all()


def test_attention_stays_one_pass() -> None:
    """Scores are products of rounded factors; the softmax is not rounded."""
    cx = luminal.Graph()
    q, k, v = (cx.tensor((4, 96, 32)) for _ in range(3))
    ops.matmul(ops.softmax(q @ k.transpose(1, 2), 2), v).output()
    rt = cx.compile(device="cuda:sm_90a", precision="bf16", cache=False, database=False)
    online = [k for k in rt.report.kernels if any(
        v.reduction and v.reduction.rescale for v in k.kernel.values)]  # fmt: skip
    assert len(online) == 1
    kept = {"x".join(map(str, b.shape)) for k in rt.report.kernels for b in k.kernel.buffers}
    assert not any("96x96" in shape for shape in kept)


def test_weights_are_rounded_for_instructions_alone() -> None:
    """Many rows are multiplied by matrices of bf16; one row's product takes weights as they are."""
    for rows in (128, 1):
        cx = luminal.Graph()
        w = cx.parameter((256, 256), "u8").cast("f32") * 0.0117
        (cx.tensor((rows, 256), "bf16").cast("f32") @ w.transpose(0, 1)).output()
        rt = cx.compile(device="cuda:sm_80", precision="bf16", cache=False, database=False)
        text = "".join(rt.sources().values())
        assert ("mma_bf16(" in text) == ("bf16_of_f32(" in text) == (rows > 1)


def test_a_softmax_is_rounded_in_sums_over_other_axes() -> None:
    """Of its gradients, those of the values are a sum over queries. What it weighs is rounded."""
    cx = luminal.Graph()
    p, v, g = ops.softmax(cx.tensor((96, 64)), 1), cx.tensor((64, 32)), cx.tensor((96, 32))
    half = cx.tensor((64, 32), "f16").cast("f32")
    products = ops.matmul(p, v), ops.matmul(p, half), ops.matmul(p.T, g)
    assert [len(rounded(product)) for product in products] == [1, 0, 2]


def rounded(result: luminal.Tensor) -> list[Node]:
    """What a program in bf16 rounds."""
    narrow = narrowed(bf16_contraction)
    nodes = narrow(Program(result.graph, (result.node,))).nodes()
    casts = [n for n in nodes if n.op == "cast" and n.dtype is bf16]
    return [n.inputs[0] for n in casts if n.inputs[0].dtype is not bf16]


def test_operands_are_rounded_where_they_are_made() -> None:
    """Also what a derivative reads under another name, a cast to the own dtype."""
    cx = luminal.Graph()
    x, w = cx.tensor((96, 64)).relu(), cx.tensor((64, 32))
    y = train.checkpoint(lambda a: ops.tanh(ops.matmul(a, w)), x)
    (gradient,) = train.backward((y * y).sum(), [w])
    assert x.node in rounded(gradient)
    assert not any(n.op == "cast" and n.inputs[0].dtype is n.dtype for n in rounded(gradient))


def test_run_time_rows() -> None:
    cx = luminal.Graph()
    rows = cx.dim("rows", 1, 40, hint=16)
    a = cx.tensor((rows, 64))
    record, exact = blocks("q4", 64, 24)
    y = record(cx, a).output()
    rt = cx.compile(threads=2, precision="int8", database=False)
    for count in (1, 7, 40):
        x = rt[a] = activations("plain", count, 64)
        rt.run(rows=count)
        bound = lost(x, 32) @ np.abs(exact).T + ROUNDING * sums(x, exact)
        assert (np.abs(rt[y] - x @ exact.T) <= bound).all()


def test_the_last_of_run_time_rows() -> None:
    """Some rows of a node: the head of a language model looks at the last token alone."""
    cx = luminal.Graph()
    a = cx.tensor((cx.dim("rows", 1, 40, hint=16), 64))
    record, exact = blocks("q8", 64, 24)
    y = record(cx, a[-1:]).output()
    rt = cx.compile(threads=1, precision="int8", database=False)
    assert "mul cast : i32" in rt.explain()
    x = rt[a] = activations("plain", 9, 64)
    rt.run(rows=9)
    bound = lost(x[-1:], 32) @ np.abs(exact).T + ROUNDING * sums(x[-1:], exact)
    assert (np.abs(rt[y] - x[-1:] @ exact.T) <= bound).all()


def test_what_is_no_contraction_keeps_its_precision() -> None:
    x = activations("plain", 6, 50)

    def record(cx: Graph, a: Tensor) -> Tensor:
        return (a * a).sum(-1)

    for precision in ("bf16", "int8"):
        assert np.array_equal(run(x, record, precision), run(x, record, "f32"))


def test_unknown_precision() -> None:
    with pytest.raises(Unsupported, match="'f32', 'bf16', 'int8'"):
        run(np.zeros((2, 2), np.float32), lambda cx, a: a * 2, "fp4")


def shifted(quants: np.ndarray, offset: float) -> Record:
    def record(cx: Graph, a: Tensor) -> Tensor:
        w = cx.parameter(quants.shape, quants.dtype).set(quants)
        return a @ (w.cast("f32") * 2**-8 + offset).T

    return record


@pytest.mark.parametrize("inside", (64, 4096, 1 << 16, 1 << 20))
@pytest.mark.parametrize("kind", (np.int8, np.uint8))
def test_integer_sums_stay_inside_i32(kind: type, inside: int) -> None:
    """The largest integers of one sign, beside zero points of any size."""
    x = np.ones((1, inside), np.float32)
    for fill in (np.iinfo(kind).min, np.iinfo(kind).max):
        quants = np.full((1, inside), fill, kind)
        for offset in (0.0, 100.0, -128.0, -3e4, 1e10, 0.1) if inside < 1 << 20 else (100.0,):
            exact = quants * 2.0**-8 + np.float32(offset)
            error = np.abs(run(x, shifted(quants, offset), "int8") - x.astype(np.float64) @ exact.T)
            assert error <= 2**-18 * sums(x, exact), (fill, offset)


def test_integers_of_one_weight_with_numbers_of_their_own() -> None:
    rng = np.random.default_rng(12)
    x = activations("plain", 3, 64)
    first, second = (rng.integers(-128, 128, (5, 64)).astype(np.int8) for _ in range(2))

    def record(cx: Graph, a: Tensor) -> Tensor:
        one, two = (cx.parameter((5, 64), "i8").set(w) for w in (first, second))
        return a @ (one.cast("f32") * 2.0 + two.cast("f32") * 3.0).T

    exact = first * 2.0 + second * 3.0
    error = np.abs(run(x, record, "quantised") - x.astype(np.float64) @ exact.T)
    assert (error <= lost(x, 64) @ np.abs(exact).T * 1.01).all()


@pytest.mark.parametrize("padding, stride", [(1, 1), (1, 2), (0, 1)])
def test_gradients_of_convolutions_multiply_rounded_factors(padding: int, stride: int) -> None:
    """Pictures with padding are rounded before they are moved, as what is made of them is stored;
    those that are inputs where they are read."""
    cx = luminal.Graph()
    x, w = cx.tensor((2, 8, 12, 12)), cx.tensor((16, 8, 3, 3))
    hidden = x.relu()
    y = ops.conv2d(hidden, w, stride=stride, padding=padding)
    g = ops.tanh(cx.tensor(y.shape))
    gradients = train.vjp([y], [g], [w, hidden])
    assert {g.node, hidden.node} <= set(rounded(gradients[0]))
    assert g.node in rounded(gradients[1]) and hidden.node in rounded(y)
    given = rounded(ops.conv2d(x, w, padding=1))
    assert x.node not in given and any(node.inputs == (x.node,) for node in given)


def test_sums_of_products_of_matrices_stay_such() -> None:
    """Though nothing but the sum and a rounded factor reads the products."""
    cx = luminal.Graph()
    a, b, w = cx.tensor((8, 6)), cx.tensor((6, 4)), cx.tensor((4, 5))
    products = a.unsqueeze(2).expand(8, 6, 4) * b.unsqueeze(0).expand(8, 6, 4)
    program = Program(cx, (products.sum(1).node, ops.matmul(products, w).node))
    for each in default_passes("bf16")[-2:]:
        program = each(program)
    assert program.outputs[0].inputs[0].op == "mul"


def test_sums_of_what_is_rounded_anyway() -> None:
    """A bias' gradient adds up what the weight's multiplies; what is read otherwise too stays."""
    cx = luminal.Graph()
    x, g = (ops.tanh(cx.tensor((48, n))) for n in (8, 6))
    weight, bias = ops.matmul(x.T, g), g.sum(0)
    program = Program(cx, (weight.node, bias.node, x.sum(0).node, (x * 2.0).node))
    program = run_passes(program, default_passes("bf16"))
    sums = [node.inputs[0] for node in program.outputs[1:3]]
    assert [s.op == "cast" and s.inputs[0].dtype is bf16 for s in sums] == [True, False]
    again = default_passes("bf16", half_products=False)
    assert sums_rounded not in again and sums_rounded in default_passes("bf16")


def test_what_several_rounded_values_are_made_of_is_rounded() -> None:
    """A GELU's argument, which its gradient reads again; not what a sum reads too, not what is
    fused into one rounded value, not an output."""
    cx = luminal.Graph()
    x, w, v, bias = (cx.tensor(shape) for shape in ((6, 4), (4, 8), (8, 5), (8,)))
    y = x @ w + bias
    twice = (ops.gelu(y) @ v, ops.gelu(y * 2.0) @ v)

    def rounded(*outputs: Any) -> set[bool]:
        """Whether what the sum gives is rounded once the bias is added, and before."""
        program = Program(cx, tuple(tensor.node for tensor in outputs))
        nodes = run_passes(program, default_passes("bf16")).nodes()
        made = [n for n in nodes if n.op == "add" and n.shape == y.node.shape
                and below_views(n.inputs[0]).op == "sum"]  # fmt: skip
        assert len(made) == 1
        reads = {n for n in nodes if made[0] in n.inputs}
        return {n.op == "cast" and n.dtype is bf16 for n in reads}

    assert rounded(*twice) == {True}
    assert rounded(twice[0]) == {False}, "made within the kernel that multiplies it"
    assert True not in rounded(*twice, y.sum()), "a sum reads it"
    assert True not in rounded(*twice, y * 3.0), "an output is made of it"


def test_rounded_arguments_stay_within_their_bound() -> None:
    cx = luminal.Graph()
    x, w, v = (cx.tensor(shape) for shape in ((32, 48), (48, 64), (64, 24)))
    y = x @ w
    for each in (ops.relu(y) @ v, (y * 2.0) @ v):
        each.output()
    rng = np.random.default_rng(0)
    data = [rng.standard_normal([int(n.evaluate({})) for n in t.node.shape], np.float32)
            for t in (x, w, v)]  # fmt: skip
    rt = cx.compile(precision="bf16")
    for tensor, values in zip((x, w, v), data):
        rt[tensor] = values
    rt.run()
    found = [rt[each] for each in cx.outputs]
    exact = data[0].astype(np.float64) @ data[1]
    part = 2.0**-8
    least = np.abs(data[0]) @ np.abs(data[1]) * (2 * part + part**2) + np.abs(exact) * part
    for got, wanted, slope in zip(found, (np.maximum(exact, 0), exact * 2.0), (1.0, 2.0)):
        bound = (least * slope * (1 + part)) @ np.abs(data[2])
        bound += np.abs(wanted) @ np.abs(data[2]) * (2 * part + part**2)
        assert np.all(np.abs(got - wanted @ data[2]) <= bound)


def test_a_view_that_is_an_output_reads_what_it_shows() -> None:
    cx = luminal.Graph()
    y = ops.tanh(cx.tensor((8, 6)))
    program = Program(cx, (y.sum(0).node, y.T.node))
    assert sums_rounded(program).outputs == program.outputs
