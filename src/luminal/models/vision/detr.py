"""Detectors that look at all of a picture at once, from folders as Hugging Face writes them: DETR
(Carion et al. 2020, https://arxiv.org/abs/2005.12872)."""

from __future__ import annotations

import math

import numpy as np

from ... import ops
from ...errors import Unsupported
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .named import Activation, Named
from .resnet import resnet

POSITIONS = 10000.0  # the longest wave of sines, over 2 pi


def detr(
    w: Named, pixels: Tensor, config: Fields, shown: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """(logits (queries, classes + 1), the last of which is "nothing"; boxes (queries, 4): centres
    and sizes as shares of the picture) of pixels (1, 3, height, width), of which a picture takes
    the first `shown` (height, width), and padding the rest. Raises Unsupported."""
    if config.text("position_embedding_type", "sine") != "sine" or config.flag("dilation"):
        raise Unsupported("DETR with learned positions or dilated convolutions")
    act = activation_of(config.text("activation_function", "relu", among=BY_NAME))
    heads = config.count("encoder_attention_heads", 8)
    model = w["model"]
    maps = resnet(model["backbone"], pixels, config.fields("backbone_config"))
    seen = model["input_projection"].conv2d(maps[-1])
    height, width = (
        _cells(int(count), int(size), part)
        for count, size, part in zip(seen.shape[2:], pixels.shape[2:], shown)
    )
    seen = seen.narrow(2, 0, height).narrow(3, 0, width)  # beyond these nobody looks
    places = pixels.graph.constant(sines(height, width, int(seen.shape[1])))
    x = seen.flatten(2, 3).transpose(1, 2)  # (1, cells, width)
    for layer in model["encoder"]["layers"].each():
        x = mixed(layer, x, heads, act, places)
    wanted = model["query_position_embeddings"].tensor().unsqueeze(0)
    heads = config.count("decoder_attention_heads", 8)
    found = ops.zeros_like(wanted)
    for layer in model["decoder"]["layers"].each():
        found = self_attended(layer, found, heads, wanted)
        looked = layer["encoder_attn"].attention(heads, found + wanted, x + places, x)
        found = layer["encoder_attn_layer_norm"].layer_norm(found + looked)
        found = widened(layer, found, act)
    found = model["decoder"]["layernorm"].layer_norm(found)
    return w["class_labels_classifier"].linear(found)[0], ops.sigmoid(
        box_head(w["bbox_predictor"], found)
    )[0]


def _cells(count: int, size: int, part: int) -> int:
    """How many of the cells of a side begin within its first part."""
    starts = np.floor(np.arange(count, dtype=np.float32) * (np.float32(size) / np.float32(count)))
    return int((starts < part).sum())


def sines(height: int, width: int, features: int) -> np.ndarray:
    """(1, height width, features) f32: half of the features for the row, half for the column, as
    sines and cosines of waves that grow longer, from 1 .. size as shares of 2 pi."""
    half = features // 2
    waves = POSITIONS ** (2 * (np.arange(half) // 2) / half)

    def along(count: int) -> np.ndarray:
        angles = np.arange(1, count + 1)[:, None] / (count + 1e-6) * 2 * math.pi / waves
        both = np.stack([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], 2)
        return np.asarray(both.reshape(count, half))

    rows = np.broadcast_to(along(height)[:, None], (height, width, half))
    columns = np.broadcast_to(along(width)[None], (height, width, half))
    return np.concatenate([rows, columns], 2).reshape(1, -1, features).astype(np.float32)


# ---- pieces of this decoder and of RT-DETR's


def self_attended(w: Named, x: Tensor, heads: int, places: Tensor, eps: float = 1e-5) -> Tensor:
    """Queries and keys know their places, values do not."""
    both = x + places
    return w["self_attn_layer_norm"].layer_norm(
        x + w["self_attn"].attention(heads, both, both, x), eps
    )


def widened(w: Named, x: Tensor, act: Activation, eps: float = 1e-5) -> Tensor:
    """Through a wider layer."""
    return w["final_layer_norm"].layer_norm(x + w.mlp(x, act, "fc1", "fc2"), eps)


def mixed(
    w: Named, x: Tensor, heads: int, act: Activation, places: Tensor, eps: float = 1e-5
) -> Tensor:
    """A layer of an encoder."""
    return widened(w, self_attended(w, x, heads, places, eps), act, eps)


def box_head(w: Named, x: Tensor) -> Tensor:
    """Linear layers with ReLU between."""
    below = w["layers"]
    return below.mlp(x, ops.relu, *(str(n) for n in range(len(below.each()))))
