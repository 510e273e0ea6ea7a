"""Weights as people have them on disk."""

from .ctranslate2 import CTranslate2
from .gguf import GGUF
from .hub import locate
from .safetensors import Safetensors

__all__ = ["GGUF", "CTranslate2", "Safetensors", "locate"]
