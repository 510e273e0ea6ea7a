"""The functions that `onnx.backend` asks of a backend, so that its tests and tools take ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...errors import Unsupported
from .model import Model, Source, load
from .reading import NEWEST


def supports_device(device: str) -> bool:
    """Whether it is the CPU: "CPU", "cpu:0".

    >>> luminal.onnx.supports_device("CUDA:0")
    False
    """
    return device.upper().partition(":")[0] == "CPU"


def is_compatible(model: Source, device: str = "cpu", **options: Any) -> bool:
    """Whether there is a rule for every operator of a model. Raises WeightsError.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> luminal.onnx.is_compatible(luminal.onnx.export(cx))
    True
    """
    try:
        prepare(model, device, **options)
    except Unsupported:
        return False
    return True


def prepare(model: Source, device: str = "cpu", **options: Any) -> Model:
    """As `load`. Raises Unsupported for a device other than the CPU.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> luminal.onnx.prepare(luminal.onnx.export(cx)).run([np.float32([1, 2])])
    [array([2., 4.], dtype=float32)]
    """
    if not supports_device(device):
        raise Unsupported(f"device {device!r}: ONNX models run on the CPU")
    return load(model, **options)


def run_model(
    model: Source, inputs: Sequence[Any], device: str = "cpu", **options: Any
) -> tuple[Any, ...]:
    """The outputs of a model that runs once.

    >>> y = (cx.tensor(2, name="x") * 2.0).output("y")
    >>> luminal.onnx.run_model(luminal.onnx.export(cx), [np.float32([1, 2])])
    (array([2., 4.], dtype=float32),)
    """
    return tuple(prepare(model, device, **options).run(inputs))


def run_node(
    node: onnx.NodeProto, inputs: Sequence[Any], device: str = "cpu", outputs_info: Any = None,
    *, opset_version: int | None = None, **options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The outputs of one operator for the arrays of its inputs that are named, each once.
    outputs_info: not needed. opset_version: of its operator set; the newest of those that this onnx
    and we know if None.

    >>> import onnx
    >>> node = onnx.helper.make_node("Relu", ["x"], ["y"])
    >>> luminal.onnx.run_node(node, [np.float32([-1, 2])])
    (array([0., 2.], dtype=float32),)
    """
    helper, kind = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    arrays = dict(zip(dict.fromkeys(name for name in node.input if name), map(np.asarray, inputs)))
    given = [helper.make_tensor_value_info(name, kind(array.dtype), array.shape)
             for name, array in arrays.items()]  # fmt: skip
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    version = opset_version or min(NEWEST, onnx.defs.onnx_opset_version())
    opsets = [helper.make_opsetid(node.domain, 1 if node.domain else version)]
    graph = helper.make_graph([node], "node", given, made)
    return run_model(helper.make_model(graph, opset_imports=opsets), [*arrays.values()], device,
                     **options)  # fmt: skip
