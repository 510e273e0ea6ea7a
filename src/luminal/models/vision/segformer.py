"""A class for every pixel: SegFormer (Xie et al. 2021, https://arxiv.org/abs/2105.15203), from
folders as Hugging Face writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ... import ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from .images import IMAGENET, Source, prepared, processor, read_image, stretched, with_usual
from .layers import config_of, names_of, renamed
from .named import Activation, Named
from .programs import BySize

NAMES = (
    (r"\.attention\.self\.query\.", ".attention.q_proj."),
    (r"\.attention\.self\.key\.", ".attention.k_proj."),
    (r"\.attention\.self\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.out_proj."),
    (r"\.attention\.self\.(sr|layer_norm)\.", r".attention.\1."),
)
USUAL = {**IMAGENET, "size": {"height": 512, "width": 512}}
HEADS, STRIDES = [1, 2, 5, 8], [4, 2, 2, 2]


def segformer(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """Scores (classes, height / 4, width / 4) of pixels (1, 3, height, width)."""
    heads = config.counts_or("num_attention_heads", HEADS)
    strides = config.counts_or("strides", STRIDES, len(heads))
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    body, x, maps = w["segformer"]["encoder"], pixels, []
    for stage, patch in enumerate(body["patch_embeddings"].each()):
        x = patch["proj"].conv2d(x, strides[stage])
        size = int(x.shape[2]), int(x.shape[3])
        x = patch["layer_norm"].layer_norm(x.flatten(2, 3).transpose(1, 2))
        for block in body["block"][stage].each():
            y = block["layer_norm_1"].layer_norm(x)
            x = x + _attended(block["attention"], y, heads[stage], size)
            x = x + _mixed(block["mlp"], block["layer_norm_2"].layer_norm(x), size, act)
        x = _image(body["layer_norm"][stage].layer_norm(x), size)
        maps.append(x)
    return _head(w["decode_head"], maps)[0]


def _image(x: Tensor, size: tuple[int, int]) -> Tensor:
    """(batch, cells, features) as (batch, features, height, width)."""
    return x.transpose(1, 2).unflatten(2, size)


def _attended(w: Named, x: Tensor, heads: int, size: tuple[int, int]) -> Tensor:
    """To all cells, or to fewer of them that stand for squares."""
    seen = x
    if w.has("sr"):
        seen = w["sr"].conv2d(_image(x, size), int(w["sr"].tensor().shape[2]), 0)
        seen = w["layer_norm"].layer_norm(seen.flatten(2, 3).transpose(1, 2))
    return w.attention(heads, x, seen)


def _mixed(w: Named, x: Tensor, size: tuple[int, int], act: Activation) -> Tensor:
    """Wider; a window of 3 in each feature; back."""
    wide = w["dwconv"]["dwconv"].conv2d(_image(w["dense1"].linear(x), size))
    return w["dense2"].linear(act(wide.flatten(2, 3).transpose(1, 2)))


def _head(w: Named, maps: list[Tensor]) -> Tensor:
    """All maps in the size of the finest, joined."""
    size, found = tuple(maps[0].shape[2:]), []
    for part, x in zip(w["linear_c"].each(), maps):
        own = int(x.shape[2]), int(x.shape[3])
        x = _image(part["proj"].linear(x.flatten(2, 3).transpose(1, 2)), own)
        found.append(ops.interpolate(x, size=size, mode="bilinear"))
    x = ops.relu(w.conv_norm(ops.cat(found[::-1], 1), "linear_fuse", "batch_norm"))
    return w["classifier"].conv2d(x)


class Scene:
    """SegFormer. A program serves one size of picture. Raises WeightsError, Unsupported.

    >>> Scene("segformer-b0-finetuned-ade-512-512")("street.jpg")
    """

    def __init__(self, directory: str | Path, **compiling: Any) -> None:
        self.directory = Path(directory)
        self.config, _ = config_of(self.directory, ["segformer"])
        state = renamed(read_tensors(self.directory), NAMES)
        if "decode_head.classifier.weight" not in state:
            raise WeightsError(f"{directory}: no decode_head.classifier.weight: no classes")
        self.names = names_of(self.config, len(state["decode_head.classifier.weight"]))
        self._prepared = with_usual(processor(self.directory), USUAL)

        def record(graph: Graph, pixels: Tensor) -> list[Tensor]:
            return [segformer(Named(graph, state), pixels, self.config)]

        self._programs = BySize(record, compiling)

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """(classes, height / 4, width / 4) f32 of prepared pixels (3, height, width)."""
        return self._programs(pixels)[0]

    def __call__(self, image: Source) -> np.ndarray:
        """(height, width) i64: the number of the class of each pixel, see `names`. Raises
        InputError."""
        picture = read_image(image)
        scores = self.scores(prepared(picture, self._prepared))
        best = np.full((picture.height, picture.width), -np.inf, np.float32)
        found = np.zeros(best.shape, np.int64)
        for n, own in enumerate(scores):  # one at a time: 150 classes of a large picture are much
            whole = stretched(own, *best.shape)
            found[whole > best] = n
            best = np.maximum(best, whole)
        return found
