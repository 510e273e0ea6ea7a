"""What is in a picture, in a word: classifiers from folders as Hugging Face writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ... import nn
from ...errors import InputError, WeightsError
from ...graph import Graph
from ...weights.checkpoints import read_tensors
from .backbones import (
    CONVOLUTIONAL,
    TRANSFORMER,
    ConvNeXt,
    ConvNeXtConfig,
    Transformer,
    TransformerConfig,
)  # fmt: skip
from .images import Source, prepared, processor, read_image, with_usual
from .layers import config_of, names_of, renamed

CONVNEXT_NORM = ((r"^embeddings\.layernorm\.", "embedding_norm."),)
FAMILIES: dict[str, tuple[Any, Any, Any]] = {  # model_type -> (config, net, names)
    "vit": (TransformerConfig, Transformer, TRANSFORMER),
    "dinov2": (TransformerConfig, Transformer, TRANSFORMER),
    "convnext": (ConvNeXtConfig, ConvNeXt, (CONVOLUTIONAL[0], *CONVNEXT_NORM, *CONVOLUTIONAL[1:])),
}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
USUAL: dict[str, dict[str, Any]] = {  # what a processor of a kind does unless its file says more
    "vit": HALF,
}
UNUSED = r".*(mask_token|pooler\..*)"


class Classifier:
    """ViT, DINOv2 or ConvNeXt with a head for classes. Raises WeightsError, Unsupported.

    >>> Classifier("dinov2-base-imagenet1k-1-layer")("cat.jpg", 3)
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self.directory = Path(directory)
        given, kind = config_of(self.directory, FAMILIES)
        config, net, names = FAMILIES[kind]
        state = renamed(read_tensors(self.directory), names, UNUSED)
        head = state.get("classifier.weight")
        if head is None:
            raise WeightsError(f"{self.directory}: no classifier.weight: no head for classes")
        self.size = config.read(given).image_size
        self.names = names_of(given, len(head))
        square = {"height": self.size, "width": self.size}
        usual = {**IMAGENET, "size": square, **USUAL.get(kind, {})}
        self._prepared = with_usual(processor(self.directory), usual)
        graph = Graph()
        self._pixels = graph.tensor((1, 3, self.size, self.size), name="pixels")
        with nn.uninitialised():
            made = net(graph, config.read(given), len(head))
        self._scores = made(self._pixels).output("scores")
        made.load_state_dict(state)
        self.program = graph.compile(**compiling)

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """(classes,) f32, not normalised, of prepared pixels (3, size, size)."""
        self.program[self._pixels] = pixels[None].astype(np.float32)
        self.program.run()
        return np.array(self.program[self._scores][0])

    def __call__(self, image: Source, most: int = 5) -> list[tuple[str, float]]:
        """The likeliest classes with their probabilities. Raises InputError."""
        if most < 1:
            raise InputError(f"{most} classes")
        scores = self.scores(prepared(read_image(image), self._prepared))
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        return [(self.names[n], float(shares[n])) for n in np.argsort(-shares)[:most]]
