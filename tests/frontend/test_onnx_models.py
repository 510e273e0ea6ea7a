"""Whole ONNX models: names, free sizes, weights beside the file, control flow, faults."""

import json
import runpy
import unittest
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from onnx_models import agree, info, load, model, node, numbers, reference

import luminal.onnx
from luminal import DTypeError, InputError, ShapeError, Unsupported, WeightsError
from luminal.cli import main as command
from luminal.graph.order import reachable

INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def programs(ours):
    return len(ours.runner.start.stages)


def attention():
    """One head over (batch, seq, 8): sizes that shapes are computed from."""
    nodes = [
        ("MatMul", "x w", "qkv"), ("Split", "qkv", "q k v", {"axis": -1}), ("Shape", "x", "size"),
        ("Gather", "size zero", "batch"), ("Gather", "size one", "seq"),
        ("Unsqueeze", "batch axis", "b1"), ("Unsqueeze", "seq axis", "s1"),
        ("Concat", "b1 s1 heads", "split", {"axis": 0}), ("Reshape", "q split", "q4"),
        ("Reshape", "k split", "k4"), ("Reshape", "v split", "v4"),
        ("Transpose", "q4", "qt", {"perm": [0, 2, 1, 3]}),
        ("Transpose", "k4", "kt", {"perm": [0, 2, 3, 1]}),
        ("Transpose", "v4", "vt", {"perm": [0, 2, 1, 3]}),
        ("MatMul", "qt kt", "scores"), ("Softmax", "scores", "p"), ("MatMul", "p vt", "o"),
        ("Transpose", "o", "ot", {"perm": [0, 2, 1, 3]}), ("Concat", "b1 s1 last", "joined",
                                                           {"axis": 0}),
        ("Reshape", "ot joined", "y"),
    ]  # fmt: skip
    constants = {
        "w": numbers(8, 24), "zero": np.array(0), "one": np.array(1), "axis": np.array([0]),
        "heads": np.array([2, 4]), "last": np.array([8]),
    }  # fmt: skip
    return model(nodes, [info("x", ["batch", "seq", 8])], [info("y", ["batch", "seq", 8])],
                 constants)  # fmt: skip


def test_one_program_for_all_sizes_that_the_model_names():
    proto = attention()
    ours = load(proto, dynamic=True)
    for shape in ((1, 3, 8), (2, 5, 8), (3, 1, 8)):
        ours = agree(proto, {"x": numbers(*shape)}, ours=ours)
    assert programs(ours) == 1
    once = load(proto)
    for shape in ((1, 3, 8), (2, 5, 8), (3, 1, 8), (1, 3, 8)):
        agree(proto, {"x": numbers(*shape)}, ours=once)
    assert programs(once) == 2  # for just the first sizes, for all others
    assert [str(s) for s in ours.graph().outputs[0].shape] == ["batch", "seq", "8"]


def test_free_sizes_are_planned_for_many():
    """Whatever the run was in which they first differed; batches, and single places, as seen."""
    sizes = ["rows", "tokens", 4]
    made = model([("Relu", "x", "y")], [info("x", sizes)], [info("y", sizes)])
    for last, usual in ((3, (64,)), (1, (1, 64)), (200, (200,))):
        ours = load(made)
        for shape in ((2, 5, 4), (7, last, 4)):
            (found,) = ours.run([np.ones(shape, np.float32)])
            assert found.shape == shape
        (graph,) = [s.graph for s in ours.runner.start.stages if s.graph.space.sizes]
        assert graph.usual == {"rows": (7,), "tokens": usual}


