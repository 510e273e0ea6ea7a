"""Functions of one byte: to the same bits as the reference gives for every byte."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal import ops
from luminal.backend import reference
from luminal.graph.graph import Graph
from luminal.graph.passes import program_of
from luminal.precision.bytewise import bytes_mapped


def dequantised(x, scale, zero):
    return (x.cast("i32") - zero).cast("f32") * scale


def quantised(y, scale, zero, kind="u8"):
    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)
    return ops.clamp(ops.round(ops.div(y, scale)) + float(zero), low, high).cast(kind)


def compared(graph, feeds):
    """Equal results; the operations that are left."""
    before = program_of(graph)
    after = bytes_mapped(before)
    assert bytes_mapped(before) == after
    first, second = (
        [reference.evaluate(graph, p.outputs, feeds)[n] for n in p.outputs] for p in (before, after)
    )
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return [n.op for n in after.nodes() if n.op not in ("input", "literal", "view")]


def every(kind, shape=(16, 16)):
    return np.arange(256).astype(kind).reshape(shape)


def test_bytes_that_become_the_same_bytes_are_moved_only():
    graph = Graph()
    x = graph.tensor((16, 16), "u8")
    first, second = ops.split(dequantised(x, 0.037, 113), 8, 0)
    for part in (first, second.T):
        quantised(part, 0.037, 113).output()
    assert compared(graph, {x: every("u1")}) == []


def test_movements_of_moved_bytes_compose():
    graph = Graph()
    x = graph.tensor((2, 128), "u8")
    moved = quantised(dequantised(x, 0.5, 3).T, 0.5, 3)
    moved.flatten().output()
    quantised(dequantised(moved.flip(0), 0.5, 3), 0.5, 3).output()
    assert compared(graph, {x: every("u1", (2, 128))}) == []


def test_a_pool_of_bytes_is_one_of_bytes():
    """What it puts around is less than every byte."""
    graph = Graph()
    x = graph.tensor((1, 1, 16, 16), "u8")
    pooled = ops.max_pool2d(dequantised(x, 0.1, 3), 3, 1, 1)
    quantised(pooled, 0.1, 3).output()
    assert compared(graph, {x: every("u1", (1, 1, 16, 16))}) == ["max"]


def test_bounds_stay_in_bytes():
    graph = Graph()
    x = graph.tensor((16, 16), "i8")
    quantised(ops.relu(dequantised(x, 0.5, -20)), 0.5, -20, "i8").output()
    quantised(ops.clamp(dequantised(x, 0.5, -20), 0.0, 6.0), 0.5, -20, "i8").output()
    assert compared(graph, {x: every("i1")}) == ["max", "min"]


def test_long_chains_are_looked_up():
    """SiLU as quantisers write it: through bytes of its sigmoid."""
    graph = Graph()
    x = graph.tensor((16, 16), "u8")
    number = dequantised(x, 0.05, 128)
    share = quantised(ops.sigmoid(number), 1 / 255, 0)
    quantised(number * dequantised(share, 1 / 255, 0), 0.03, 9).output()
    assert compared(graph, {x: every("u1")}) == ["cast", "gather"]


def test_two_bytes_are_not_one():
    graph = Graph()
    x, y = graph.tensor((16, 16), "u8"), graph.tensor((16, 16), "u8")
    quantised(dequantised(x, 0.1, 0) + dequantised(y, 0.1, 0), 0.1, 0).output()
    quantised(dequantised(x, 0.1, 0) + dequantised(x.T, 0.1, 0), 0.1, 0).output()
    program = program_of(graph)
    assert bytes_mapped(program) == program


UNARY = ("relu", "sigmoid", "abs", "neg", "exp", "tanh", "sqrt", "round")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.sampled_from(["u8", "i8"]))
@settings(max_examples=100, deadline=None)
def test_random_chains_keep_their_meaning(choices, kind):
    graph = Graph()
    x = graph.tensor((16, 16), kind)
    zero = 128 if kind == "u8" else 0
    made = [x]
    with np.errstate(all="ignore"):
        for n in choices:
            y = dequantised(made[n % len(made)], (0.01, 0.5, 1.0, 3e38)[n // 8 % 4], zero)
            what = n // 32 % 16
            if what < len(UNARY):
                y = getattr(ops, UNARY[what])(y)
            elif what == 8:
                y = ops.pad(y, (1, 2, 0, 1), value=(0.0, -0.0, -np.inf, 1.5, np.nan)[n // 512 % 5])
                y = y.narrow(0, 0, 16).narrow(1, n // 4096 % 3, 16)
            elif what == 9:
                y = ops.amax(y, 1, True).expand(16, 16)
            elif what == 10:
                y = ops.amin(y, 0, True).expand(16, 16)
            elif what == 11:
                y = y * y.T if n & 1 else y * y
            elif what == 12:
                y = ops.pad(y, (1, 1), value=-np.inf).unfold(1, 3, 1)
                y = ops.amax(y, -1)
            elif what == 13:
                y = y.T.flip(0)  # a quarter turn
            made.append(quantised(y, (0.01, 0.5, 7.0)[n // 1024 % 3], zero, kind))
        for y in made[-3:]:
            y.output()
        compared(graph, {x: every(x.dtype.numpy)})
