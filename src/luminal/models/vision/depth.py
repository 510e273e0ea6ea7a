"""How far away what is seen in a picture is: Depth Anything (Yang et al. 2024,
https://arxiv.org/abs/2401.10891 and 2406.09414): a DINOv2 under the head of DPT (Ranftl et al.
2021, https://arxiv.org/abs/2103.13413)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import ops
from ...graph import Tensor
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from .images import IMAGENET, Source, prepared, processor, read_image, stretched, with_usual
from .layers import config_of, renamed
from .named import Named
from .programs import BySize
from .vits import NAMES, states

FACTORS = [4, 2, 1, 0.5]  # how much larger each map becomes
USUAL = {
    **IMAGENET, "size": {"height": 518, "width": 518}, "ensure_multiple_of": 14,
    "keep_aspect_ratio": True, "resample": 3,
}  # fmt: skip


def depth(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """(height, width): the larger, the nearer (or metres, of a model of these) of pixels (1, 3,
    height, width)."""
    eye = config.fields("backbone_config")
    found, _, before = states(w["backbone"], pixels, eye)
    eps = eye.number("layer_norm_eps", 1e-6, low=0, high=1)
    if config.number("head_in_index", -1) != -1:
        raise config.wrong("head_in_index", "-1, the last map, which alone is built")
    patch = int(w["backbone"].tensor().shape[2])
    grid = int(pixels.shape[2]) // patch, int(pixels.shape[3]) // patch
    factors = config.numbers_or("reassemble_factors", FACTORS, 4)
    maps = []
    for n, place in enumerate(_places(eye)):
        x = w["backbone"]["layernorm"].layer_norm(found[place], eps)[:, before:]
        x = x.transpose(1, 2).unflatten(2, grid)
        x = _resized(w["neck"]["reassemble_stage"]["layers"][n], x, factors[n])
        maps.append(w["neck"]["convs"][n].conv2d(x))
    return _head(w["head"], _fused(w["neck"]["fusion_stage"], maps), grid, patch, config)


def _places(eye: Fields) -> list[int]:
    """The layers that are looked at."""
    if eye.has("out_indices"):
        return eye.counts("out_indices", 4)
    return [int(name.removeprefix("stage")) for name in eye.texts("out_features", 4)]


def _resized(w: Named, x: Tensor, factor: float) -> Tensor:
    x = w["projection"].conv2d(x)
    if factor > 1:
        return w["resize"].conv_transpose2d(x, int(factor))
    return x if factor == 1 else w["resize"].conv2d(x, round(1 / factor))


def _fused(w: Named, maps: Sequence[Tensor]) -> Tensor:
    """Coarse maps into finer ones."""
    maps = maps[::-1]
    x = maps[0]
    for n, layer in enumerate(w["layers"].each()):
        x = x + _residual(layer["residual_layer1"], maps[n]) if n else x
        x = _residual(layer["residual_layer2"], x)
        size = [2 * int(s) for s in x.shape[2:]] if n + 1 == len(maps) else maps[n + 1].shape[2:]
        x = ops.interpolate(x, size=size, mode="bilinear", align_corners=True)
        x = layer["projection"].conv2d(x)
    return x


def _residual(w: Named, x: Tensor) -> Tensor:
    return x + w["convolution2"].conv2d(ops.relu(w["convolution1"].conv2d(ops.relu(x))))


def _head(w: Named, x: Tensor, grid: tuple[int, int], patch: int, config: Fields) -> Tensor:
    x = w["conv1"].conv2d(x)
    size = [side * patch for side in grid]
    x = ops.interpolate(x, size=size, mode="bilinear", align_corners=True)
    x = w["conv3"].conv2d(ops.relu(w["conv2"].conv2d(x)))[0, 0]
    kinds = "relative", "metric"
    metric = config.text("depth_estimation_type", "relative", among=kinds) == "metric"
    return (ops.sigmoid(x) if metric else ops.relu(x)) * config.number("max_depth", 1, low=0)


class Depth:
    """Depth Anything, both versions. A program serves one size of picture. Raises WeightsError,
    Unsupported.

    >>> Depth("Depth-Anything-V2-Small-hf")("street.jpg")
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self.directory = Path(directory)
        self.config, _ = config_of(self.directory, ["depth_anything"])
        config_of_eye = self.config.fields("backbone_config")
        config_of_eye.text("model_type", "dinov2", among=("dinov2",))
        state = read_tensors(self.directory)
        eye = {n: v for n, v in state.items() if n.startswith("backbone.")}
        named = {f"backbone.{n}": v for n, v in renamed(eye, NAMES).items()}
        state = {**{n: v for n, v in state.items() if n not in eye}, **named}
        given = with_usual(processor(self.directory), USUAL)
        self._prepared = given
        self._programs = BySize(
            lambda graph, pixels: [depth(Named(graph, state), pixels, self.config)], compiling
        )

    def run(self, pixels: np.ndarray) -> np.ndarray:
        """(height, width) f32 of prepared pixels (3, height, width)."""
        return self._programs(pixels)[0]

    def __call__(self, image: Source) -> np.ndarray:
        """(height, width) f32 of the picture. Raises InputError."""
        picture = read_image(image)
        found = self.run(prepared(picture, self._prepared))
        return stretched(found, picture.height, picture.width, cubic=True)