def test_values_that_shape_results_are_sizes_once_they_differ():
    """The first values have a program, all others have one together; 1 has its own."""
    given = [info("x", ["rows", 6]), info("e", [3], INT), info("n", [1], INT)]
    nodes = [("Expand", "x e", "wide"), ("Slice", "x zero n", "cut"), ("Tile", "cut e2", "tiles"),
             ("Gather", "e ends", "e2")]  # fmt: skip
    nodes.insert(2, nodes.pop())
    proto = model(nodes, given, ["wide", "cut", "tiles"],
                  {"zero": np.array([0]), "ends": np.array([0, 2])})  # fmt: skip
    ours = load(proto)

    def run(rows, wide, cut):
        feeds = {"x": numbers(rows, 6), "e": np.array([wide, 1, 6]), "n": np.array([cut])}
        agree(proto, feeds, ours=ours)

    for case in ((4, 2, 3), (4, 5, 2), (4, 3, 4), (7, 9, 6), (8, 2, 3)):
        run(*case)
    assert programs(ours) == 3  # the first, one with other values, one with other sizes
    for case in ((4, 1, 3), (4, 2, -1), (4, 0, 9), (9, 3, 1)):
        run(*case)


def test_values_whose_names_differ_in_signs_are_sizes_of_their_own():
    for names in (("s.1", "s_1"), ("ä", "ö"), ("a_2e_", "a.")):
        nodes = [node("Expand", f"one {name}", f"y{k}") for k, name in enumerate(names)]
        proto = model(nodes, [info(name, [1], INT) for name in names], ["y0", "y1"],
                      {"one": np.float32([1])})  # fmt: skip
        ours = load(proto)
        for sizes in ((3, 4), (5, 6), (9, 7)):
            agree(proto, {n: np.array([k]) for n, k in zip(names, sizes)}, ours=ours)
        assert programs(ours) == 2


def test_sizes_whose_names_differ_in_signs_are_two():
    names = {"x": "a.b", "y": "a_b", "z": "value_n_0"}
    nodes = [*(("Shape", name, f"of_{name}") for name in names), ("Expand", "one n", "wide")]
    inputs = [*(info(name, [size]) for name, size in names.items()), info("n", [1], INT)]
    proto = model(nodes, inputs, ["of_x", "of_y", "of_z", "wide"], {"one": np.float32([1])})
    ours = load(proto)
    for *sizes, n in ((3, 4, 5, 6), (5, 6, 7, 8), (9, 7, 4, 3)):
        arrays = {name: np.ones(size, np.float32) for name, size in zip(names, sizes)}
        agree(proto, {**arrays, "n": np.array([n])}, ours=ours)


def test_a_model_is_a_graph_with_names():
    graph = load(attention()).graph()
    program = graph.compile(threads=1)
    assert program.inputs == ("x",) and program.outputs == ("y",)
    assert set(program.sizes) == {"batch", "seq"}
    x = numbers(2, 4, 8)
    np.testing.assert_allclose(program(x), reference(attention(), {"x": x})[0], 1e-5, 1e-5)


def test_weights_beside_the_file(tmp_path):
    proto, x = attention(), numbers(1, 2, 8)
    expected, path = reference(proto, {"x": x})[0], tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_allclose(load(path).run([x])[0], expected, 1e-5, 1e-5)
    whole = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(whole[:100])
    with pytest.raises(WeightsError, match=r"needs 768 bytes.*truncated"):
        load(path).run([x])
    (tmp_path / "w.bin").unlink()
    with pytest.raises(WeightsError, match="not beside the model"):
        load(path).run([x])


@pytest.mark.parametrize("place", ["../w.bin", "/etc/hostname", "link/w.bin", ""])
def test_weights_outside_the_folder_are_refused(place, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(768))
    (folder / "link").symlink_to(tmp_path)
    proto = attention()
    held = proto.graph.initializer[0]
    held.ClearField("raw_data")
    held.data_location = TensorProto.EXTERNAL
    held.external_data.add(key="location", value=place)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(WeightsError, match="outside the folder"):
        load(folder / "model.onnx").run([numbers(1, 2, 8)])
    with pytest.raises(WeightsError, match="without a path"):
        load(proto).run([numbers(1, 2, 8)])


