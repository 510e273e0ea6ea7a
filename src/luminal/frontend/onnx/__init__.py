"""ONNX models as programs of ours."""

from .model import Model, load

__all__ = ["Model", "load"]
