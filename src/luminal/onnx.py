"""ONNX models.

    model = luminal.onnx.load("model.onnx")     names, sizes and weights as the file has them
    outputs = model.run({"images": array})      by name, or a list in order; arrays in order back
    model.graph()                               the model as a graph, to compile or to go on from

Needs the package onnx, which luminal itself does not.
"""

from .frontend.onnx import Model, load, prepare

__all__ = ["Model", "load", "prepare"]