@pytest.mark.parametrize("beside", [True, False])
def test_weights_of_negative_sizes_are_refused(beside, tmp_path):
    proto = model([("Add", "x w", "y")], [info("x", [2])], ["y"], {"w": numbers(2)})
    held = proto.graph.initializer[0]
    held.dims[:] = [-1]
    if beside:
        held.ClearField("raw_data")
        held.data_location = TensorProto.EXTERNAL
        held.external_data.add(key="location", value="w.bin")
        (tmp_path / "w.bin").write_bytes(bytes(8))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(WeightsError, match=r"'w' of the model is damaged: dimensions \[-1\]"):
        load(tmp_path / "model.onnx").run([numbers(2)])


# ---- control flow


def body(nodes, inputs, outputs, constants=None):
    return model(nodes, inputs, outputs, constants).graph


def test_a_branch_is_chosen_by_value_or_by_size():
    branches = {
        "then_branch": body([("Add", "x two", "t")], [], [info("t", None)]),
        "else_branch": body([("ReduceSum", "x", "e", {"keepdims": 0})], [], [info("e", None)]),
    }
    nodes = [
        ("Size", "x", "n"), ("Less", "n four", "few"), ("If", "few", "y", branches),
        ("If", "wanted", "z", branches), ("ReduceMax", "x", "top", {"keepdims": 0}),
        ("Greater", "top two", "large"), ("If", "large", "w", branches),
    ]  # fmt: skip
    constants = {"two": np.float32(2), "four": np.array(4)}
    proto = model(nodes, [info("x", ["n"]), info("wanted", [], BOOL)], ["y", "z", "w"], constants)
    ours = None
    for count, wanted, scale in ((3, True, 1), (5, False, 5), (3, False, 5), (6, True, 1)):
        feeds = {"x": numbers(count) * np.float32(scale), "wanted": np.array(wanted)}
        ours = agree(proto, feeds, ours=ours)


def doubling(stop=None):
    """s, s -> s + x until a condition, all of it collected."""
    nodes = [("Add", "s x", "s2"), ("Identity", "s2", "seen")]
    if stop:
        nodes += [("ReduceSum", "s2", "sum", {"keepdims": 0}), ("Less", "sum stop", "on")]
    else:
        nodes += [("Identity", "go", "on")]
    inputs = [info("i", [], INT), info("go", [], BOOL), info("s", None)]
    outputs = [info("on", [], BOOL), info("s2", None), info("seen", None)]
    return body(nodes, inputs, outputs, {"stop": np.float32(stop)} if stop else None)


@pytest.mark.parametrize("stop", [None, 10.0])
def test_a_loop_of_known_and_of_unknown_length(stop):
    nodes = [("Loop", "n go0 x", "last all", {"body": doubling(stop)})]
    proto = model(nodes, [info("x", [3]), info("n", [], INT)], ["last", "all"],
                  {"go0": np.array(True)})  # fmt: skip
    ours = None
    for n in (4, 2):
        feeds = {"x": np.array([1, 2, 0.5], np.float32), "n": np.array(n)}
        ours = agree(proto, feeds, ours=ours)


def rounds(nodes, *collected):
    """s as it is, and what each round collects."""
    inputs = [info("i", [], INT), info("go", [], BOOL), info("s", [3])]
    return body([("Identity", "go", "on"), ("Identity", "s", "s2"), *nodes], inputs,
                [info("on", [], BOOL), info("s2", [3]), *collected])  # fmt: skip


@pytest.mark.parametrize("trips", ["n", "size", "minus"])
def test_a_loop_of_no_rounds_collects_no_rows_of_their_shape(trips):
    cast, places = ("Cast", "s", "whole", {"to": INT}), ("NonZero", "s", "places")
    whole, ragged = info("whole", [3], INT), info("places", [1, None], INT)
    by_host = trips == "n"
    inner = rounds([cast, places], whole, ragged) if by_host else rounds([cast], whole)
    last = ["last", "whole", "places"] if by_host else ["last", "whole"]
    loop = helper.make_node("Loop", [trips, "go0", "s0"], last, body=inner)
    given = [info("n", [], INT), info("x", ["rows"]), info("s0", [3])]
    proto = model([("Size", "x", "size"), loop], given, last,
                  {"go0": np.array(True), "minus": np.array(-2)})  # fmt: skip
    ours = load(proto)
    for count in (0, 2, 0):
        feeds = {"n": np.array(count), "x": numbers(count), "s0": np.ones(3, np.float32)}
        ours = agree(proto, feeds, ours=ours)


