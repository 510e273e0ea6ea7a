"""What is in a picture, in a word: classifiers from folders as Hugging Face writes them; and what
nets without a head make of a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, WeightsError
from ...graph import Graph, Tensor
from ...weights.checkpoints import read_tensors
from . import convnext, efficientnet, swin, vits
from .images import IMAGENET, Source, prepared, processor, read_image, with_usual
from .layers import config_of, names_of, renamed
from .named import Named
from .programs import BySize

FAMILIES: dict[str, tuple[Any, Any]] = {  # model_type -> (net, names)
    "vit": (vits.vit, vits.NAMES),
    "dinov2": (vits.vit, vits.NAMES),
    "dinov2_with_registers": (vits.vit, vits.NAMES),
    "convnext": (convnext.convnext, convnext.NAMES),
    "swin": (swin.swin, swin.NAMES),
    "swinv2": (swin.swin, swin.NAMES),
    "efficientnet": (efficientnet.efficientnet, efficientnet.NAMES),
}
BARE = "vit", "dinov2", "dinov2_with_registers", "dinov3_vit"
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
USUAL: dict[str, dict[str, Any]] = {  # what a processor of a kind does unless its file says more
    "vit": HALF,
    "efficientnet": {"resample": 3, "include_top": True},
}
SIZES = {"efficientnet": 600}


class _Folder:
    """A folder's config, weights under our names, and how its pictures are prepared."""

    def __init__(self, directory: str | Path, kinds: Iterable[str]) -> None:
        self.directory = Path(directory)
        self.config, self.kind = config_of(self.directory, kinds)
        names = FAMILIES.get(self.kind, (None, vits.NAMES))[1]
        self.state = renamed(read_tensors(self.directory), names)
        size = self.config.count("image_size", SIZES.get(self.kind, 224))
        square = {"height": size, "width": size}
        usual = {**IMAGENET, "size": square, **USUAL.get(self.kind, {})}
        self.processor = with_usual(processor(self.directory), usual)

    def pixels(self, image: Source) -> np.ndarray:
        """(3, height, width) f32. Raises InputError."""
        return prepared(read_image(image), self.processor)


class Classifier:
    """ViT, DINOv2, ConvNeXt, Swin or EfficientNet with a head for classes. Raises WeightsError,
    Unsupported.

    >>> Classifier("dinov2-base-imagenet1k-1-layer")("cat.jpg", 3)
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self._folder = folder = _Folder(directory, FAMILIES)
        head = folder.state.get("classifier.weight")
        if head is None:
            raise WeightsError(f"{directory}: no classifier.weight: no head for classes")
        self.names = names_of(folder.config, len(head))
        net = FAMILIES[folder.kind][0]

        def record(graph: Graph, pixels: Tensor) -> list[Tensor]:
            return [net(Named(graph, folder.state), pixels, folder.config)]

        self._programs = BySize(record, compiling)

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """(classes,) f32, not normalised, of prepared pixels (3, height, width)."""
        return np.asarray(self._programs(pixels.astype(np.float32))[0][0])

    def __call__(self, image: Source, most: int = 5) -> list[tuple[str, float]]:
        """The likeliest classes with their probabilities. Raises InputError."""
        if most < 1:
            raise InputError(f"{most} classes")
        scores = self.scores(self._folder.pixels(image))
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        return [(self.names[n], float(shares[n])) for n in np.argsort(-shares)[:most]]


class Features:
    """ViT, DINOv2 or DINOv3 without a head. Raises WeightsError, Unsupported.

    >>> Features("dinov3-vits16-pretrain-lvd1689m")("cat.jpg")[0]  # of the whole picture
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self._folder = folder = _Folder(directory, BARE)

        def record(graph: Graph, pixels: Tensor) -> list[Tensor]:
            return [vits.states(Named(graph, folder.state), pixels, folder.config)[1]]

        self._programs = BySize(record, compiling)

    def run(self, pixels: np.ndarray) -> np.ndarray:
        """(tokens, width) f32 of prepared pixels (3, height, width)."""
        return np.asarray(self._programs(pixels.astype(np.float32))[0][0])

    def __call__(self, image: Source) -> np.ndarray:
        """(tokens, width) f32: the class token's, those of registers, one for each patch. Raises
        InputError."""
        return self.run(self._folder.pixels(image))
