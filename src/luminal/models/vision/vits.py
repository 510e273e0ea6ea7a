"""Vision transformers under one set of names: ViT, DINOv2 (Oquab et al. 2023,
https://arxiv.org/abs/2304.07193) and DINOv3 (Simeoni et al. 2025,
https://arxiv.org/abs/2508.10104)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import ops
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...ops.resize import smooth_shares
from ...weights.fields import Fields
from .named import Activation, Named

NAMES = (
    (r"^(vit|dinov2|dinov2_with_registers|dinov3_vit|backbone)\.", ""),
    (r"^(model\.)?(encoder\.layer|layers?)\.", "blocks."),
    (r"\.attention\.(attention\.query|q_proj)\.", ".attention.q_proj."),
    (r"\.attention\.(attention\.key|k_proj)\.", ".attention.k_proj."),
    (r"\.attention\.(attention\.value|v_proj)\.", ".attention.v_proj."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attention.out_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.lambda1$", ""),
    (r"\.mlp\.(up_proj|weights_in)\.", ".mlp.fc1."),
    (r"\.mlp\.(down_proj|weights_out)\.", ".mlp.fc2."),
    (r"^embeddings\.(patch_embeddings\.)?", ""),
    (r"^projection\.", ""),
    (r"^norm\.", "layernorm."),
)
EPS = {"dinov2": 1e-6, "dinov2_with_registers": 1e-6, "dinov3_vit": 1e-5}


def states(w: Named, pixels: Tensor, config: Fields) -> tuple[list[Tensor], Tensor, int]:
    """(what layers are given and make, each (1, tokens, width); the last one normalised; how many
    tokens stand before those of patches) of pixels (1, 3, height, width)."""
    kind = config.text("model_type")
    eps = config.number("layer_norm_eps", EPS.get(kind, 1e-12), low=0, high=1)
    heads = config.count("num_attention_heads", 6 if kind == "dinov3_vit" else 12)
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    x = w.conv2d(pixels, int(w.tensor().shape[2]), 0)
    grid = int(x.shape[2]), int(x.shape[3])
    first = [w.tensor(n) for n in ("cls_token", "register_tokens") if w.has(n)]
    x = x.flatten(2, 3).transpose(1, 2)
    if w.has("position_embeddings"):
        places = _places(w.tensor("position_embeddings"), *grid, kind == "dinov2_with_registers")
        x = ops.cat([first[0], x], 1) + places
        x = ops.cat([x[:, :1], *first[1:], x[:, 1:]], 1) if len(first) > 1 else x
    else:
        x = ops.cat([*first, x], 1)
    before = sum(int(token.shape[1]) for token in first)
    seen: dict[str, Any] = {}
    if kind == "dinov3_vit":
        head_dim = int(x.shape[2]) // heads
        theta = config.number("rope_theta", 100, low=1)
        seen["rotary"] = _turning(x, *_angles(*grid, before, head_dim, theta))
    found = [x]
    for layer in w["blocks"].each():
        found.append(_layer(layer, found[-1], heads, eps, act, seen))
    return found, w["layernorm"].layer_norm(found[-1], eps), before


def _layer(
    w: Named, x: Tensor, heads: int, eps: float, act: Activation, seen: dict[str, Any]
) -> Tensor:
    """Attention and an MLP, each after a norm; what they add may be scaled, feature by feature."""
    y = w["attention"].attention(heads, w["norm1"].layer_norm(x, eps), **seen)
    x = x + (y * w.tensor("layer_scale1") if w.has("layer_scale1") else y)
    y = _widened(w["mlp"], w["norm2"].layer_norm(x, eps), act)
    return x + (y * w.tensor("layer_scale2") if w.has("layer_scale2") else y)


def _widened(w: Named, x: Tensor, act: Activation) -> Tensor:
    """Through a wider layer, which may have gates: a matrix of their own, or half of the first."""
    wide = w["fc1"].linear(x)
    if w.has("gate_proj"):
        return w["fc2"].linear(act(w["gate_proj"].linear(x)) * wide)
    if int(wide.shape[-1]) == 2 * int(w["fc2"].tensor().shape[1]):
        gate, wide = ops.chunk(wide, 2, -1)
        return w["fc2"].linear(ops.silu(gate) * wide)
    return w["fc2"].linear(act(wide))


def _places(learned: Tensor, height: int, width: int, smooth: bool) -> Tensor:
    """(1, 1 + height width, width) of a square of learned places behind that of the class. smooth:
    of fewer places each stands for all that it covers."""
    side = math.isqrt(int(learned.shape[1]) - 1)
    if (height, width) == (side, side):
        return learned
    image = learned[:, 1:].unflatten(1, (side, side))
    if smooth:
        shares = (smooth_shares("bicubic", side, n).astype(np.float32) for n in (height, width))
        rows, columns = map(learned.graph.constant, shares)
        image = ops.einsum("ay,bx,nyxd->nabd", rows, columns, image).flatten(1, 2)
        return ops.cat([learned[:, :1], image], 1)
    image = image.permute(0, 3, 1, 2)
    image = ops.interpolate(image, size=(height, width), mode="bicubic")
    return ops.cat([learned[:, :1], image.flatten(2, 3).transpose(1, 2)], 1)


def _angles(
    height: int, width: int, before: int, head_dim: int, theta: float
) -> tuple[np.ndarray, np.ndarray]:
    """(cosines, sines), each (tokens, head_dim), of rotary positions -1 .. 1 along both sides;
    tokens before those of patches do not turn."""
    speeds = theta ** -np.arange(0, 1, 4 / head_dim)
    y, x = np.mgrid[:height, :width] + 0.5
    places = np.stack([y / height, x / width], -1).reshape(-1, 2) * 2 - 1
    angles = (2 * math.pi * places[:, :, None] * speeds).reshape(len(places), -1)
    angles = np.concatenate([np.zeros((before, head_dim)), np.tile(angles, 2)])
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _turning(x: Tensor, cos: np.ndarray, sin: np.ndarray) -> Any:
    c, s = x.graph.constant(cos), x.graph.constant(sin)
    return lambda part: part * c + ops.rotate_half(part) * s


# ---- classifiers


def vit(w: Named, pixels: Tensor, config: Fields) -> Tensor:
    """Scores (1, classes). DINO's look at the mean of patches too."""
    _, last, before = states(w, pixels, config)
    seen = last[:, 0]
    if config.text("model_type").startswith("dino"):
        seen = ops.cat([seen, last[:, before:].mean(1)], -1)
    return w["classifier"].linear(seen)
