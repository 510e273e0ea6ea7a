"""Graphs of ours as ONNX models, run by onnxruntime: the same values."""

import numpy as np
import onnxruntime
import pytest
from onnx_models import numbers

import luminal
import luminal.onnx
from luminal import InputError, Unsupported, nn, ops


def agree(graph, feeds, tolerance=1e-5):
    proto = luminal.onnx.export(graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [tensor.node.attribute.name for tensor in graph.inputs]
    got = session.run(None, dict(zip(names, feeds)))
    expected = graph.compile(threads=1)(*feeds)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert [o.name for o in session.get_outputs()] == [*graph.output_names.values()]
    for mine, theirs in zip(got, expected):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, tolerance, tolerance)
    return proto


def test_layers_become_operators_of_their_size():
    graph = luminal.Graph()
    x = graph.tensor((2, 5, 16), name="x")
    layer = nn.TransformerEncoderLayer(graph, 16, 2, 32, batch_first=True)
    layer(x).output("y")
    for parameter in graph.parameters:
        parameter.set(numbers(*parameter.shape, seed=len(parameter.shape), low=-0.3, high=0.3))
    proto = agree(graph, [numbers(2, 5, 16)], 1e-4)
    assert sum(node.op_type == "Einsum" for node in proto.graph.node) >= 6
    assert proto.ByteSize() < 60_000  # the weights, and little else


def test_images():
    graph = luminal.Graph()
    x = graph.tensor((1, 3, 9, 8), name="x")
    w = graph.parameter((6, 3, 3, 3), name="w").set(numbers(6, 3, 3, 3, seed=1))
    y = ops.relu(ops.conv2d(x, w, stride=2, padding=1))
    ops.max_pool2d(y, 2).output("pooled")
    ops.interpolate(y, scale_factor=2.0, mode="bilinear").output("larger")
    ops.pad(x, [1, 2, 0, 1], mode="reflect").output("padded")
    ops.layer_norm(y, y.shape[1:]).output("normed")
    agree(graph, [numbers(1, 3, 9, 8)], 1e-4)


def test_movement_indices_and_integers():
    graph = luminal.Graph()
    x, i = graph.tensor((4, 6), name="x"), graph.tensor((4, 3), "i64", name="i")
    results = {
        "turned": x.T.reshape(2, 12), "cut": x[1:, ::-2], "joined": ops.cat([x, x + 1], 1),
        "taken": ops.gather(x, 1, i), "put": ops.scatter_add(x, 1, i, x[:, :3]),
        "triangle": ops.tril(x), "running": ops.cumsum(x, 1), "best": ops.argmax(x, 1),
        "sorted": ops.sort(x, 1).values, "quotient": ops.floor_divide(i - 2, 3),
        "rest": (i - 2) % 4, "shifted": (i - 3) >> 1, "either": (x > 0) | (x < -1),
        "narrow": x.cast("f16") * 2, "rolled": x.roll(2, 1), "repeated": x.repeat(2, 1),
    }  # fmt: skip
    for name, tensor in results.items():
        tensor.output(name)
    agree(graph, [numbers(4, 6), np.array([[0, 5, 2], [1, 1, 1], [3, 2, 0], [4, 5, 5]])], 1e-3)


def test_there_and_back(tmp_path):
    graph = luminal.Graph()
    x = graph.tensor((3, 4), name="x")
    ops.softmax(x @ graph.constant(numbers(4, 5)), -1).output("y")
    luminal.onnx.save(graph, tmp_path / "model.onnx")
    model = luminal.onnx.load(tmp_path / "model.onnx", threads=1)
    assert list(model.inputs) == ["x"] and list(model.outputs) == ["y"]
    a = numbers(3, 4)
    np.testing.assert_allclose(model.run([a])[0], graph.compile(threads=1)(a), 1e-5, 1e-6)


def test_what_has_no_operators():
    graph = luminal.Graph()
    ops.exp(graph.tensor(("s", 2))).output()
    with pytest.raises(Unsupported, match="run time only"):
        luminal.onnx.export(graph)
    graph = luminal.Graph()
    (graph.tensor((2,)) + graph.parameter((2,), name="w")).output()
    with pytest.raises(InputError, match="'w' has no value"):
        luminal.onnx.export(graph)
