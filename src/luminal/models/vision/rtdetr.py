"""RT-DETR (Zhao et al. 2023, https://arxiv.org/abs/2304.08069) and its second version (Lv et al.
2024, https://arxiv.org/abs/2407.17140), under the names of Hugging Face's checkpoints."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...errors import Unsupported
from ...graph import Tensor
from ...nn.activation import BY_NAME, activation_of
from ...weights.fields import Fields
from .detr import box_head, mixed, self_attended, widened
from .named import Activation, Named
from .resnet import resnet

SMALLEST = 0.05  # share of a picture's side that a box of the finest map is at first
EDGE = 1e-2  # anchors whose numbers lie so near to 0 or 1 are left out
FAR = 1e-5
SEQUENTIAL = "0", "1"


def rt_detr(w: Named, pixels: Tensor, config: Fields) -> tuple[Tensor, Tensor]:
    """(logits (queries, classes), boxes (queries, 4): centres and sizes as shares of the picture)
    of pixels (1, 3, height, width). Raises Unsupported."""
    if config.flag("learn_initial_query"):
        raise Unsupported("RT-DETR with queries that do not come from the picture")
    eps = config.number("batch_norm_eps", 1e-5, low=0, high=1)
    model = w["model"]
    maps = resnet(model["backbone"], pixels, config.fields("backbone_config"))
    inputs = model["encoder_input_proj"].each()
    maps = [part.conv_norm(x, *SEQUENTIAL) for part, x in zip(inputs, maps[-len(inputs) :])]
    maps = _encoded(model["encoder"], maps, config, eps)
    parts = model["decoder_input_proj"].each()
    maps += [maps[-1]] * (len(parts) - len(maps))
    strides = [1] * len(inputs) + [2] * (len(parts) - len(inputs))
    maps = [part.conv_norm(x, *SEQUENTIAL, stride=stride, eps=eps)
            for part, x, stride in zip(parts, maps, strides)]  # fmt: skip
    seen = ops.cat([x.flatten(2, 3).transpose(1, 2) for x in maps], 1)  # (1, cells, width)
    sizes = [(int(x.shape[2]), int(x.shape[3])) for x in maps]
    return _decoded(model, seen, sizes, config)


# ---- the encoder


def _encoded(w: Named, maps: list[Tensor], config: Fields, eps: float) -> list[Tensor]:
    """Attention within the coarsest maps; then coarse ones into fine ones, and back."""
    if config.flag("normalize_before") or config.has("eval_size"):
        raise Unsupported("RT-DETR with norms before layers or with an eval_size")
    act = activation_of(config.text("activation_function", "silu", among=BY_NAME))
    for place, part in zip(config.counts_or("encode_proj_layers", [2]), w["encoder"].each()):
        maps[place] = _attended(part, maps[place], config)
    steps, fine = len(maps) - 1, [maps[-1]]
    for number, join in enumerate(w["fpn_blocks"].each()):
        fine[-1] = act(w["lateral_convs"][number].conv_norm(fine[-1], "conv", "norm", eps=eps))
        larger = ops.interpolate(fine[-1], scale_factor=2.0)
        fine.append(_joined(join, ops.cat([larger, maps[steps - number - 1]], 1), act, eps))
    found = [fine.pop()]
    for number, join in enumerate(w["pan_blocks"].each()):
        halve = w["downsample_convs"][number]
        smaller = act(halve.conv_norm(found[-1], "conv", "norm", 2, eps=eps))
        found.append(_joined(join, ops.cat([smaller, fine.pop()], 1), act, eps))
    return found


def _attended(w: Named, x: Tensor, config: Fields) -> Tensor:
    height, width = (int(n) for n in x.shape[2:])
    heads = config.count("encoder_attention_heads", 8)
    act = activation_of(config.text("encoder_activation_function", "gelu", among=BY_NAME))
    longest = config.number("positional_encoding_temperature", 10000, low=1)
    places = x.graph.constant(_waves(height, width, int(x.shape[1]), longest))
    tokens = x.flatten(2, 3).transpose(1, 2)
    for layer in w["layers"].each():
        tokens = mixed(layer, tokens, heads, act, places, _eps(config))
    return tokens.transpose(1, 2).unflatten(2, (height, width))


def _waves(height: int, width: int, features: int, longest: float) -> np.ndarray:
    """(1, height width, features) f32: sines, cosines of the row, then of the column."""
    quarter = features // 4
    speed = longest ** -(np.arange(quarter) / quarter)
    rows = np.repeat(np.arange(height), width)[:, None] * speed
    columns = np.tile(np.arange(width), height)[:, None] * speed
    parts = np.sin(rows), np.cos(rows), np.sin(columns), np.cos(columns)
    return np.concatenate(parts, 1)[None].astype(np.float32)


def _joined(w: Named, x: Tensor, act: Activation, eps: float) -> Tensor:
    """Two ways, one of them through pairs of convolutions; their sum."""
    first, second = (act(w[n].conv_norm(x, "conv", "norm", eps=eps)) for n in ("conv1", "conv2"))
    for pair in w["bottlenecks"].each():
        three, one = (pair[n].conv_norm(first, "conv", "norm", eps=eps) for n in ("conv1", "conv2"))
        first = act(three + one)
    both = first + second
    return act(w["conv3"].conv_norm(both, "conv", "norm", eps=eps)) if w.has("conv3") else both


# ---- the decoder


def _decoded(
    model: Named, seen: Tensor, sizes: list[tuple[int, int]], config: Fields
) -> tuple[Tensor, Tensor]:
    """The cells of the highest scores become queries; each layer moves their boxes."""
    eps, w = _eps(config), model["decoder"]
    heads = config.count("decoder_attention_heads", 8)
    act = activation_of(config.text("decoder_activation_function", "relu", among=BY_NAME))
    x, boxes = _queries(model, seen, sizes, config, eps)
    logits = x
    for number, layer in enumerate(w["layers"].each()):
        head = w["query_pos_head"]["layers"]
        places = head.mlp(boxes, ops.relu, "0", "1")
        x = self_attended(layer, x, heads, places, eps)
        looked = _deformable(layer["encoder_attn"], x + places, seen, sizes, boxes, heads, config)
        x = layer["encoder_attn_layer_norm"].layer_norm(x + looked, eps)
        x = widened(layer, x, act, eps)
        moved = box_head(w["bbox_embed"][number], x)
        boxes = ops.sigmoid(moved + ops.log(_above(boxes) / _above(1 - boxes)))
        logits = w["class_embed"][number].linear(x)
    return logits[0], boxes[0]


def _above(x: Tensor) -> Tensor:
    return ops.clamp(x, FAR, 1)


def _eps(config: Fields) -> float:
    return config.number("layer_norm_eps", 1e-5, low=0, high=1)


def _queries(
    w: Named, seen: Tensor, sizes: list[tuple[int, int]], config: Fields, eps: float
) -> tuple[Tensor, Tensor]:
    """(queries (1, queries, width), boxes (1, queries, 4))."""
    anchors, inside = _anchors(sizes)
    graph, count = seen.graph, config.count("num_queries", 300)
    if count > len(inside):
        raise config.wrong("num_queries", f"at most {len(inside)}, the cells of a picture")
    seen = seen * graph.constant(inside)
    seen = w["enc_output"]["1"].layer_norm(w["enc_output"]["0"].linear(seen), eps)
    boxes = box_head(w["enc_bbox_head"], seen) + graph.constant(anchors)
    _, place = ops.topk(w["enc_score_head"].linear(seen).amax(-1)[0], count)
    chosen, boxes = (ops.index_select(t, 1, place) for t in (seen, boxes))
    return chosen, ops.sigmoid(boxes)


def _anchors(sizes: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """(a box around each cell (cells, 4) before a sigmoid, 1 where it is well inside of the picture
    (cells, 1)); f32."""
    found = []
    for level, (height, width) in enumerate(sizes):
        down, across = (np.arange(n, dtype=np.float32) + np.float32(0.5) for n in (height, width))
        size = np.full(height * width, SMALLEST * 2.0**level, np.float32)
        found.append(np.stack(
            [np.tile(across / width, height), np.repeat(down / height, width), size, size], 1
        ))  # fmt: skip
    boxes = np.concatenate(found)
    inside = ((boxes > EDGE) & (boxes < 1 - EDGE)).all(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(boxes / (1 - boxes))
    far = np.full_like(odds, np.finfo(np.float32).max)
    return np.asarray(np.where(inside, odds, far)), np.asarray(inside, np.float32)


def _deformable(
    w: Named, x: Tensor, seen: Tensor, sizes: list[tuple[int, int]], boxes: Tensor, heads: int,
    config: Fields,
) -> Tensor:  # fmt: skip
    """Attention to a few points of every map, around the box of each query."""
    points, levels = config.count("decoder_n_points", 4), len(sizes)
    scale = config.number("decoder_offset_scale", 0.5) / points
    discrete = config.text("decoder_method", "default", among=("default", "discrete")) != "default"
    values = w["value_proj"].linear(seen)[0].unflatten(-1, (heads, -1)).permute(1, 2, 0)
    offsets = w["sampling_offsets"].linear(x)[0].unflatten(-1, (heads, levels, points, 2))
    shares = w["attention_weights"].linear(x)[0].unflatten(-1, (heads, levels * points))
    shares = ops.softmax(shares, -1).transpose(0, 1)  # (heads, queries, levels * points)
    box = boxes[0].reshape(-1, 1, 1, 1, 4)
    where = (box[..., :2] + offsets * scale * box[..., 2:]).transpose(0, 1)
    found, start = [], 0
    for level, (height, width) in enumerate(sizes):
        image = values.narrow(2, start, height * width).unflatten(2, (height, width))
        at = where.select(2, level)  # (heads, queries, points, 2)
        found.append(_nearest(image, at) if discrete else ops.grid_sample(image, at * 2 - 1))
        start += height * width
    # (heads, head_dim, queries, levels * points)
    taken = (ops.cat(found, -1) * shares.unsqueeze(1)).sum(-1)
    return w["output_proj"].linear(taken.flatten(0, 1).transpose(0, 1).unsqueeze(0))


def _nearest(image: Tensor, at: Tensor) -> Tensor:
    """image (heads, features, height, width) in the cells of points (heads, queries, points, 2)."""
    height, width = (int(n) for n in image.shape[2:])
    x, y = (
        ops.clamp(ops.trunc(at.select(-1, n) * size + 0.5), 0, size - 1).cast("i64")
        for n, size in enumerate((width, height))
    )
    flat = (y * width + x).flatten(1, 2).unsqueeze(1)
    cells = image.flatten(2, 3)
    found = ops.gather(cells, 2, flat.expand(cells.shape[0], cells.shape[1], flat.shape[2]))
    return found.unflatten(2, at.shape[1:3])
