"""Swin transformers (Liu et al. 2021, https://arxiv.org/abs/2103.14030) and their second version
(Liu et al. 2021, https://arxiv.org/abs/2111.09883), as classifiers."""

from __future__ import annotations

import math

import numpy as np

from ... import ops
from ...errors import WeightsError
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...nn.attention import heads as split_heads
from ...nn.attention import merged
from ...weights.fields import Fields
from .named import Activation, Named
from .windows import cut, joined

NAMES = (
    (r"^swin(v2)?\.", ""),
    (r"\.attention\.self\.query\.", ".attention.q_proj."),
    (r"\.attention\.self\.key\.", ".attention.k_proj."),
    (r"\.attention\.self\.value\.", ".attention.v_proj."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attention.out_proj."),
    (r"\.attention\.(self|relative_position_bias)\.", ".attention."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"(\.blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
)
FAR = -100.0  # what is added to scores of those that are no neighbours
SHARPEST = math.log(100)  # scores of the second version are cosines times at most 100


def swin(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """Scores (1, classes) of pixels (1, 3, height, width)."""
    window, second = config.count("window_size", 7), config.text("model_type") == "swinv2"
    depths = config.counts_or("depths", [2, 2, 6, 2])
    heads = config.counts_or("num_heads", [3, 6, 12, 24], len(depths))
    trained = config.counts_or("pretrained_window_sizes", [0] * len(depths))
    eps = config.number("layer_norm_eps", 1e-5, low=0, high=1)
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    patch = w["embeddings"]["patch_embeddings"]["projection"]
    x = patch.conv2d(pixels, int(patch.tensor().shape[2]), 0).permute(0, 2, 3, 1)
    x = w["embeddings"]["norm"].layer_norm(x)
    if w.has("embeddings.position_embeddings"):
        places = w.tensor("embeddings.position_embeddings")
        x = x + places.unflatten(1, (int(x.shape[1]), int(x.shape[2])))
    trained_side = config.count("image_size", 224) // int(patch.tensor().shape[2])
    for stage, layers in enumerate(w["encoder"]["layers"].each()):
        side = trained_side >> stage if second else min(int(n) for n in x.shape[1:3])
        size, small = min(window, side), side <= window
        for place, block in enumerate(layers["blocks"].each()):
            shift = window // 2 if place % 2 and not small else 0
            bias = _table(block["attention"], size, trained[stage])
            x = _block(block, x, heads[stage], size, shift, bias, eps, act, second)
        x = _halved(layers["downsample"], x, second) if layers.has("downsample") else x
    x = w["layernorm"].layer_norm(x, eps)
    return w["classifier"].linear(x.mean([1, 2]))


def _halved(w: Named, x: Tensor, second: bool) -> Tensor:
    """Four neighbours become one with twice the features."""
    around = [(0, 0), (0, int(x.shape[1]) % 2), (0, int(x.shape[2]) % 2), (0, 0)]
    x = x.pad(around) if any(after for _, after in around) else x
    x = ops.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)
    if second:
        return w["norm"].layer_norm(w["reduction"].linear(x))
    return w["reduction"].linear(w["norm"].layer_norm(x))


def _block(
    w: Named, x: Tensor, heads: int, window: int, shift: int, bias: np.ndarray, eps: float,
    act: Activation, second: bool,
) -> Tensor:  # fmt: skip
    """Attention in windows and an MLP; norms before them, or behind in the second version."""
    before, after = w["layernorm_before"], w["layernorm_after"]
    if second:
        y = _attended(w["attention"], x, heads, window, shift, bias, True)
        x = x + before.layer_norm(y, eps)
        return x + after.layer_norm(w["mlp"].mlp(x, act, "fc1", "fc2"), eps)
    y = before.layer_norm(x, eps)
    x = x + _attended(w["attention"], y, heads, window, shift, bias, False)
    return x + w["mlp"].mlp(after.layer_norm(x, eps), act, "fc1", "fc2")


def _attended(
    w: Named, x: Tensor, heads: int, window: int, shift: int, bias: np.ndarray, second: bool
) -> Tensor:
    """Within windows of x (1, rows, columns, features), which may be shifted by half of their
    size; those at the edges then hold parts of both sides, which do not see each other."""
    rows, columns = int(x.shape[1]), int(x.shape[2])
    down, across = -rows % window, -columns % window
    x = x.pad([(0, 0), (0, down), (0, across), (0, 0)]) if down or across else x
    x = ops.roll(x, (-shift, -shift), (1, 2)) if shift else x
    high, wide = rows + down, columns + across
    if shift:
        bias = bias + _edges(high, wide, window, shift)
    parts = cut(x, window, window).flatten(1, 2)
    q, k, v = (split_heads(w[f"{n}_proj"].linear(parts), heads) for n in "qkv")
    scale = None
    if second:
        sharp = ops.exp(ops.clamp(w.tensor("logit_scale"), max=SHARPEST))
        q, k, scale = ops.normalize(q, dim=-1) * sharp, ops.normalize(k, dim=-1), 1.0
    mixed = ops.scaled_dot_product_attention(q, k, v, x.graph.constant(bias), scale=scale)
    mixed = w["out_proj"].linear(merged(mixed)).unflatten(1, (window, window))
    mixed = joined(mixed, high, wide)
    mixed = ops.roll(mixed, (shift, shift), (1, 2)) if shift else mixed
    return mixed[:, :rows, :columns]


def _edges(rows: int, columns: int, window: int, shift: int) -> np.ndarray:
    """(windows, 1, window^2, window^2) f32: FAR between those that are no neighbours."""

    def part(count: int) -> np.ndarray:
        place = np.arange(count)
        return (place >= count - window).astype(int) + (place >= count - shift)

    region = part(rows)[:, None] * 3 + part(columns)
    region = region.reshape(rows // window, window, columns // window, window)
    region = region.transpose(0, 2, 1, 3).reshape(-1, 1, window * window)
    apart = region[:, :, :, None] != region[:, :, None, :]
    return np.where(apart, np.float32(FAR), np.float32(0))


def _table(w: Named, window: int, trained: int) -> np.ndarray:
    """(1, heads, window^2, window^2) f32: what is added to scores, by how far apart cells are. The
    second version's is made by a small net of the distances."""
    side = 2 * window - 1
    if w.has("relative_position_bias_table"):
        table = w.array("relative_position_bias_table")
    else:
        distance = np.arange(1 - window, window) / max(1, (trained or window) - 1) * 8
        distance = np.sign(distance) * np.log2(np.abs(distance) + 1) / 3
        both = np.stack(np.meshgrid(distance, distance, indexing="ij"), -1).reshape(-1, 2)
        net = w["continuous_position_bias_mlp"]
        wide = np.maximum(both @ net["0"].array().T + net["0"].array("bias"), 0)
        table = 16 / (1 + np.exp(-(wide @ net["2"].array().T)))
    y, x = (t.ravel() for t in np.mgrid[:window, :window])
    place = (y[:, None] - y + window - 1) * side + x[:, None] - x + window - 1
    if len(table) != side * side:
        raise WeightsError(f"{w.name}: {len(table)} rows of distances; a window has {side * side}")
    return table[place].transpose(2, 0, 1)[None].astype(np.float32)
