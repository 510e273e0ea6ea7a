"""Weights as people have them on disk."""

from .gguf import GGUF
from .hub import locate
from .safetensors import Safetensors

__all__ = ["GGUF", "Safetensors", "locate"]
