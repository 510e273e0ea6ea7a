"""The operators of com.microsoft against onnxruntime, which defines them."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import agree, info, model, numbers

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
    "weights of four bits": [
        ("MatMulNBits", "x32 packed scale10", "a", {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
        ("MatMulNBits", "x32 packed scale10 zeros5", "b",
         {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
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
