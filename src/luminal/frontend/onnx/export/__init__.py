"""Graphs of ours as ONNX models."""

from .export import export, save

__all__ = ["export", "save"]
