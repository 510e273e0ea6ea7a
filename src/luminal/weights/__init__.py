"""Weights as people have them on disk."""

from .safetensors import Safetensors

__all__ = ["Safetensors"]
