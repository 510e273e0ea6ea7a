"""Models of images, from folders as Hugging Face writes them and from plain states."""

from .classic import ResNet, VisionTransformer, ViTConfig

__all__ = ["ResNet", "ViTConfig", "VisionTransformer"]
