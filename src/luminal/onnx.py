"""ONNX models, read and written.

    model = luminal.onnx.load("model.onnx")     names, sizes and weights as the file has them
    outputs = model.run({"images": array})      by name, or a list in order; arrays in order back
    model.graph()                               the model as a graph, to compile or to go on from
    luminal.onnx.save(graph, "model.onnx")      a graph as a model

Needs the package onnx, which luminal itself does not.
"""

from .frontend.onnx import Model, load, prepare
from .frontend.onnx.export import export, save

__all__ = ["Model", "export", "load", "prepare", "save"]