@pytest.mark.parametrize("steps", [4, "steps"])
def test_a_scan_forwards_and_backwards(steps):
    inner = body([("Add", "s x", "s2"), ("Mul", "s2 x", "y")], [info("s", [2]), info("x", [2])],
                 [info("s2", [2]), info("y", [2])])  # fmt: skip
    attributes = {"body": inner, "num_scan_inputs": 1}
    back = {**attributes, "scan_input_directions": [1], "scan_output_directions": [1]}
    nodes = [("Scan", "s0 x", "a b", attributes), ("Scan", "s0 x", "c d", back)]
    proto = model(nodes, [info("s0", [2]), info("x", [steps, 2])], ["a", "b", "c", "d"])
    agree(proto, {"s0": numbers(2), "x": numbers(4, 2)})


def test_sequences_are_lists():
    nodes = [
        ("SplitToSequence", "x", "parts", {"axis": 0, "keepdims": 1}),
        ("SequenceAt", "parts minus", "last"), ("SequenceInsert", "parts last zero", "more"),
        ("SequenceErase", "more minus", "fewer"), ("SequenceLength", "fewer", "n"),
        ("ConcatFromSequence", "fewer", "y", {"axis": 0}),
    ]  # fmt: skip
    proto = model(nodes, [info("x", [3, 2])], ["y", "n", "last"],
                  {"minus": np.array(-1), "zero": np.array(0)})  # fmt: skip
    agree(proto, {"x": numbers(3, 2)})


def test_functions_of_the_model_and_of_the_standard():
    scaled = helper.make_function(
        "own", "scaled", ["x"], ["y"],
        [helper.make_node("Constant", [], ["f"]), node("Mul", "x f", "y")],
        [helper.make_opsetid("", 17)], ["factor"],
    )  # fmt: skip
    scaled.node[0].attribute.add(
        name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT
    )
    nodes = [
        node("scaled", "x", "a", {"factor": 2.5}, "own"),
        node("scaled", "a", "b", {"factor": 0.5}, "own"),
        node("SoftmaxCrossEntropyLoss", "b labels", "loss log_p"),
    ]  # fmt: skip
    proto = model(nodes, [info("x", [3, 5])], ["b", "loss", "log_p"],
                  {"labels": np.array([1, 0, 4])}, domains=["own"], functions=[scaled])  # fmt: skip
    agree(proto, {"x": numbers(3, 5)})


@pytest.mark.parametrize("callee", ["f", "g"])
def test_functions_that_call_each_other_in_a_circle(callee):
    made = []
    for name, called in (("f", callee), ("g", "f")):
        inner = body([node("Neg", "x", "z")], [], [info("z", None)])
        other = body([node(called, "x", "z", domain="own")], [], [info("z", None)])
        nodes = [node("ReduceMax", "x", "top", {"keepdims": 0}),
                 node("Cast", "top", "c", {"to": BOOL}),
                 node("If", "c", "y", {"then_branch": inner, "else_branch": other})]  # fmt: skip
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        made.append(helper.make_function("own", name, ["x"], ["y"], nodes, imports))
    proto = model([node("f", "x", "y", domain="own")], [info("x", [2])], ["y"], domains=["own"],
                  functions=made)  # fmt: skip
    with pytest.raises(WeightsError, match=r"in a circle: own\.[fg], own\.[fg]"):
        load(proto)


def test_weights_that_are_reordered_are_joined_once():
    """As an LSTM's gates are cut and joined by an exporter: one parameter, no choices in a run."""
    gates = [("Slice", "w from to", "i"), ("Slice", "w to end", "rest"),
             ("Concat", "rest i", "own", {"axis": 0}), ("MatMul", "x own", "y")]  # fmt: skip
    constants = {"w": numbers(64, 32), "from": np.array([0]), "to": np.array([16]),
                 "end": np.array([2**31 - 1])}  # fmt: skip
    proto = model(gates, [info("x", [3, 64])], ["y"], constants)
    ours = agree(proto, {"x": numbers(3, 64)})
    nodes = reachable([output.node for output in ours.graph().outputs])
    assert not [n for n in nodes if n.op in ("select", "less")]


