"""ONNX models as programs of ours."""

from .model import Model, load, prepare

__all__ = ["Model", "load", "prepare"]
