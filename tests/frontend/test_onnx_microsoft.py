"""The operators of com.microsoft against onnxruntime, which defines them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx_models import agree, info, load, model, numbers, reference
from onnxruntime.capi import _pybind_state
from transformers.models.t5.modeling_t5 import T5Attention

INT32 = TensorProto.INT32
HIDDEN = info("x", ["batch", "seq", 8])
ROT = np.arange(16)[:, None] / (10.0 ** np.arange(2))[None, :]
WIDE = np.arange(16)[:, None] / (10.0 ** np.arange(8))[None, :]
CONSTANTS = {
    "b8": numbers(8, seed=1), "g8": numbers(8, seed=2), "skip": numbers(2, 3, 8, seed=3),
    "w": numbers(8, 24, seed=4), "b24": numbers(24, seed=5), "m8": numbers(8, 5, seed=6),
    "words": np.array([[1, 4, 2], [3, 0, 5]], np.int32), "table": numbers(6, 8, seed=7),
    "segments": np.array([[0, 0, 1], [1, 1, 1]], np.int32), "places": numbers(5, 8, seed=8),
    "kinds": numbers(2, 8, seed=9), "seen": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
    "cos": np.cos(ROT).astype(np.float32), "sin": np.sin(ROT).astype(np.float32),
    "at": np.array([[0, 1, 2], [4, 5, 6]]), "first": np.array([3]),
    "past": numbers(2, 2, 2, 4, 4, seed=10), "pk": numbers(2, 2, 4, 16, seed=11),
    "pv": numbers(2, 2, 4, 16, seed=12), "length": np.array([4, 4], np.int32),
    "total": np.array(5, np.int32), "k4": numbers(2, 3, 8, seed=13),
    "q32": numbers(2, 1, 64, seed=14), "key": numbers(2, 1, 32, seed=17),
    "value": numbers(2, 1, 32, seed=18), "c4": np.cos(WIDE).astype(np.float32),
    "s4": np.sin(WIDE).astype(np.float32),
    "packed": np.random.default_rng(0).integers(0, 256, (5, 2, 8), np.uint8),
    "scale10": numbers(10, seed=15, low=0.01, high=0.1), "x32": numbers(3, 32, seed=16),
    "zeros5": np.random.default_rng(1).integers(0, 256, 5, np.uint8),
    "qa": np.random.default_rng(2).integers(0, 256, (2, 4), np.uint8),
    "qb": np.random.default_rng(3).integers(0, 256, (2, 4), np.uint8),
    "groups": np.arange(32, dtype=np.int32)[::-1] % 2,
    "image": numbers(2, 4, 6, 6, seed=19), "kernel": numbers(4, 2, 3, 3, seed=20),
    "b4": numbers(4, seed=21), "maps": numbers(2, 4, 6, 6, seed=22),
    "qimage": np.random.default_rng(4).integers(0, 256, (2, 3, 6, 6), np.uint8),
    "qrows": np.random.default_rng(5).integers(0, 256, (2, 6, 6, 3), np.uint8),
    "which": np.array([[True, False, True, True]]), "s5": np.float32(0.0317),
    "qw": np.random.default_rng(6).integers(0, 256, (4, 5), np.uint8), "s3": np.float32(0.004),
    "c5": np.arange(-2, 3, dtype=np.int32) * 500,
    "qx": np.random.default_rng(7).integers(0, 256, (2, 3, 8), np.uint8),
    "w8": np.random.default_rng(8).integers(0, 256, (8, 24), np.uint8),
    "qtable": np.random.default_rng(9).integers(0, 256, (6, 8), np.uint8),
    "qplaces": np.random.default_rng(10).integers(0, 256, (5, 8), np.uint8),
    "qkinds": np.random.default_rng(11).integers(0, 256, (2, 8), np.uint8),
    "qg": np.random.default_rng(12).integers(0, 256, 8, np.uint8),
    "sinks": numbers(4, seed=24), "room": numbers(2, 2, 7, 16, seed=25),
    "grid": numbers(2, 3, 5, 2, seed=26, low=-1.3, high=1.3),
    "qk": np.random.default_rng(13).integers(-63, 64, (2, 3, 3, 3), np.int8),
    "sk": np.float32([0.003, 0.004]), "zk": np.int8([0, 0]), "c2": np.int32([-900, 400]),
    "lengths2": np.array([4, 2], np.int32), "upper": np.array(1),
    "s1": np.float32(0.02), "s2": np.float32(0.05), "z1": np.uint8(100), "z2": np.uint8(30),
}  # fmt: skip
CASES = {
    "activations": [
        ("Gelu", "x", "a"), ("FastGelu", "x b8", "b"), ("BiasGelu", "x b8", "c"),
        ("QuickGelu", "x", "d"), ("FusedMatMul", "x m8", "e", {"alpha": 0.5}),
        ("SkipLayerNormalization", "x skip g8 b8 b8", "f   g", {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", "x skip g8", "h   i", {"epsilon": 1e-5}),
        ("EmbedLayerNormalization", "words segments table places kinds g8 b8 seen", "j k l"),
    ],
    "attention": [
        ("Attention", "x w b24", "a", {"num_heads": 2}),
        ("Attention", "x w b24 seen", "b", {"num_heads": 2}),
        ("Attention", "x w b24  past", "c d", {"num_heads": 2, "unidirectional": 1}),
        ("MultiHeadAttention", "x skip k4", "e", {"num_heads": 2, "scale": 0.3}),
        ("MultiHeadAttention", "x skip k4 b24 seen", "f", {"num_heads": 2}),
        ("RotaryEmbedding", "x at cos sin", "g", {"num_heads": 2}),
        ("RotaryEmbedding", "x first cos sin", "h", {"num_heads": 2, "interleaved": 1}),
        ("GroupQueryAttention", "q32 key value pk pv length total", "i j k",
         {"num_heads": 4, "kv_num_heads": 2}),
        ("GroupQueryAttention", "q32 key value pk pv length total c4 s4", "l m n",
         {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 3}),
    ],
    "attention with sinks": [
        ("GroupQueryAttention", "q32 key value pk pv length total     sinks", "a b c",
         {"num_heads": 4, "kv_num_heads": 2}),
        ("GroupQueryAttention", "q32 key value pk pv length total", "d e f",
         {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}),
    ],
    "fused": [
        ("FusedConv", "image kernel b4 maps", "a",
         {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}),
        ("FusedConv", "image kernel b4", "b", {
            "activation": "HardSigmoid", "activation_params": [0.3, 0.4], "group": 2,
            "strides": [2, 2]}),
        ("FusedConv", "image kernel", "c", {
            "activation": "Clip", "activation_params": [-1.0, 2.0], "group": 2}),
        ("NhwcMaxPool", "qrows", "d", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("TransposeMatMul", "q32 q32", "e", {"transB": 1}), ("Trilu", "m8 upper", "f"),
        ("GridSample", "image grid", "g", {"mode": "bicubic", "padding_mode": "reflection"}),
        ("GridSample", "image grid", "h", {"mode": "bilinear", "align_corners": 1}),
    ],
    "weights of four bits": [
        ("MatMulNBits", "x32 packed scale10", "a", {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
        ("MatMulNBits", "x32 packed scale10 zeros5", "b",
         {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
        ("MatMulNBits", "x32 packed scale10  groups", "c",
         {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
    ],
    "quantised layers": [
        ("QLinearAveragePool", "qimage s1 z1 s5 z2", "a",
         {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}),
        ("QLinearAveragePool", "qrows s1 z1 s5 z2", "b",
         {"kernel_shape": [3, 3], "channels_last": 1}),
        ("QLinearConv", "qimage s1 z1 qk sk zk s5 z2 c2", "j", {"group": 1, "strides": [2, 1]}),
        ("QLinearConv", "qrows s1 z1 qk sk zk s5 z2", "k", {"channels_last": 1}),
        ("QLinearWhere", "which qa s1 z1 qb s2 z2 s2 z1", "d"),
        ("QGemm", "qa s1 z1 qw s3 z2 c5 s2 z1", "e"), ("QGemm", "qa s1 z1 qw s3 z2 c5", "f"),
        ("QAttention", "qx w8 b24 s1 s3 seen z1 z2", "g", {"num_heads": 2}),
        ("QEmbedLayerNormalization", "words segments qtable qplaces qkinds qg qg seen s1 s1 s1 s1"
         " s1 z1 z1 z1 z1 z1", "h i"),
    ],
    "quantised": [
        ("QLinearAdd", "qa s1 z1 qb s2 z2 s2 z1", "a"),
        ("QLinearMul", "qa s1 z1 qb s2 z2 s2 z1", "b"),
        ("QLinearSigmoid", "qa s1 z1 s1 z2", "c"), ("QLinearLeakyRelu", "qa s1 z1 s1 z1", "d"),
        ("QLinearConcat", "s2 z2 qa s1 z1 qb s2 z2", "e", {"axis": 0}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    nodes = [
        helper.make_node(operator, inputs.split(" "), outputs.split(" "), domain="com.microsoft",
                         **(*rest, {})[0])
        for operator, inputs, outputs, *rest in CASES[name]
    ]  # fmt: skip
    used = {i for made in nodes for i in made.input} - {"x", ""}
    outputs = [o for made in nodes for o in made.output if o]
    constants = {k: CONSTANTS[k] for k in used}
    inputs = [HIDDEN] if any("x" in made.input for made in nodes) else []
    proto = model(nodes, inputs, outputs, constants, domains=["com.microsoft"])
    agree(proto, {"x": numbers(2, 3, 8)} if inputs else {}, 1e-4)


@pytest.mark.parametrize("given", [[], ["total"]], ids=["constant", "input"])
@pytest.mark.parametrize("past", ["room", "pk"], ids=["has room", "grows"])
def test_sequences_of_a_batch_end_at_different_places(past, given):
    """Sequences of 5 and 3 tokens, in room for 7 or 5; behind their ends nothing is told."""
    inputs = f"q32 key value {past} {past} lengths2 total c4 s4".split()
    made = helper.make_node("GroupQueryAttention", inputs, ["g", "k", "v"], domain="com.microsoft",
                            num_heads=4, kv_num_heads=2, do_rotary=1)  # fmt: skip
    held = {name: CONSTANTS[name] for name in inputs if name not in given}
    feeds = {name: CONSTANTS[name] for name in given}
    infos = [info(name, [], INT32) for name in given]
    proto = model([made], infos, ["g", "k", "v"], held, domains=["com.microsoft"])
    for mine, theirs in zip(load(proto).run(feeds), reference(proto, feeds), strict=True):
        pairs = [(m, t) if mine.ndim == 3 else (m[:, :n], t[:, :n])
                 for m, t, n in zip(mine, theirs, (5, 3))]  # fmt: skip
        for m, t in pairs:
            np.testing.assert_allclose(m, t, 1e-4, 1e-4)


@pytest.mark.parametrize("room", [0, 8], ids=["grows", "has room"])
def test_a_batch_of_prompts_that_is_padded_behind(room):
    inputs = "q k v past past lengths2 total c4 s4".split()
    made = helper.make_node("GroupQueryAttention", inputs, ["g", "nk", "nv"], num_heads=4,
                            kv_num_heads=2, do_rotary=1, domain="com.microsoft")  # fmt: skip
    held = {name: CONSTANTS[name] for name in inputs[5:]}
    held |= {"past": np.zeros((2, 2, room, 16), "f")}
    held |= {"q": numbers(2, 5, 64), "k": numbers(2, 5, 32), "v": numbers(2, 5, 32)}
    proto = model([made], [], ["g", "nk", "nv"], held, domains=["com.microsoft"])
    for mine, theirs in zip(load(proto).run({}), reference(proto, {}), strict=True):
        for m, t, n in zip(mine, theirs, (5, 3)):
            place = (..., slice(n), slice(None))
            np.testing.assert_allclose(m[place], t[place], 1e-4, 1e-4)


@pytest.mark.parametrize("heads", [1, 4], ids=["of all heads", "a head"])
@pytest.mark.parametrize("room", [4, 7], ids=["grows", "has room"])
def test_a_bias_of_scores_beside_groups_of_heads(heads, room):
    inputs = "q32 key value past past length total    bias".split(" ")
    made = helper.make_node("GroupQueryAttention", inputs, ["g", "k", "v"], domain="com.microsoft",
                            num_heads=4, kv_num_heads=2)  # fmt: skip
    held = {name: CONSTANTS[name] for name in inputs if name in CONSTANTS}
    held |= {"past": numbers(2, 2, room, 16), "bias": numbers(2, heads, 1, 5)}
    agree(model([made], [], ["g"], held, domains=["com.microsoft"]), {}, 1e-4)


@pytest.mark.parametrize("room", [0, 12], ids=["grows", "has room"])
def test_a_cache_whose_total_is_an_input_takes_one_program(room):
    """The first token has a program, all others have one."""
    heads = {"q": 64, "k": 32, "v": 32}
    infos = [info(name, ["batch", "new", width]) for name, width in heads.items()]
    infos += [info(name, ["batch", 2, "past", 16]) for name in ("pk", "pv")]
    infos += [info("lengths", ["batch"], INT32), info("total", [], INT32)]
    made = helper.make_node("GroupQueryAttention", [i.name for i in infos], ["g", "nk", "nv"],
                            domain="com.microsoft", num_heads=4, kv_num_heads=2)  # fmt: skip
    proto = model([made], infos, ["g", "nk", "nv"], domains=["com.microsoft"])
    ours = load(proto)
    for past in range(3, 8):
        feeds = {name: numbers(2, 1, width, seed=past) for name, width in heads.items()}
        feeds |= {name: numbers(2, 2, room or past, 16, seed=past) for name in ("pk", "pv")}
        feeds |= {"lengths": np.full(2, past, np.int32), "total": np.array(past + 1, np.int32)}
        for mine, theirs in zip(ours.run(feeds), reference(proto, feeds), strict=True):
            held = (..., slice(past + 1), slice(None)) if mine.ndim == 4 else ...
            np.testing.assert_allclose(mine[held], theirs[held], 1e-4, 1e-4)
    assert len(ours.runner.start.stages) == 2


@pytest.mark.parametrize("kind", [0, 1], ids=["fp4", "nf4"])
def test_weights_as_bitsandbytes_packs_them(kind):
    matrix = numbers(48, 20, seed=30)
    packed, largest = np.zeros(480, np.uint8), np.zeros(15, np.float32)
    _pybind_state.quantize_matmul_bnb4(packed, matrix.T.copy(), largest, 64, kind, 20, 48)
    made = helper.make_node("MatMulBnb4", ["x", "w", "largest"], ["y"], domain="com.microsoft",
                            K=48, N=20, block_size=64, quant_type=kind)  # fmt: skip
    proto = model([made], [info("x", [3, 48])], ["y"], {"w": packed, "largest": largest},
                  domains=["com.microsoft"])  # fmt: skip
    agree(proto, {"x": numbers(3, 48)}, 1e-4)


def test_an_lstm_whose_weights_are_integers():
    """ONNX Runtime rounds inputs and states, too; ours is what the weights say."""
    rng = np.random.default_rng(0)
    held = {"w": rng.integers(0, 256, (1, 4, 20), np.uint8), "ws": np.float32([0.01]),
            "wz": np.uint8([120]), "r": rng.integers(0, 256, (1, 5, 20), np.uint8),
            "rs": np.float32([0.01]), "rz": np.uint8([130]), "b": numbers(1, 40)}  # fmt: skip
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    made = helper.make_node("DynamicQuantizeLSTM", inputs, ["y", "h", "c"], hidden_size=5,
                            domain="com.microsoft")  # fmt: skip
    proto = model([made], [info("x", [6, 2, 4])], ["y", "h", "c"], held, domains=["com.microsoft"])
    agree(proto, {"x": numbers(6, 2, 4)}, 0.03)


def test_what_fuses_a_sum():
    """Against their definitions: ONNX Runtime has no kernel of theirs for most CPUs."""
    x, w, residual = numbers(1, 5, 5, 4), numbers(4, 4, 3, 3, seed=1), numbers(1, 3, 3, 4, seed=2)
    q = np.random.default_rng(3).integers(-128, 128, (2, 3, 4), np.int8)
    domain = {"domain": "com.microsoft"}
    proto = model(
        [helper.make_node("NhwcFusedConv", ["x", "w", "b", "r"], ["y"], activation="LeakyRelu",
                          activation_params=[0.2], **domain),
         helper.make_node("BiasDropout", ["y", "b", "r"], ["d", "all"], **domain),
         helper.make_node("QLinearReduceMean", ["q", "s", "z", "ms", "mz"], ["m"], axes=[0, -1],
                          keepdims=0, **domain)],
        [info("x", [1, 5, 5, 4])], ["y", "d", "all", "m"],
        {"w": w, "b": numbers(4, seed=4), "r": residual, "q": q, "s": np.float32(0.02),
         "z": np.int8(3), "ms": np.float32(0.007), "mz": np.int8(-5)}, domains=["com.microsoft"],
    )  # fmt: skip
    y, d, everything, m = load(proto).run({"x": x})
    b, t = numbers(4, seed=4), torch.from_numpy
    image = F.conv2d(t(x).permute(0, 3, 1, 2), t(w), t(b)).permute(0, 2, 3, 1)
    wanted = F.leaky_relu(image + t(residual), 0.2).numpy()
    np.testing.assert_allclose(y, wanted, 2e-5, 2e-5)
    np.testing.assert_allclose(d, wanted + b + residual, 2e-5, 2e-5)
    assert everything.all() and everything.shape == d.shape and everything.dtype == bool
    mean = ((q.astype(np.float32) - 3) * 0.02).mean((0, 2))
    np.testing.assert_array_equal(m, np.clip(np.round(mean / 0.007) - 5, -128, 127).astype("i1"))


def test_what_only_gpus_run_elsewhere():
    """Against what the operators are defined as."""
    x, w, b = numbers(2, 6, 6, 4), numbers(4, 3, 3, 2, seed=1), numbers(4, seed=2)
    proto = model(
        [helper.make_node("NhwcConv", ["x", "w", "b"], ["y"], group=2, domain="com.microsoft"),
         helper.make_node("SkipGroupNorm", ["x", "one", "one", "skip"], ["n", "s"], groups=2,
                          domain="com.microsoft", activation=0, channels_last=1),
         helper.make_node("BiasSoftmax", ["x", "one"], ["p"], axis=3, is_inner_broadcast=0,
                          domain="com.microsoft"),
         helper.make_node("GemmFastGelu", ["x", "square"], ["g"], domain="com.microsoft"),
         helper.make_node("RelativePositionBias", ["table", "q", "k"], ["r"], max_distance=20,
                          is_bidirectional=1, domain="com.microsoft")],
        [info("x", [2, 6, 6, 4])], ["y", "n", "s", "p", "g", "r"],
        {"w": w, "b": b, "one": numbers(4, seed=3), "skip": numbers(2, 4, seed=4),
         "square": numbers(4, 4, seed=5), "table": numbers(8, 3, seed=6), "q": np.array(30),
         "k": np.array(40)}, domains=["com.microsoft"],
    )  # fmt: skip
    y, n, s, p, g, r = load(proto).run({"x": x})
    image, t = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy
    one, table = t(numbers(4, seed=3)), t(numbers(8, 3, seed=6))
    wanted = F.conv2d(image, t(w).permute(0, 3, 1, 2), t(b), groups=2).permute(0, 2, 3, 1)
    total = image + t(numbers(2, 4, seed=4))[:, :, None, None]
    norm = F.group_norm(total, 2, one, one).permute(0, 2, 3, 1)
    apart = torch.arange(40)[None] - torch.arange(30)[:, None]
    bucket = T5Attention._relative_position_bucket(apart, True, 8, 20)
    pairs = [
        (y, wanted), (n, norm), (s, total.permute(0, 2, 3, 1)), (p, F.softmax(t(x) + one, -1)),
        (g, F.gelu(t(x) @ t(numbers(4, 4, seed=5)), approximate="tanh")),
        (r, table[bucket].permute(2, 0, 1)[None]),
    ]  # fmt: skip
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs.numpy(), 2e-4, 2e-4)