# ---- faults


def test_what_is_no_model(tmp_path):
    for content in (b"", b"no model at all", attention().SerializeToString()[:-40]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(WeightsError, match="no ONNX model, or a damaged one"):
            luminal.onnx.load(tmp_path / "bad.onnx")
    with pytest.raises(FileNotFoundError):
        luminal.onnx.load(tmp_path / "none.onnx")


def test_an_unknown_operator_is_named_with_its_domain_version_and_node():
    proto = model([node("Fresh", "x", "y", domain="some.where")], [info("x", [2])], ["y"],
                  domains=["some.where"])  # fmt: skip
    proto.graph.node[0].name = "layer/3"
    with pytest.raises(NotImplementedError, match=r"some\.where\.Fresh \(opset 1, node 'layer/3'"):
        load(proto)


def test_an_error_names_the_operator_where_it_arose():
    proto = model([("Relu", "x", "a"), ("MatMul", "a w", "y")], [info("x", [2, 3])], ["y"],
                  {"w": numbers(4, 5)})  # fmt: skip
    with pytest.raises(ShapeError, match=r"MatMul \(opset 17, node 1\): .*inner sizes 3 and 4"):
        load(proto).run([numbers(2, 3)])
    proto = model([("Relu", "nobody", "y")], [info("x", [2])], ["y"])
    with pytest.raises(WeightsError, match="reads 'nobody', which nothing makes"):
        load(proto).run([numbers(2)])


def test_what_has_a_value_may_be_given_another():
    proto = model([("Add", "x w", "s"), ("Reshape", "s size", "y")],
                  [info("x", [2]), info("w", [2]), info("size", [2], INT)], ["y"],
                  {"w": numbers(2), "size": np.array([1, 2])})  # fmt: skip
    x, w, size = numbers(2), numbers(2) + 1, np.array([2, 1])
    ours, others = load(proto), [{}, {"w": w}, {"size": size}, {"w": w, "size": size}]
    for given in (*others, *others):
        agree(proto, {"x": x, **given}, ours=ours)


def test_results_are_the_caller_s_own():
    """Inputs and constants among them, the same value twice, what the host passes on."""
    nodes = [("Relu", "x", "a"), ("Identity", "a", "b"), ("Identity", "x", "c"),
             ("SplitToSequence", "x", "d", {"axis": 0}),
             ("BitCast", "x", "e", {"to": INT})]  # fmt: skip
    given = [info("x", [3], TensorProto.DOUBLE), info("parts", [2])]
    outputs = ["x", "a", "b", "c", "d", "e", "w", "parts"]
    proto = model(nodes, given, outputs, {"w": numbers(2)}, opset=26)
    proto.graph.input[1].type.CopyFrom(helper.make_sequence_type_proto(proto.graph.input[1].type))
    ours, x, parts = load(proto), np.float64([1, 2, 3]), [numbers(2)]
    results = [ours.run([x, parts]) for _ in range(2)]
    arrays = [part for value in (*results[0], *results[1])
              for part in (value if isinstance(value, list) else [value])]  # fmt: skip
    for n, array in enumerate(arrays):
        others = [*arrays[:n], *arrays[n + 1 :], x, *parts]
        assert not any(np.shares_memory(array, other) for other in others), n
        array[...] = 0
    assert x.tolist() == [1, 2, 3] and parts[0].any()
    assert ours.run([x, parts])[6].any()


@pytest.mark.parametrize(
    ("nodes", "outputs", "says"),
    [
        ([("Relu", "x", "y"), ("Neg", "x", "y")], ["y"], "'y' is made twice"),
        ([("Split", "x", "y y", {"num_outputs": 2})], ["y"], "'y' is made twice"),
        ([("Relu", "x", "x")], ["x"], "'x' is made twice"),
        ([("Relu", "w", "w"), ("Add", "x w", "y")], ["y"], "'w' is made twice"),
        ([("Relu", "x", "y")], ["y", "y"], "'y' is two outputs"),
    ],
)
def test_a_name_stands_for_one_value(nodes, outputs, says):
    proto = model(nodes, [info("x", [2])], outputs, {"w": numbers(2)})
    with pytest.raises(WeightsError, match=says):
        load(proto)


def test_a_chain_of_thousands():
    for what in ("Add", "Relu"):
        nodes = [(what, f"v{n} w" if what == "Add" else f"v{n}", f"v{n + 1}") for n in range(5000)]
        ours = load(model(nodes, [info("v0", [2])], ["v5000"], {"w": np.float32([1, -1])}))
        assert ours(np.float32([1, 2])).tolist() == [[1, 2], [5001, -4998]][what == "Add"]


@pytest.mark.parametrize(
    ("feeds", "error", "says"),
    [
        ({}, InputError, r"input 'x' is missing; the inputs are x: float32 \(batch, seq, 8\)"),
        ({"x": 0, "z": 0}, InputError, "no input 'z'"),
        ([1, 2], InputError, "2 inputs given"),
        ({"x": np.zeros((1, 2, 8))}, InputError, r"is float32, not float64.*astype"),
        ({"x": numbers(1, 2, 7)}, ShapeError, r"does not take an array of shape \(1, 2, 7\)"),
        ({"x": numbers(2, 8)}, ShapeError, r"does not take an array of shape \(2, 8\)"),
    ],
)
def test_wrong_inputs(feeds, error, says):
    with pytest.raises(error, match=says):
        load(attention()).run(feeds)
    with pytest.raises(InputError, match="no output 'z'; the outputs are y"):
        load(attention()).run([numbers(1, 2, 8)], ["z"])


def test_what_is_asked_for_and_not_there():
    with pytest.raises(Unsupported, match="device 'CUDA'"):
        luminal.onnx.prepare(attention(), device="CUDA")
    late = model([("Relu", "x", "y")], [info("x", [2])], ["y"], opset=99)
    with pytest.raises(Unsupported, match="opset 99"):
        load(late)
    with pytest.raises(DTypeError):
        complex_numbers = model([("Identity", "x", "y")], [onnx.ValueInfoProto(name="x")], ["y"])
        load(complex_numbers).run([np.zeros(2, np.complex64)])
    several = model([("NonZero", "x", "y")], [info("x", [2])], ["y"])
    with pytest.raises(Unsupported, match="no single graph: NonZero"):
        load(several).graph()


def test_the_command_line(tmp_path):
    path, x = tmp_path / "model.onnx", numbers(2, 3, 8)
    onnx.save(attention(), path)
    np.save(tmp_path / "x.npy", x)
    said = CliRunner().invoke(command, ["onnx", "info", str(path)])
    assert "x: float32 (batch, seq, 8)" in said.output and "one program" in said.output
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "y.npz")]
    said = CliRunner().invoke(command, ["onnx", "run", str(path), "--threads", "1", *given])
    assert "y: float32 (2, 3, 8)" in said.output
    expected = reference(attention(), {"x": x})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, 1e-5, 1e-5)
    arguments = ["--size", "seq=4", "--rounds", "3", "--threads", "1", "--peers", "onnxruntime"]
    said = CliRunner().invoke(command, ["onnx", "bench", str(path), *arguments])
    assert "times as fast as onnxruntime" in said.output, said.output
    asked = (["info"], ["run", *given], ["bench", *arguments])
    told = [CliRunner().invoke(command, ["onnx", verb, str(path), *more, "--json"]).output
            for verb, *more in asked]  # fmt: skip
    facts, outputs, times = map(json.loads, told)
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", "seq", 8]}]
    assert facts["several"] is None and outputs["y"]["shape"] == [2, 3, 8]
    assert outputs["y"]["max"] == pytest.approx(expected.max(), rel=1e-4)
    assert times["difference"]["onnxruntime"] < 1e-4 and not times["faults"]
    assert set(times["median_seconds"]) == {"luminal", "onnxruntime"}
    said = CliRunner().invoke(command, ["onnx", "bench", str(path), "--peers", "nobody"])
    assert said.exit_code == 1 and "no peer 'nobody'" in said.output
    for wrong in (["--size", "none=3"], ["--input", "x=nothing.npy"], ["--size", "seq=x"]):
        said = CliRunner().invoke(command, ["onnx", "run", str(path), *wrong])
        assert said.exit_code == 1 and said.output.startswith("luminal: "), said.output


