"""Segment Anything: masks of what points and boxes mean. See `sam`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ... import ops
from ...graph import Tensor
from ...weights.fields import Fields
from .named import Named

NOTHING = -1  # the label of a point that is none
BACKGROUND, OBJECT, FIRST_CORNER, SECOND_CORNER = 0, 1, 2, 3  # those of points


class Prompts:
    """Points as tokens. w: the whole model's weights; side: pixels of the square that it sees."""

    def __init__(self, w: Named, side: int) -> None:
        self.side, below = side, w["prompt_encoder"]
        name, own = "positional_embedding", below["shared_embedding"]
        self._waves = w["shared_image_embedding"].array(name)
        self._own = own.array(name) if own.has(name) else self._waves
        self.nothing = below["not_a_point_embed"].array()[0]
        points = below["point_embed"]
        self.kinds = (
            points.array() if points.has("weight")
            else np.concatenate([each.array() for each in points.each()])
        )  # fmt: skip

    def grid(self, height: int, width: int) -> np.ndarray:
        """(1, height width, features) f32 of all cells of a map."""
        y, x = np.mgrid[:height, :width] + 0.5
        places = np.stack([x / width, y / height], -1)
        return _waves(places, self._waves).reshape(1, height * width, -1)

    def tokens(self, points: np.ndarray, labels: Sequence[int]) -> np.ndarray:
        """(points, features) f32 of points (points, 2) in pixels of the square."""
        found = _waves((points + 0.5) / self.side, self._own)
        for n, label in enumerate(labels):
            found[n] = self.nothing if label == NOTHING else found[n] + self.kinds[label]
        return found


def _waves(shares: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    """(..., features) f32 of places (..., 2) as shares of the square."""
    angles = (2 * shares.astype(np.float64) - 1) @ speeds.astype(np.float64) * (2 * math.pi)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


def masks(
    w: Named, maps: Sequence[Tensor], prompt: Tensor, grid: np.ndarray, config: Fields
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(logits (masks, height, width), how good each is (masks,), of the second version whether
    there is anything at all (1,)) of features and the tokens (1, tokens, width) of a prompt."""
    config = config.fields("mask_decoder_config")
    below = w["mask_decoder"]
    image = maps[-1] + w["prompt_encoder"]["no_mask_embed"].tensor().reshape(1, -1, 1, 1)
    height, width = (int(n) for n in image.shape[2:])
    second = int(below.has("obj_score_token"))
    kept = ["obj_score_token"] * second + ["iou_token", "mask_tokens"]
    own = ops.cat([below[name].tensor() for name in kept], 0).unsqueeze(0)
    tokens, cells = _two_ways(below["transformer"], ops.cat([own, prompt], 1),
                              image.flatten(2, 3).transpose(1, 2), grid, config)  # fmt: skip
    image = cells.transpose(1, 2).unflatten(2, (height, width))
    image = _enlarged(below, image, maps)[0]
    count = int(below["mask_tokens"].tensor().shape[0])
    heads = below["output_hypernetworks_mlps"]
    shares = [feed_forward(heads[n], tokens[:, 1 + second + n]) for n in range(count)]
    logits = ops.matmul(ops.cat(shares, 0), image.flatten(1, 2)).unflatten(1, image.shape[1:])
    good = feed_forward(below["iou_prediction_head"], tokens[:, second])[0]
    if not second:
        return logits, good, None
    return logits, ops.sigmoid(good), feed_forward(below["pred_obj_score_head"], tokens[:, 0])[0]


def feed_forward(w: Named, x: Tensor) -> Tensor:
    """Linear layers with ReLU between."""
    between = [f"layers.{n}" for n in range(len(w["layers"].each()))]
    return w.mlp(x, ops.relu, "proj_in", *between, "proj_out")


def _enlarged(w: Named, image: Tensor, maps: Sequence[Tensor]) -> Tensor:
    """Four times as high and wide; finer maps are added on the way."""
    image = w["upscale_conv1"].conv_transpose2d(image, 2)
    image = image + maps[1] if len(maps) > 1 else image
    image = ops.gelu(w["upscale_layer_norm"].channel_norm(image))
    image = w["upscale_conv2"].conv_transpose2d(image, 2)
    return ops.gelu(image + maps[0] if len(maps) > 1 else image)


def _two_ways(
    w: Named, tokens: Tensor, cells: Tensor, grid: np.ndarray, config: Fields
) -> tuple[Tensor, Tensor]:
    """Tokens look at the picture, and the picture at tokens."""
    heads = config.count("num_attention_heads", 8)
    eps = config.number("layer_norm_eps", 1e-6, low=0, high=1)
    places, x = tokens.graph.constant(grid), tokens
    for number, layer in enumerate(w["layers"].each()):
        own = x + tokens if number else x
        y = layer["self_attn"].attention(heads, own, own, x)
        x = layer["layer_norm1"].layer_norm(x + y if number else y, eps)
        y = layer["cross_attn_token_to_image"].attention(heads, x + tokens, cells + places, cells)
        x = layer["layer_norm2"].layer_norm(x + y, eps)
        names = ("lin1", "lin2") if layer["mlp"].has("lin1") else ("proj_in", "proj_out")
        x = layer["layer_norm3"].layer_norm(x + layer["mlp"].mlp(x, ops.relu, *names), eps)
        y = layer["cross_attn_image_to_token"].attention(heads, cells + places, x + tokens, x)
        cells = layer["layer_norm4"].layer_norm(cells + y, eps)
    y = w["final_attn_token_to_image"].attention(heads, x + tokens, cells + places, cells)
    return w["layer_norm_final_attn"].layer_norm(x + y), cells
