"""Small ONNX models for tests, and the same run by onnxruntime."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import luminal.onnx

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, constants=None, opset=17, domains=(), functions=()):
    """nodes: (operator, inputs, outputs, attributes) or ready ones. inputs, outputs: value infos,
    or names of outputs of unknown shape."""
    made = [n if isinstance(n, onnx.NodeProto) else node(*n) for n in nodes]
    outs = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    held = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(made, "test", list(inputs), outs, held)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


def node(operator, inputs, outputs, attributes=None, domain=""):
    return helper.make_node(operator, inputs.split(), outputs.split(), domain=domain,
                            **(attributes or {}))  # fmt: skip


def reference(proto, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, feeds)


def load(source, **options):
    return luminal.onnx.load(source, threads=1, **options)


def agree(proto, feeds, tolerance=1e-5, ours=None):
    """Every output is onnxruntime's, in dtype, shape and value. Signed weights of quantised sums
    are of 7 bits: without VNNI onnxruntime adds two products of bytes up in 16, and saturates."""
    ours = ours or load(proto)
    expected, got = reference(proto, feeds), ours.run(feeds)
    assert len(got) == len(expected)
    for name, mine, theirs in zip(ours.outputs, got, expected):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, name
        np.testing.assert_allclose(mine, theirs, tolerance, tolerance, err_msg=name)
    return ours


def numbers(*shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