def test_a_loop_that_only_its_condition_ends_is_one_program():
    ends = body(
        [("Add", "s x", "s2"), ("ReduceSum", "s2", "sum", {"keepdims": 0}),
         ("Less", "sum stop", "on")],
        [info("i", [], INT), info("go", [], BOOL), info("s", [3])],
        [info("on", [], BOOL), info("s2", [3])], {"stop": np.float32(10)},
    )  # fmt: skip
    proto = model([("Loop", " go0 x", "last", {"body": ends})], [info("x", [3])], ["last"],
                  {"go0": np.array(True)})  # fmt: skip
    proto.graph.node[0].ClearField("input")
    proto.graph.node[0].input.extend(["", "go0", "x"])
    ours = agree(proto, {"x": np.array([1, 2, 0.5], np.float32)})
    assert ours.graph().nodes and not ours.runner.start.stages[0].hosts


def test_the_page_lists_the_operators_as_they_are():
    root = Path(__file__).parents[2]
    script = runpy.run_path(str(root / "scripts" / "onnx_operators.py"))
    text = (root / "docs" / "onnx.md").read_text()
    assert script["page"](text) == text, "run scripts/onnx_operators.py"


def test_a_loop_whose_condition_counts_is_one_program():
    """As TensorFlow's loops come out: what is collected is as long as a counter says."""
    counted = body(
        [("Add", "n one", "n2"), ("Less", "n2 five", "more"), ("And", "more go", "on"),
         ("Mul", "s x", "s2"), ("Add", "s2 x", "seen")],
        [info("i", [], INT), info("go", [], BOOL), info("n", [], INT), info("s", [3])],
        [info("on", [], BOOL), info("n2", [], INT), info("s2", [3]), info("seen", [3])],
        {"one": np.array(1), "five": np.array(5)},
    )  # fmt: skip
    nodes = [("Loop", "trips go0 zero x", "n last all", {"body": counted})]
    constants = {"go0": np.array(True), "zero": np.array(0), "trips": np.array(2**31 - 1)}
    proto = model(nodes, [info("x", [3])], ["n", "last", "all"], constants)
    ours = agree(proto, {"x": np.array([1, 2, 0.5], np.float32)})
    assert not ours.runner.start.stages[0].hosts


