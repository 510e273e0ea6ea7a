"""Segment Anything (Kirillov et al. 2023, https://arxiv.org/abs/2304.02643; its second version:
Ravi et al. 2024, https://arxiv.org/abs/2408.00714): the encoders of pictures, under the names of
Hugging Face's checkpoints."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...nn.attention import merged, unpacked
from ...weights.fields import Fields
from .named import Activation, Named
from .windows import cut, joined

# ---- the first version: a transformer, most of whose layers look into windows


def encoded(w: Named, pixels: Tensor, config: Fields) -> list[Tensor]:
    """[features (1, channels, height / 16, width / 16)] of pixels (1, 3, height, width)."""
    config, w = config.fields("vision_config"), w["vision_encoder"]
    heads, window = config.count("num_attention_heads", 12), config.count("window_size", 14, low=0)
    whole = config.counts_or("global_attn_indexes", [2, 5, 8, 11])
    eps = config.number("layer_norm_eps", 1e-6, low=0, high=1)
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    patch = w["patch_embed"]["projection"]
    x = patch.conv2d(pixels, int(patch.tensor().shape[2]), 0).permute(0, 2, 3, 1)
    x = x + w.tensor("pos_embed") if w.has("pos_embed") else x
    for place, layer in enumerate(w["layers"].each()):
        y = layer["layer_norm1"].layer_norm(x, eps)
        y = _windowed(layer["attn"], y, heads, 0 if place in whole else window)
        x = x + y
        y = layer["layer_norm2"].layer_norm(x, eps)
        x = x + layer["mlp"].mlp(y, act, "lin1", "lin2")
    neck, x = w["neck"], x.permute(0, 3, 1, 2)
    for n in "12":
        x = neck[f"layer_norm{n}"].channel_norm(neck[f"conv{n}"].conv2d(x))
    return [x]


def _windowed(w: Named, x: Tensor, heads: int, window: int) -> Tensor:
    """Attention (batch, rows, columns, features) in windows of this size, or in all (0)."""
    rows, columns = int(x.shape[1]), int(x.shape[2])
    x = cut(x, window, window) if window else x
    height, width = int(x.shape[1]), int(x.shape[2])
    q, k, v = unpacked(w["qkv"].linear(x).flatten(1, 2), heads)
    near = _relative(w, q, height, width) if w.has("rel_pos_h") else None
    mixed = merged(ops.scaled_dot_product_attention(q, k, v, near))
    mixed = w["proj"].linear(mixed.unflatten(1, (height, width)))
    return joined(mixed, rows, columns) if window else mixed


def _relative(w: Named, q: Tensor, height: int, width: int) -> Tensor:
    """What a query makes of how far keys are away, along both sides: (batch, heads, tokens,
    tokens)."""
    query = q.unflatten(2, (height, width))
    down, across = (
        q.graph.constant(_distances(w.array(name), size))
        for name, size in (("rel_pos_h", height), ("rel_pos_w", width))
    )
    rows = ops.einsum("bnhwc,hkc->bnhwk", query, down).unsqueeze(-1)
    columns = ops.einsum("bnhwc,wkc->bnhwk", query, across).unsqueeze(-2)
    return (rows + columns).flatten(4, 5).flatten(2, 3)


def _distances(table: np.ndarray, size: int) -> np.ndarray:
    """(queries, keys, head_dim) of a row for each distance 1 - size .. size - 1; rows of a table
    of another length are interpolated."""
    count = 2 * size - 1
    if len(table) != count:
        at = np.clip((np.arange(count) + 0.5) * len(table) / count - 0.5, 0, len(table) - 1)
        low = np.floor(at).astype(int)
        share = (at - low)[:, None]
        table = table[low] * (1 - share) + table[np.minimum(low + 1, len(table) - 1)] * share
    places = np.arange(size)
    return np.asarray(table[places[:, None] - places + size - 1], np.float32)


# ---- the second version: Hiera, whose stages halve the map


def encoded2(w: Named, pixels: Tensor, config: Fields) -> list[Tensor]:
    """[features of the strides 4, 8 and 16 (1, channels, height, width)], the first two with fewer
    channels."""
    given = config.fields("vision_config")
    maps = _hiera(w["vision_encoder"]["backbone"], pixels, given.fields("backbone_config"))
    convs = w["vision_encoder"]["neck"]["convs"]
    found: list[Tensor] = []
    last = len(maps) - 1
    for place in range(last, -1, -1):
        x = convs[last - place].conv2d(maps[place].permute(0, 3, 1, 2))
        if place in given.counts_or("fpn_top_down_levels", [2, 3]) and found:
            x = x + ops.interpolate(found[-1], scale_factor=2.0)
        found.append(x)
    fine, finer, coarse = found[-1], found[-2], found[-3]
    coarse = coarse + w.tensor("no_memory_embedding").reshape(1, -1, 1, 1)
    decoder = w["mask_decoder"]
    return [decoder["conv_s0"].conv2d(fine), decoder["conv_s1"].conv2d(finer), coarse]


def _hiera(w: Named, pixels: Tensor, config: Fields) -> list[Tensor]:
    """Maps (1, rows, columns, features) at the end of each stage (Ryali et al. 2023,
    https://arxiv.org/abs/2306.00989)."""
    depths = config.counts_or("blocks_per_stage", [1, 2, 7, 2])
    count = len(depths)
    heads = config.counts_or("num_attention_heads_per_stage", [1, 2, 4, 8], count)
    windows = config.counts_or("window_size_per_stage", [8, 4, 14, 7], count)
    whole = config.counts_or("global_attention_blocks", [5, 7, 9])
    pooled = config.count("num_query_pool_stages", 3, low=0)
    stride = config.counts_or("patch_stride", [4, 4], 2)[0]
    padding = config.counts_or("patch_padding", [3, 3], 2)[0]
    eps = config.number("layer_norm_eps", 1e-6, low=0, high=1)
    act = activation_of(config.text("hidden_act", "gelu", among=BY_NAME))
    x = w["patch_embed"]["projection"].conv2d(pixels, stride, padding).permute(0, 2, 3, 1)
    x = x + _places(w, int(x.shape[1]), int(x.shape[2]))
    maps, number = [], 0
    for stage, depth in enumerate(depths):
        for block in range(depth):
            first = stage > 0 and block == 0
            window = 0 if number in whole else windows[stage - first]
            step = 2 if first and stage <= pooled else 1
            x = _block(w["blocks"][number], x, heads[stage], window, step, eps, act)
            number += 1
        maps.append(x)
    return maps


def _places(w: Named, rows: int, columns: int) -> Tensor:
    """Learned for a few places, stretched over all; and for each place within a window."""
    whole, window = w.tensor("pos_embed"), w.tensor("pos_embed_window")
    whole = ops.interpolate(whole, size=(rows, columns), mode="bicubic")
    times = rows // int(window.shape[2]), columns // int(window.shape[3])
    return (whole + ops.tile(window, (1, 1, *times))).permute(0, 2, 3, 1)


def _block(
    w: Named, x: Tensor, heads: int, window: int, step: int, eps: float, act: Activation
) -> Tensor:
    y = w["layer_norm1"].layer_norm(x, eps)
    if w.has("proj"):
        x = _pooled(w["proj"].linear(y), step)
    rows, columns = int(x.shape[1]), int(x.shape[2])
    y = cut(y, window, window) if window else y
    y = _attended(w["attn"], y, heads, step)
    x = x + (joined(y, rows, columns) if window else y)
    return x + w["mlp"].mlp(w["layer_norm2"].layer_norm(x, eps), act, "proj_in", "proj_out")


def _attended(w: Named, x: Tensor, heads: int, step: int) -> Tensor:
    """Within each map (batch, rows, columns, features); queries are maxima of step x step."""
    rows, columns = int(x.shape[1]), int(x.shape[2])
    q, k, v = unpacked(w["qkv"].linear(x).flatten(1, 2), heads)
    if step > 1:
        image = merged(q).unflatten(1, (rows, columns))
        rows, columns = rows // step, columns // step
        q = _pooled(image, step).flatten(1, 2).unflatten(2, (heads, -1)).transpose(1, 2)
    mixed = merged(ops.scaled_dot_product_attention(q, k, v))
    return w["proj"].linear(mixed.unflatten(1, (rows, columns)))


def _pooled(x: Tensor, step: int) -> Tensor:
    if step == 1:
        return x
    return ops.max_pool2d(x.permute(0, 3, 1, 2), step).permute(0, 2, 3, 1)
