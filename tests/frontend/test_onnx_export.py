"""Graphs of ours as ONNX models, run by onnxruntime: the same values."""

import json

import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch
import transformers
from click.testing import CliRunner
from onnx_models import numbers

import luminal
import luminal.onnx
import luminal.torch
from luminal import InputError, Unsupported, nn, ops
from luminal.cli import main as command
from luminal.models import SentenceEncoder


def agree(graph, feeds, tolerance=1e-5, more=()):
    """more: inputs of other sizes, for the same model."""
    proto = luminal.onnx.export(graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [tensor.node.attribute.name for tensor in graph.inputs]
    program, back = graph.compile(threads=1), luminal.onnx.load(proto, threads=1)
    assert [o.name for o in session.get_outputs()] == [*graph.output_names.values()]
    for given in (feeds, *more):
        expected = program(*given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        named = dict(zip(names, given))
        for got in (session.run(None, named), back.run(named)):
            for mine, theirs in zip(got, expected, strict=True):
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


INDEX = np.array([[0, 5, 2], [1, 1, 1], [3, 2, 0], [4, 5, 5]])


@pytest.mark.parametrize("rows", [4, "rows"], ids=["fixed", "sizes of run time"])
def test_movement_indices_and_integers(rows):
    graph = luminal.Graph()
    free = isinstance(rows, str)
    n = graph.dim(rows, 2, 64) if free else rows
    x, i = graph.tensor((n, 6), name="x"), graph.tensor((n, 3), "i64", name="i")
    results = {
        "turned": x.T.reshape(-1, n), "cut": x[1:, ::-2], "joined": ops.cat([x, x + 1], 0),
        "taken": ops.gather(x, 1, i), "put": ops.scatter_add(x, 1, i, x[:, :3]),
        "triangle": ops.tril(x @ x.T), "running": ops.cumsum(x, 1), "best": ops.argmax(x, 1),
        "sorted": ops.sort(x, 1).values, "quotient": ops.floor_divide(i - 2, 3),
        "rest": (i - 2) % 4, "shifted": (i - 3) >> 1, "either": (x > 0) | (x < -1),
        "narrow": x.cast("f16") * 2, "rolled": x.roll(1, 0), "repeated": x.repeat(2, 1),
        "along": ops.gather(x, 0, i % 2), "padded": ops.pad(x, [1, 0, 2, 1], value=3.0),
        "places": ops.arange(graph, n) * 2, "last": x[-1], "mean": ops.mean(x, 0),
        "kept": ops.scatter(x, 0, i % 2, x[:, :3]),
    }  # fmt: skip
    for name, tensor in results.items():
        tensor.output(name)
    more = [[numbers(2, 6), INDEX[:2]], [numbers(8, 6), np.tile(INDEX, (2, 1))]] if free else []
    agree(graph, [numbers(4, 6), INDEX], 1e-3, more)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_remainders_are_exact_and_whole_numbers_keep_their_sign(dtype):
    graph = luminal.Graph()
    x, y = graph.tensor((10,), dtype, name="x"), graph.tensor((10,), dtype, name="y")
    ops.remainder(x, y).output("rest")
    ops.fmod(x, y).output("of the dividend's sign")
    ops.floor_divide(x, y).output("quotient")
    ops.copysign(y, ops.trunc(x)).output("sign")
    numerators = [1e9, -1e9, 1e7, 123456.7, -0.5, 5, -0.0, 0.0, 1, 6]
    divisors = [3, 3, 0.1, -0.3, 10, -10, 3, 3, 1e30, 1e-3]
    agree(graph, [np.array(each, x.dtype.numpy) for each in (numerators, divisors)], 1e-6)


WHOLE = [f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", ["bool", *WHOLE])
def test_quotients_and_shifts_of_the_smallest_and_largest_integers(dtype):
    graph = luminal.Graph()
    x, y = graph.tensor((7, 1), dtype, name="x"), graph.tensor((6,), dtype, name="y")
    ops.floor_divide(x, y).output("quotient")
    ops.remainder(x, y).output("rest")
    low, high = (int(end) for end in (x.dtype.lowest, x.dtype.highest))
    if dtype != "bool":
        places = graph.tensor((4,), dtype, name="places")
        ops.bitwise_right_shift(x, places).output("right")
        ops.bitwise_left_shift(x, places).output("left")
    numbers = np.array([low, low + 1, high, 0, 1, 7 % (high + 1), high // 2], x.dtype.numpy)
    divisors = np.array([high, 1, 0, 3 % (high + 1), 7 % (high + 1), low], y.dtype.numpy)
    shifts = [np.array([0, 1, 2, 8 * x.dtype.bytes - 1], x.dtype.numpy)]
    agree(graph, [numbers[:, None], divisors, *(shifts if dtype != "bool" else [])], 0)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_floats_that_no_integer_holds_become_the_nearest(dtype):
    graph = luminal.Graph()
    x = graph.tensor((9,), dtype, name="x")
    for bits in (8, 16, 32, 64):
        for kind in (f"i{bits}", f"u{bits}"):
            x.cast(kind).output(kind)
    given = [np.nan, np.inf, -np.inf, -1.5, -0.5, 300.7, -40000, 65504, 2.0]
    agree(graph, [np.array(given, x.dtype.numpy)])


def test_the_largest_unsigned_numbers_are_the_largest():
    graph = luminal.Graph()
    x = graph.tensor((4,), "u64", name="x")
    x.amax(0).output("largest")
    x.amin(0).output("smallest")
    agree(graph, [np.array([3, 2**64 - 1, 5, 2**63], np.uint64)], 0)


def test_any_and_all_of_nothing():
    graph = luminal.Graph()
    graph.dim("n", 0, 8)
    x = graph.tensor(("n", 2), "bool", name="x")
    ops.any(x, 0).output("any")
    ops.all(x, 0).output("all")
    agree(graph, [np.zeros((0, 2), bool)], 0, [[np.array([[True, False], [True, True]])]])


def test_sizes_that_shapes_tell():
    """Of a dimension that is twice a size and one; of a size that may be 0."""
    graph = luminal.Graph()
    half, past = graph.dim("half", 1, 64), graph.dim("past", 0, 64)
    x, p = graph.tensor((2 * half + 1, 3), name="x"), graph.tensor((past, 3), name="p")
    ops.sum(x.narrow(0, 1, 2 * half).reshape(half, 2, 3), 1).output("pairs")
    ops.cat([p, x], 0).output("joined")
    proto = agree(graph, [numbers(5, 3), numbers(2, 3)], 1e-5, [[numbers(9, 3), numbers(0, 3)]])
    shapes = [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
              for i in (*proto.graph.input, *proto.graph.output)]  # fmt: skip
    assert shapes == [["2*half + 1", 3], ["past", 3], ["half", 3], ["2*half + past + 1", 3]]


def test_layers_of_any_size():
    graph = luminal.Graph()
    batch, length = graph.dim("batch", 1, 8), graph.dim("length", 1, 64)
    layer = nn.TransformerEncoderLayer(graph, 16, 2, 32, batch_first=True)
    layer(graph.tensor((batch, length, 16), name="x")).output("y")
    for parameter in graph.parameters:
        parameter.set(numbers(*parameter.shape, seed=len(parameter.shape), low=-0.3, high=0.3))
    more = [[numbers(3, 1, 16)], [numbers(1, 9, 16)]]
    proto = agree(graph, [numbers(2, 5, 16)], 1e-4, more)
    assert sum(node.op_type == "Einsum" for node in proto.graph.node) == 8
    read = {name for node in proto.graph.node for name in node.input} | {"y"}
    assert all(node.output[0] in read for node in proto.graph.node)


def test_states_are_inputs_and_outputs():
    """A cache with room, written in place by ours, given on by hand elsewhere."""
    graph = luminal.Graph()
    x, at = graph.tensor((1, 3), name="x"), graph.tensor((), "i64", name="at")
    cache = graph.tensor((6, 3), name="cache")
    new = ops.scatter(cache, 0, at.reshape(1, 1).expand(1, 3), x)
    graph.donate(cache, new)
    seen = (ops.arange(graph, 6) <= at).unsqueeze(1)
    ops.sum(ops.where(seen, new, 0.0), 0).output("total")
    proto, program = luminal.onnx.export(graph), graph.compile(threads=1)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    back = luminal.onnx.load(proto, threads=1)
    assert list(back.inputs) == ["x", "at", "cache"]
    assert list(back.outputs) == ["total", "cache.next"]
    held = other = np.zeros((6, 3), np.float32)
    program[cache] = held
    for step in range(4):
        feeds = {"x": numbers(1, 3, seed=step), "at": np.array(step)}
        program[x], program[at] = feeds.values()
        program.run()
        found, held = session.run(None, feeds | {"cache": held})
        again, other = back.run(feeds | {"cache": other})
        for mine in (again, program["total"]):
            np.testing.assert_allclose(mine, found, 1e-5, 1e-6)
        np.testing.assert_array_equal(held, other)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)).cumsum(0)).softmax(-1)


def test_the_command_exports_saved_programs(tmp_path):
    module, x = Small(), torch.from_numpy(numbers(4, 6))
    saved, path = tmp_path / "small.luminal", tmp_path / "small.onnx"
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    luminal.torch.export(module, x, saved, dynamic_shapes=sizes)
    said = CliRunner().invoke(command, ["onnx", "export", str(saved), "-o", str(path)])
    assert said.exit_code == 0, said.output
    session = onnxruntime.InferenceSession(path)
    back = luminal.onnx.load(path, threads=1)
    for rows in (4, 7):
        x = numbers(rows, 6, seed=rows)
        expected = module(torch.from_numpy(x)).detach().numpy()
        for found in (session.run(None, {"x": x})[0], back.run([x])[0]):
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    for wrong, message in ((tmp_path, "config.json"), (path, "")):
        given = ["onnx", "export", str(wrong), "-o", str(tmp_path / "none.onnx")]
        said = CliRunner().invoke(command, given)
        assert said.exit_code == 1 and said.output.startswith("luminal: "), said.output
        assert message in said.output and "\n" not in said.output.strip()


def test_the_command_exports_encoders_of_texts(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=40,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path)
    words = tokenizers.models.WordLevel({f"w{n}": n for n in range(60)}, unk_token="w0")
    raw = tokenizers.Tokenizer(words)
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "model.onnx"
    given = ["onnx", "export", str(tmp_path), "-o", str(path), "--json"]
    said = CliRunner().invoke(command, given)
    assert said.exit_code == 0, said.output
    assert json.loads(said.output)["outputs"][0]["shape"] == ["batch", 32]
    encoder = SentenceEncoder(tmp_path, threads=1)
    session = onnxruntime.InferenceSession(path)
    for texts in (["w1 w2 w3", "w4"], ["w5 w6"]):
        feeds = dict(zip(("ids", "mask"), encoder.tokenize(texts)))
        (found,) = session.run(None, feeds)
        np.testing.assert_allclose(found, encoder.run(*feeds.values()), 1e-4, 1e-5)


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
    a, b = graph.dim("a"), graph.dim("b")
    (graph.tensor((a * b, 2)).reshape(a, b, 2) * 2.0).output()
    with pytest.raises(Unsupported, match="size 'a', which no input's shape tells"):
        luminal.onnx.export(graph)
    graph = luminal.Graph()
    (graph.tensor((2,)) + graph.parameter((2,), name="w")).output()
    with pytest.raises(InputError, match="'w' has no value"):
        luminal.onnx.export(graph)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_of_any_length(name):
    graph = luminal.Graph()
    graph.dim("s", 1, 64)
    x = graph.tensor(("s", 2, 3), name="x")
    layer = getattr(nn, name)(graph, 3, 4, 2, bidirectional=True)
    for parameter in graph.parameters:
        parameter.set(numbers(*parameter.shape, seed=len(parameter.shape)))
    layer(x)[0].output("y")
    proto = agree(graph, [numbers(5, 2, 3)], more=[[numbers(1, 2, 3)]])
    assert [node.op_type for node in proto.graph.node].count("Scan") == 4


def test_loops():
    graph = luminal.Graph()
    x, w = graph.tensor((4, 3), name="x"), graph.tensor((3, 3), name="w")
    last, rows = ops.scan(lambda c, row: (c @ w + row, (c, row * 2)), ops.zeros(graph, 3), x,
                          reverse=True)  # fmt: skip
    last.output("last")
    for name, each in zip(("before", "twice"), rows):
        each.output(name)
    ops.scan(lambda c, _: (c * 2 + w[0], None), x[0], length=3)[0].output("counted")

    def outer(c, row):
        inner, more = ops.scan(lambda d, other: (d * other + row, d), c, x)
        return inner, more.sum(0)

    ops.scan(outer, w[1], x)[1].output("nested")
    begin = x.abs(), 0
    for name, most in (("while", None), ("at most", 2)):
        made = ops.while_loop(lambda c: (c[0].sum() < 90) & (c[1] < 7),
                              lambda c: (c[0] * 2 + 1, c[1] + 1), begin, most)  # fmt: skip
        made[0].output(name)
    agree(graph, [numbers(4, 3), numbers(3, 3, seed=1)], 1e-4)


def test_running_reductions():
    graph = luminal.Graph()
    x, i = graph.tensor((3, 4), name="x"), graph.tensor((3, 4), "i64", name="i")
    ops.cummax(x, 0)[0].output("max")
    ops.cummin(i, 1)[0].output("min")
    ops.cumprod(x, 1).output("prod")
    ops.logcumsumexp(x, 1).output("log")
    ops.cummax(x, 1)[1].output("where")
    agree(graph, [numbers(3, 4), np.arange(12).reshape(3, 4)[::-1] % 5])
