"""Families of ONNX's operators against onnxruntime, each family one model."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import agree, info, load, model, node, numbers

import luminal

X = info("x", [2, 3, 8, 8])
IMAGE = numbers(2, 3, 8, 8)
INT = TensorProto.INT64

FAMILIES = {
    "functions": [
        ("Abs", "x", "a"), ("Exp", "x", "b"), ("Erf", "x", "c"), ("Floor", "x", "d"),
        ("Round", "x", "e"), ("Sign", "x", "f"), ("Softplus", "x", "g"), ("Tanh", "x", "h"),
        ("LeakyRelu", "x", "i", {"alpha": 0.3}), ("Elu", "x", "j"), ("Selu", "x", "k"),
        ("HardSigmoid", "x", "l"), ("Celu", "x", "m"), ("ThresholdedRelu", "x", "n"),
        ("Mod", "x y", "o", {"fmod": 1}), ("Max", "x y", "p"), ("Pow", "b x", "q"),
        ("PRelu", "x y", "r"), ("Clip", "x lo", "s"), ("HardSwish", "x", "t"),
    ],
    "reductions": [
        ("ReduceSum", "x axes", "a"), ("ReduceMean", "x", "b", {"axes": [1], "keepdims": 0}),
        ("ReduceL2", "x", "c", {"axes": [-1]}), ("ReduceLogSumExp", "x", "d", {"axes": [0, 2]}),
        ("ArgMax", "x", "e", {"axis": 2}), ("ArgMin", "x", "f", {"axis": 1, "keepdims": 0}),
        ("Softmax", "x", "g", {"axis": 1}), ("LogSoftmax", "x", "h"),
        ("CumSum", "x one", "i", {"exclusive": 1, "reverse": 1}), ("TopK", "x k", "j k2"),
        ("ReduceMax", "x", "l"), ("ReduceProd", "x", "m", {"axes": [3]}),
    ],
    "movement": [
        ("Transpose", "x", "a", {"perm": [0, 2, 3, 1]}), ("Slice", "x s ends axes st", "b"),
        ("Concat", "x x", "c", {"axis": 2}), ("Pad", "x p", "d", {"mode": "reflect"}),
        ("Pad", "x p v", "e"), ("Tile", "x t", "f"), ("Split", "x sp", "g h", {"axis": 3}),
        ("DepthToSpace", "a", "i", {"blocksize": 2}), ("SpaceToDepth", "x", "j", {"blocksize": 2}),
        ("Gather", "x idx", "k", {"axis": 2}), ("Flatten", "x", "l", {"axis": 2}),
        ("Reshape", "x shape", "m"), ("Unsqueeze", "x one", "n"), ("Expand", "n big", "o"),
        ("Trilu", "x", "q"), ("GatherND", "x nd", "r"), ("ScatterND", "x nd upd", "s2"),
    ],
    "windows": [
        ("Conv", "x w b", "a", {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ("Conv", "x w", "c", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        ("ConvTranspose", "x wt", "d", {"strides": [2, 2], "pads": [1, 0, 0, 1],
                                        "output_padding": [1, 0]}),
        ("ConvTranspose", "x wt", "d2", {"strides": [3, 2], "output_shape": [26, 18]}),
        ("MaxPool", "x", "e f", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", "x", "g", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1],
                                   "count_include_pad": 0, "strides": [2, 2]}),
        ("LpPool", "x", "h", {"kernel_shape": [2, 2]}), ("GlobalAveragePool", "x", "i"),
        ("GlobalMaxPool", "x", "j"), ("LRN", "x", "k", {"size": 3}),
        ("InstanceNormalization", "x c3 c3", "l"),
        ("BatchNormalization", "x c3 c3 c3 p3", "m"), ("LayerNormalization", "x c8", "n"),
    ],
    "sizes": [
        ("Resize", "x  up", "a", {"mode": "linear"}),
        ("Resize", "x  up", "b", {"mode": "nearest", "nearest_mode": "floor",
                                  "coordinate_transformation_mode": "asymmetric"}),
        ("Resize", "x  down", "c", {"mode": "cubic", "cubic_coeff_a": -0.5}),
        ("Resize", "x  none", "c2", {"mode": "linear"}), ("Resize", "x  none", "c3"),
        ("Resize", "x   to", "d", {"mode": "linear",
                                   "coordinate_transformation_mode": "align_corners"}),
        ("Shape", "x", "e"), ("Size", "x", "f"), ("ConstantOfShape", "e", "g"),
        ("OneHot", "idx k two", "h"), ("Range", "zero eight st1", "i"), ("EyeLike", "m", "j"),
    ],
}  # fmt: skip
CONSTANTS = {
    "y": numbers(3, 1, 8, seed=1, low=0.5), "lo": np.float32(-0.5), "axes": np.array([1, 3]),
    "one": np.array([1]), "k": np.array([3]), "s": np.array([2, -1]), "ends": np.array([0, -9]),
    "st": np.array([-1, -3]), "p": np.array([0, 0, 1, 2, 0, 0, 2, 1]), "v": np.float32(1.5),
    "t": np.array([1, 2, 1, 1]), "sp": np.array([3, 5]), "idx": np.array([[1, -2], [0, 3]]),
    "shape": np.array([0, -1, 4]), "big": np.array([2, 2, 3, 8, 8]),
    "nd": np.array([[0, 1], [1, 2]]), "upd": numbers(2, 8, 8, seed=2),
    "w": numbers(4, 3, 3, 3, seed=3), "b": numbers(4, seed=4), "wt": numbers(3, 2, 3, 3, seed=5),
    "c3": numbers(3, seed=6), "p3": numbers(3, seed=7, low=0.5), "c8": numbers(8, seed=8),
    "up": np.array([1, 1, 2, 3], np.float32), "down": np.array([1, 1, 0.5, 0.75], np.float32),
    "none": np.array([1, 1, 0.1, 2], np.float32),
    "to": np.array([2, 3, 5, 13]), "two": np.array([0, 1], np.float32), "zero": np.array(0),
    "eight": np.array(8), "st1": np.array(3), "m": np.zeros((3, 4), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_onnxruntime_s(family):
    nodes = []
    for operator, inputs, outputs, *rest in FAMILIES[family]:
        made = helper.make_node(operator, inputs.split(" "), outputs.split(), **(*rest, {})[0])
        nodes.append(made)
    outputs = [name for made in nodes for name in made.output]
    used = {name for made in nodes for name in made.input} - set(outputs)
    constants = {name: CONSTANTS[name] for name in used - {"x", ""}}
    # names of constants and results overlap between families, never within one
    agree(model(nodes, [X], outputs, constants), {"x": IMAGE}, 2e-5)


@pytest.mark.parametrize("steps", [2, "steps"])
def test_recurrent_layers_with_lengths_and_both_directions(steps):
    names = "x w{0} r{0} b{0} n h0"
    nodes, constants = [], {"n": np.array([2, 1], np.int32), "h0": numbers(2, 2, 2, seed=9)}
    for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        constants[f"w{operator}"] = numbers(2, gates * 2, 3, seed=gates)
        constants[f"r{operator}"] = numbers(2, gates * 2, 2, seed=gates + 1)
        constants[f"b{operator}"] = numbers(2, gates * 4, seed=gates + 2)
        attributes = {"hidden_size": 2, "direction": "bidirectional"}
        nodes.append(node(operator, names.format(operator), f"y{operator} h{operator}", attributes))
    outputs = [name for made in nodes for name in made.output]
    proto = model(nodes, [info("x", [steps, 2, 3])], outputs, constants)
    ours = load(proto, dynamic=True)
    for number in (2,) if steps == 2 else (5, 7):
        agree(proto, {"x": numbers(number, 2, 3)}, ours=ours)


def test_integers_bits_and_casts():
    nodes = [
        ("Div", "x y", "a"), ("Mod", "x y", "b"), ("BitShift", "u v", "c", {"direction": "LEFT"}),
        ("Cast", "x", "d", {"to": TensorProto.INT8}), ("Cast", "f", "e", {"to": INT}),
        ("Cast", "f", "g", {"to": TensorProto.FLOAT16}), ("Greater", "x y", "h"),
        ("Where", "h x y", "i"), ("Xor", "h h", "j"), ("Not", "h", "k"), ("IsInf", "f", "l"),
    ]  # fmt: skip
    x, y = np.array([7, -7, 300, -128]), np.array([2, 2, -7, 5])
    feeds = {"x": x, "y": y, "f": np.array([1.7, -1.7, np.inf, 2.5], np.float32)}
    constants = {"u": np.array([1, 3, 255], np.uint8), "v": np.array([1, 7, 3], np.uint8)}
    inputs = [info("x", [4], INT), info("y", [4], INT), info("f", [4])]
    outputs = "a b c d g h i j k l".split()
    kept = [n for n in nodes if n[2] != "e"]
    agree(model(kept, inputs, outputs, constants), feeds)


QUANTISED = {
    "QuantizeLinear": [("QuantizeLinear", "x s z", "q"), ("DequantizeLinear", "q s z", "y"),
                       ("QuantizeLinear", "x s3 z3", "q3", {"axis": 1}),
                       ("DequantizeLinear", "q3 s3 z3", "y3", {"axis": 1})],
    "QLinearConv": [("QuantizeLinear", "x s z", "q"),
                    ("QLinearConv", "q s z wq s4 z4 s z bi", "y", {"pads": [1, 1, 1, 1]})],
    "MatMulInteger": [("DynamicQuantizeLinear", "x", "q qs qz"),
                      ("MatMulInteger", "q mq qz", "y"), ("ConvInteger", "q wu qz", "z2")],
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised(name):
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.02), "z": np.uint8(120), "s3": np.array([0.01, 0.02, 0.05], np.float32),
        "z3": np.array([0, 3, -7], np.int8), "wq": rng.integers(-63, 64, (4, 3, 3, 3), np.int8),
        "s4": numbers(4, low=0.001, high=0.01), "z4": np.zeros(4, np.int8),
        "bi": rng.integers(-500, 500, 4).astype(np.int32),
        "mq": rng.integers(0, 255, (8, 5), np.uint8),
        "wu": rng.integers(0, 255, (4, 3, 3, 3), np.uint8),
    }  # fmt: skip
    nodes = QUANTISED[name]
    outputs = [o for n in nodes for o in n[2].split()]
    used = {i for n in nodes for i in n[1].split()}
    proto = model(nodes, [X], outputs, {k: v for k, v in constants.items() if k in used})
    agree(proto, {"x": IMAGE})


def test_sums_of_whole_bytes_are_exact():
    """Weights of 8 bits, which onnxruntime saturates without VNNI, beside sums of whole numbers."""
    weight = np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3), np.int8)
    constants = {"s": np.float32(0.02), "z": np.uint8(120), "w": weight, "one": np.float32(2**-7),
                 "zero": np.int8(0)}  # fmt: skip
    nodes = [("QuantizeLinear", "x s z", "q"),
             ("QLinearConv", "q s z w one zero s z", "y", {"pads": [1, 1, 1, 1]})]  # fmt: skip
    q, y = load(model(nodes, [X], ["q", "y"], constants)).run({"x": IMAGE})
    padded = np.pad(q.astype(np.int64) - 120, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.int64))
    np.testing.assert_array_equal(y, np.clip(np.rint(sums / 128) + 120, 0, 255))


def test_narrow_types_are_rounded_and_packed():
    kinds = [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2]
    nodes, outputs = [], []
    for kind in kinds:
        nodes += [("Cast", "x", f"n{kind}", {"to": kind}),
                  ("Cast", f"n{kind}", f"y{kind}", {"to": TensorProto.FLOAT})]  # fmt: skip
        outputs.append(f"y{kind}")
    values = np.concatenate([numbers(200, low=-500, high=500), numbers(50, low=-0.02, high=0.02)])
    agree(model(nodes, [info("x", [250])], outputs, opset=19), {"x": values}, 0)


def test_what_no_fixed_shape_holds_runs_between_programs():
    nodes = [
        ("NonZero", "x", "places"), ("Transpose", "places", "rows"),
        ("GatherND", "x rows", "found"),
        ("ReduceSum", "found", "total", {"keepdims": 0}), ("Unique", "found", "values"),
        ("Compress", "x mask", "kept", {"axis": 1}),
    ]  # fmt: skip
    proto = model(nodes, [info("x", [3, 4])], "places found total values kept".split(),
                  {"mask": np.array([True, False, True])})  # fmt: skip
    ours = None
    for seed in range(3):
        x = numbers(3, 4, seed=seed)
        ours = agree(proto, {"x": x * (x > 0)}, ours=ours)


def test_text_is_handled_by_the_host():
    nodes = [node("StringNormalizer", "x", "y", {"case_change_action": "UPPER"})]
    proto = model(nodes, [info("x", [2], TensorProto.STRING)], [info("y", [2], TensorProto.STRING)])
    assert load(proto).run([np.array(["Ab", "c"], object)])[0].tolist() == ["AB", "C"]


def test_text_of_the_model_is_read_and_given() -> None:
    text = TensorProto.STRING
    proto = model([("StringConcat", "x w", "y")], [info("x", [2], text)],
                  [info("y", [2], text), info("w", [2], text)],
                  {"w": np.array(["c", "d"], object)}, opset=20)  # fmt: skip
    ours = load(proto)
    for _ in range(2):
        y, w = ours.run([np.array(["a", "b"], object)])
        assert y.tolist() == ["ac", "bd"] and w.tolist() == ["c", "d"]
        w[:] = "e"


DAMAGED = {
    "stride": ("Conv", "x w", {"strides": [0, 0]}),
    "short": ("Conv", "x w", {"strides": [1]}),
    "dilation": ("ConvTranspose", "x w", {"dilations": [-1, -1]}),
    "pads": ("Conv", "x w", {"pads": [1, 1]}),
    "auto_pad": ("Conv", "x w", {"auto_pad": "SAME"}),
    "kernel": ("AveragePool", "x", {"kernel_shape": [0, 0]}),
    "kernel of three": ("MaxPool", "x", {"kernel_shape": [2, 2, 2]}),
    "no kernel": ("MaxPool", "x", {"kernel_shape": [-9, -9, -9, -9]}),
    "axes": ("Unsqueeze", "x axes", {}),
    "repeats": ("Tile", "x axes", {}),
    "too many": ("Split", "x", {"num_outputs": 1 << 40}),
    "negative": ("ConstantOfShape", "negative", {}),
    "no step": ("Range", "zero one zero", {}),
    "widths": ("Pad", "x axes", {}),
    "axis": ("OneHot", "axes three pair", {"axis": 9}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_attributes_that_mean_nothing_are_refused(name):
    operator, inputs, attributes = DAMAGED[name]
    constants = {
        "w": np.ones((3, 3, 3, 3), "f4"), "axes": np.array([0, 0]), "negative": np.array([5, -1]),
        "zero": np.float32(0), "one": np.float32(1), "three": np.array(3),
        "pair": np.array([0, 1], "f4"),
    }  # fmt: skip
    nodes = [node(operator, inputs, "y", attributes)]
    proto = model(nodes, [info("x", [2, 3, 8, 8])], ["y"], constants, opset=18)
    with pytest.raises(luminal.LuminalError):
        load(proto).run([np.ones((2, 3, 8, 8), "f4")])


def test_operators_that_stand_behind_their_readers_are_sorted():
    late = [node("Add", "a x", "y"), node("Relu", "x", "a")]
    x = np.float32([-1, 2])
    np.testing.assert_array_equal(load(model(late, [info("x", [2])], ["y"])).run([x])[0], [-1, 4])
    body = helper.make_graph(late, "body", [], [info("y", [2])])
    branch = node("If", "c", "z", {"then_branch": body, "else_branch": body})
    proto = model([node("Neg", "z", "w"), branch], [info("x", [2])], ["w"], {"c": np.bool_(True)})
    np.testing.assert_array_equal(load(proto).run([x])[0], [1, -4])


@pytest.mark.parametrize("name", ["a", "y"])
def test_operators_that_wait_for_each_other(name):
    proto = model([node("Add", f"{name} x", "y"), node("Relu", "y", "a")], [info("x", [2])], ["y"])
    with pytest.raises(luminal.WeightsError, match=r"wait for each other: .*Add .*node 0"):
        load(proto)


def test_an_output_that_nothing_makes_is_named():
    proto = model([node("Relu", "x", "y")], [info("x", [2])], ["y", "z"])
    with pytest.raises(luminal.WeightsError, match="gives 'z', which nothing makes"):
        load(proto).run([np.ones(2, "f4")])


@pytest.mark.parametrize("factor", [0.7, 0.9, 1.3])
def test_resize_between_two_places_is_counted_in_f32(factor: float) -> None:
    resize = helper.make_node("Resize", ["x", "", "by"], ["y"], mode="nearest")
    proto = model([resize], [info("x", [1, 10])], ["y"], {"by": np.float32([1.0, factor])})
    agree(proto, {"x": numbers(1, 10)})


def test_pad_before_opset_11_takes_its_value_as_an_attribute() -> None:
    pad = node("Pad", "x", "y", {"pads": [0, 1, 2, -1], "value": 3.0})
    agree(model([pad], [info("x", [2, 3])], ["y"], opset=7), {"x": numbers(2, 3)})


def test_scan_of_opset_8_refuses_sequences_of_their_own_lengths() -> None:
    places = [info(name, [2]) for name in ("s", "e", "s2")]
    body = helper.make_graph([node("Add", "s e", "s2")], "body", places[:2], places[2:])
    scan = node("Scan", "lengths z x", "y", {"body": body, "num_scan_inputs": 1})
    inputs = [info("z", [2, 2]), info("x", [2, 4, 2])]
    feeds = {"z": numbers(2, 2), "x": numbers(2, 4, 2)}
    agree(model([scan], inputs, ["y"], {"lengths": np.array([4, 4])}, opset=8), feeds)
    with pytest.raises(luminal.Unsupported, match="sequence_lens"):
        load(model([scan], inputs, ["y"], {"lengths": np.array([4, 2])}, opset=8)).run(feeds)


PAIRS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
         "Less": np.less, "Greater": np.greater}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_before_opset_7_an_axis_says_where_the_second_operand_lies(name: str) -> None:
    x, y = numbers(3, 3, 3, low=0.5), numbers(3, low=0.5, seed=1)
    inputs = [info("x", [3, 3, 3]), info("y", [3])]
    for axis, shape in ((0, (3, 1, 1)), (1, (3, 1)), (-1, (3,)), (None, (3,))):
        attributes = {"broadcast": 1, **({} if axis is None else {"axis": axis})}
        proto = model([node(name, "x y", "z", attributes)], inputs, ["z"], opset=6)
        expected = PAIRS[name](x, y.reshape(shape))
        np.testing.assert_allclose(load(proto).run([x, y])[0], expected, 1e-6)
    late = model([node(name, "x y", "z", {"axis": 0})], inputs, ["z"], opset=7)
    with pytest.raises(luminal.Unsupported, match=r"attributes: .*'axis'"):
        load(late).run([x, y])
    early = model([node("Relu", "x", "z", {"consumed_inputs": [0]})], inputs[:1], ["z"], opset=1)
    np.testing.assert_array_equal(load(early).run([x])[0], x)


def test_integers_are_multiplied_by_whole_factors_only() -> None:
    gemm = node("Gemm", "a b c", "y", {"alpha": 2.0, "beta": -3.0})
    a, b, c = np.arange(12).reshape(3, 2, 2)
    inputs = [info(name, [2, 2], INT) for name in "abc"]
    proto = model([gemm], inputs, ["y"])
    np.testing.assert_array_equal(load(proto).run([a, b, c])[0], 2 * (a @ b) - 3 * c)
    for name in ("alpha", "beta"):
        proto = model([node("Gemm", "a b c", "y", {name: 0.5})], inputs, ["y"])
        with pytest.raises(luminal.Unsupported, match=r"integers of i64 times 0\.5"):
            load(proto).run([a, b, c])


def test_sizes_of_0_and_running_sums_of_nothing() -> None:
    nodes = [
        ("Squeeze", "x", "a"), ("Squeeze", "x none", "b"),
        ("CumSum", "x two", "c", {"exclusive": 1}),
        ("CumSum", "x two", "d", {"exclusive": 1, "reverse": 1}),
    ]  # fmt: skip
    constants = {"none": np.zeros(0, np.int64), "two": np.array(2)}
    proto = model(nodes, [info("x", ["one", "rows", "columns"])], list("abcd"), constants)
    ours = None
    for shape in ((1, 0, 3), (1, 2, 0), (1, 2, 3), (2, 1, 4), (1, 0, 1)):
        ours = agree(proto, {"x": numbers(*shape)}, ours=ours)


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers_of_no_steps_keep_their_states(name: str, gates: int) -> None:
    """onnxruntime 1.32 gives zeros as states, or ends the process."""
    constants = {"w": numbers(2, gates * 2, 3), "r": numbers(2, gates * 2, 2)}
    layer = helper.make_node(name, ["x", "w", "r", "", "", "h0"], ["y", "h"], hidden_size=2,
                             direction="bidirectional")  # fmt: skip
    proto = model([layer], [info("x", ["steps", 5, 3]), info("h0", [2, 5, 2])], ["y", "h"],
                  constants)  # fmt: skip
    ours, first = load(proto), numbers(2, 5, 2)
    for steps in (0, 6, 0):
        y, h = ours.run([numbers(steps, 5, 3), first])
        assert y.shape == (steps, 2, 5, 2) and y.dtype == h.dtype == np.float32
        assert np.array_equal(h, first) == (steps == 0)