def test_a_backend_as_onnx_asks_for_it():
    import onnx.backend.test

    tests = onnx.backend.test.BackendTest(luminal.onnx, __name__)
    names = "relu|lstm_defaults|split_equal_parts_1d_opset13|bitcast_scalar_float32_to_int32"
    tests.include(rf"test_({names})_cpu")
    result = unittest.TestResult()
    for cases in tests.test_cases.values():
        for name in (name for name in dir(cases) if name.startswith("test_")):
            cases(name).run(result)
    assert not result.failures and not result.errors
    assert result.testsRun - len(result.skipped) == 4
    assert not luminal.onnx.supports_device("CUDA:0")


def test_one_operator_runs_alone():
    x = numbers(2, 3)
    (y,) = luminal.onnx.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [x])
    np.testing.assert_array_equal(y, x + x)
    halves = helper.make_node("Split", ["x"], ["a", "b"], axis=0)
    a, b = luminal.onnx.run_node(halves, [x], opset_version=11)
    np.testing.assert_array_equal(np.concatenate([a, b]), x)
    unknown = helper.make_model(
        helper.make_graph([helper.make_node("Nothing", ["x"], ["y"])], "g", [info("x", [2])],
                          [info("y", [2])])
    )  # fmt: skip
    assert not luminal.onnx.is_compatible(unknown)
