"""The NumPy meaning of what NumPy or PyTorch define exactly; the rest is tested through ops."""

import ml_dtypes
import numpy as np
import pytest

from luminal.backend import reference
from luminal.errors import DimError, InputError
from luminal.graph.graph import Graph

torch = pytest.importorskip("torch")


def value(tensor, feeds=None, **sizes):
    return reference.evaluate(tensor.graph, [tensor.node], feeds, sizes)[tensor.node]


def test_half_sums_round_once():
    graph = Graph()
    x = graph.tensor((4096,), "bf16")
    ones = np.ones(4096, ml_dtypes.bfloat16)
    total = value(x._reduce("sum", [0]), {x: ones})
    assert total.dtype == ml_dtypes.bfloat16 and float(total) == 4096  # 256 in bf16 steps
    running = value(x.scan("sum", 0), {x: ones})
    assert float(running[-1]) == 4096


def test_integer_reductions_keep_their_dtype():
    graph = Graph()
    x = graph.tensor((3,), "u8")
    array = np.array([200, 100, 7], np.uint8)
    assert value(x._reduce("sum", [0]), {x: array}) == np.uint8(51)
    assert value(x._reduce("max", [0]), {x: array}) == 200
    assert value(x._reduce("min", [0]), {x: array}).dtype == np.uint8


@pytest.mark.parametrize("kind", ["f32", "bf16", "i8", "u16", "bool"])
def test_empty_reductions_give_the_identity(kind):
    graph = Graph()
    x = graph.tensor((0, 2), kind)
    feeds = {x: np.zeros((0, 2), x.dtype.numpy)}
    for op, expected in (("sum", 0), ("prod", 1), ("max", x.dtype.lowest)):
        np.testing.assert_array_equal(value(x._reduce(op, [0]), feeds), [expected] * 2)


def test_max_and_min_propagate_nan():
    graph = Graph()
    x = graph.tensor((3,))
    feeds = {x: np.float32([1, np.nan, 2])}
    assert np.isnan(value(x._reduce("max", [0]), feeds))
    assert np.isnan(value(x._reduce("min", [0]), feeds))
    np.testing.assert_array_equal(value(x.scan("max", 0), feeds), [1, np.nan, np.nan])


def test_gather_clamps():
    graph = Graph()
    x, i = graph.tensor((3, 2)), graph.tensor((4, 2), "i32")
    rows = np.array([[0, 2], [-5, 9], [1, 1], [2**31 - 1, -(2**31)]], np.int32)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = np.take_along_axis(array, rows.clip(0, 2).astype(int), 0)
    np.testing.assert_array_equal(value(x._gather(i, 0), {x: array, i: rows}), expected)


@pytest.mark.parametrize("mode, reduce", [("sum", "sum"), ("prod", "prod"), ("max", "amax")])
def test_scatter_combines(mode, reduce):
    graph = Graph()
    base, index, values = graph.tensor((4, 3)), graph.tensor((5, 3), "i64"), graph.tensor((5, 3))
    rng = np.random.default_rng(0)
    feeds = {
        base: rng.normal(size=(4, 3)).astype(np.float32),
        index: rng.integers(0, 4, (5, 3)),
        values: rng.normal(size=(5, 3)).astype(np.float32),
    }
    got = value(base._scatter(index, values, 0, mode), feeds)
    arrays = [torch.from_numpy(feeds[t]) for t in (base, index, values)]
    expected = arrays[0].scatter_reduce(0, arrays[1], arrays[2], reduce)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6)


def test_scatter_set_takes_the_last_and_ignores_outside():
    graph = Graph()
    base, index, values = graph.tensor((3,)), graph.tensor((5,), "i64"), graph.tensor((5,))
    feeds = {
        base: np.float32([9, 9, 9]),
        index: np.array([1, -1, 1, 3, 2]),
        values: np.float32([1, 2, 3, 4, 5]),
    }
    np.testing.assert_array_equal(value(base._scatter(index, values, 0), feeds), [9, 3, 5])


def test_casts():
    graph = Graph()
    x = graph.tensor((6,))
    feeds = {x: np.float32([1.9, -1.9, np.nan, np.inf, -np.inf, 300])}
    np.testing.assert_array_equal(value(x.cast("u8"), feeds), [1, 0, 0, 255, 0, 255])
    np.testing.assert_array_equal(value(x.cast("i8"), feeds), [1, -1, 0, 127, -128, 127])
    np.testing.assert_array_equal(value(x.cast("i64"), feeds)[3:5], [2**63 - 1, -(2**63)])
    np.testing.assert_array_equal(value(x.cast("bool"), feeds), [True] * 6)
    y = graph.tensor((2,), "i64")
    wide = {y: np.array([2**53 + 1, 300])}
    np.testing.assert_array_equal(value(y.cast("i8"), wide), [1, 44])
    np.testing.assert_array_equal(value(y.cast("f64"), wide), [2.0**53, 300])


def test_sizes_come_from_inputs():
    graph = Graph()
    graph.dim("s", 1, 8)
    x, y = graph.tensor(("2*s + 1",)), graph.tensor(("s", "t"))
    x.output()
    y._reduce("sum", [0]).output()
    arrays = {x: np.zeros(7, np.float32), y: np.zeros((3, 2), np.float32)}
    reference.run(graph, arrays)
    for wrong, words in [
        ({x: np.zeros(6, np.float32)}, "dimension 0 is 6"),
        ({x: np.zeros(9, np.float32)}, "s = 4 .*but input 'input1' has 3"),
        ({y: np.zeros((9, 2), np.float32)}, "but input 'input1' has 9"),
    ]:
        with pytest.raises((DimError, InputError), match=words):
            reference.run(graph, {**arrays, **wrong})
    with pytest.raises(DimError, match=r"outside its bounds 1 \.\. 8"):
        reference.run(graph, {x: np.zeros(19, np.float32), y: np.zeros((9, 2), np.float32)})
    with pytest.raises(DimError, match="'u'"):
        reference.run(graph, arrays, {"u": 1})
    with pytest.raises(InputError, match="no value for"):
        reference.run(graph, {x: arrays[x]})


def test_default_values_and_feeds_by_node():
    graph = Graph()
    x = graph.tensor((2,)).set([1.0, 4.0])
    root = x.sqrt().output()
    np.testing.assert_array_equal(reference.run(graph)[root.node], [1, 2])
    again = reference.run(graph, {x.node: np.float32([9, 16])})
    np.testing.assert_array_equal(again[root.node], [3, 4])
