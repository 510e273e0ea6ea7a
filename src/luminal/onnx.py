"""ONNX models, read and written.

    model = luminal.onnx.load("model.onnx")     names, sizes and weights as the file has them
    outputs = model.run({"images": array})      by name, or a list in order; arrays in order back
    model.graph()                               the model as a graph, to compile or to go on from
    luminal.onnx.save(graph, "model.onnx")      a graph as a model

prepare, run_model, run_node, is_compatible and supports_device are what `onnx.backend` asks of a
backend: `onnx.backend.test.BackendTest(luminal.onnx, __name__)` runs its tests.

Needs the package onnx, which luminal itself does not.
"""

from .frontend.onnx import Model, load
from .frontend.onnx.backend import is_compatible, prepare, run_model, run_node, supports_device
from .frontend.onnx.export import export, save

__all__ = [
    "Model", "export", "is_compatible", "load", "prepare", "run_model", "run_node", "save",
    "supports_device",
]  # fmt: skip
