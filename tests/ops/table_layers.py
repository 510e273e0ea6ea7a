"""Cases: products, convolutions, pooling, resizing, normalisation, softmax, attention, losses."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, booleans, case, integers, normal, positive, special, unit

# ---- products

SHAPES = {
    "vector vector": ((5,), (5,)), "matrix vector": ((3, 5), (5,)), "vector matrix": ((5,), (5, 4)),
    "matrices": ((3, 5), (5, 4)), "batch": ((2, 3, 5), (2, 5, 4)), "shared": ((2, 3, 5), (5, 4)),
    "broadcast": ((2, 1, 3, 5), (6, 5, 4)), "empty inner": ((3, 0), (0, 4)), "size 1": ((1, 1), (1, 1)),
}  # fmt: skip
for name, (a, b) in SHAPES.items():
    case(f"matmul {name}", ops.matmul, torch.matmul, normal(*a), normal(*b, seed=1), scale=3)
for kind in (np.float64, np.float16, BF16, np.int32, np.int8):
    make = integers if np.dtype(kind).kind == "i" else normal
    case(f"matmul {np.dtype(kind).name}", ops.matmul, torch.matmul, make(9, 17, dtype=kind), make(17, 5, dtype=kind), scale=3)
case("bmm", ops.bmm, torch.bmm, normal(2, 3, 4), normal(2, 4, 5), scale=3)
case("linear", ops.linear, F.linear, normal(2, 3, 5), normal(4, 5), normal(4), scale=3)
case("addmm", lambda x, a, b: ops.addmm(x, a, b, 2, 0.5), lambda x, a, b: torch.addmm(x, a, b, beta=2, alpha=0.5),
     normal(3, 4), normal(3, 5), normal(5, 4), scale=3)  # fmt: skip
case("bilinear", ops.bilinear, F.bilinear, normal(3, 4), normal(3, 5), normal(2, 4, 5), normal(2), scale=4)
case("tensordot", lambda a, b: ops.tensordot(a, b, ([1, 2], [2, 0])), lambda a, b: torch.tensordot(a, b, ([1, 2], [2, 0])),
     normal(2, 3, 4), normal(4, 5, 3), scale=4)  # fmt: skip
case("outer", ops.outer, torch.outer, normal(3), normal(4))
EINSUMS = {
    "ij,jk->ik": ((2, 3), (3, 4)), "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)), "ii->i": ((3, 3),),
    "ii": ((3, 3),), "ij->ji": ((2, 3),), "...ij,...jk": ((2, 1, 3, 4), (5, 4, 2)), "i,j->ij": ((2,), (3,)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)), "ijk->": ((2, 3, 4),), "b...d,d->b...": ((2, 3, 4), (4,)),
    "ij,kj": ((2, 3), (4, 3)), "ij,ik->jk": ((5, 3), (5, 4)),
}  # fmt: skip
for equation, shapes in EINSUMS.items():
    case(f"einsum {equation}", lambda *t, e=equation: ops.einsum(e, *t), lambda *t, e=equation: torch.einsum(e, *t),
         *(normal(*s, seed=i) for i, s in enumerate(shapes)), scale=4)  # fmt: skip

# ---- convolutions

CONVS = {
    "plain": {}, "stride": {"stride": 2}, "padding": {"padding": 1}, "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2}, "all": {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}, "same": {"padding": "same"},
}  # fmt: skip
for n in (1, 2, 3):
    size = (9, 8, 7)[:n]
    for name, options in CONVS.items():
        if n == 3 and name not in ("plain", "all"):
            continue
        x, w, b = normal(2, 4, *size), normal(6, 4 // options.get("groups", 1), *(3,) * n), normal(6)
        case(f"conv{n}d {name}", lambda x, w, b, n=n, o=options: getattr(ops, f"conv{n}d")(x, w, b, **o),
             lambda x, w, b, n=n, o=options: getattr(F, f"conv{n}d")(x, w, b, **o), x, w, b, scale=8)  # fmt: skip
case("conv2d depthwise", lambda x, w: ops.conv2d(x, w, groups=4, padding=1), lambda x, w: F.conv2d(x, w, groups=4, padding=1),
     normal(1, 4, 6, 7), normal(4, 1, 3, 3), scale=8)  # fmt: skip
case("conv2d no batch", lambda x, w: ops.conv2d(x, w, stride=(1, 2), padding=(0, 1)),
     lambda x, w: F.conv2d(x, w, stride=(1, 2), padding=(0, 1)), normal(3, 6, 7), normal(4, 3, 1, 3), scale=8)  # fmt: skip
case("conv2d bf16", ops.conv2d, F.conv2d, normal(1, 3, 5, 5, dtype=BF16), normal(2, 3, 3, 3, dtype=BF16), scale=2)
TRANSPOSED = {
    "plain": {}, "stride": {"stride": 2}, "all": {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 2},
}  # fmt: skip
for n in (1, 2, 3):
    for name, options in TRANSPOSED.items():
        if n == 3 and name == "stride":
            continue
        x, w, b = normal(2, 4, *(5, 4, 3)[:n]), normal(4, 3, *(3,) * n), normal(3 * options.get("groups", 1))
        case(f"conv_transpose{n}d {name}", lambda x, w, b, n=n, o=options: getattr(ops, f"conv_transpose{n}d")(x, w, b, **o),
             lambda x, w, b, n=n, o=options: getattr(F, f"conv_transpose{n}d")(x, w, b, **o), x, w, b, scale=8)  # fmt: skip
case("unfold", lambda x: ops.conv.unfold(x, 3, 2, 1, 2), lambda x: F.unfold(x, 3, 2, 1, 2), normal(2, 3, 8, 9))
case("pixel_shuffle", lambda x: ops.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), normal(2, 8, 3, 4))
case("pixel_unshuffle", lambda x: ops.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), normal(2, 2, 6, 4))

# ---- pooling and resizing

IMAGE = normal(2, 3, 9, 10)
POOLS = {
    "plain": {"kernel_size": 2}, "stride": {"kernel_size": 3, "stride": 2}, "padding": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True}, "ceil pad": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
}  # fmt: skip
for name, options in POOLS.items():
    for op in ("max_pool2d", "avg_pool2d"):
        case(f"{op} {name}", lambda x, f=op, o=options: getattr(ops, f)(x, **o), lambda x, f=op, o=options: getattr(F, f)(x, **o), IMAGE)
    case(f"avg_pool2d inside {name}", lambda x, o=options: ops.avg_pool2d(x, count_include_pad=False, **o),
         lambda x, o=options: F.avg_pool2d(x, count_include_pad=False, **o), IMAGE)  # fmt: skip
case("max_pool2d nan", lambda x: ops.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2), np.where(IMAGE > 1.5, np.float32(np.nan), IMAGE))
case("max_pool2d dilation", lambda x: ops.max_pool2d(x, 3, 1, 1, 2), lambda x: F.max_pool2d(x, 3, 1, 1, 2), IMAGE)
case("avg_pool2d divisor", lambda x: ops.avg_pool2d(x, 2, divisor_override=3), lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE)
case("avg_pool2d bf16", lambda x: ops.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2), IMAGE.astype(BF16))
for n in (1, 3):
    for op in ("max_pool", "avg_pool"):
        case(f"{op}{n}d", lambda x, f=f"{op}{n}d": getattr(ops, f)(x, 2), lambda x, f=f"{op}{n}d": getattr(F, f)(x, 2), normal(2, 3, *(6,) * n))
for op in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
    for size in ((1, 1), (3, 5), (4, 7), (9, 3)):
        case(f"{op} {size}", lambda x, f=op, s=size: getattr(ops, f)(x, s), lambda x, f=op, s=size: getattr(F, f)(x, s), IMAGE)
case("lp_pool2d", lambda x: ops.lp_pool2d(x, 2.0, 2), lambda x: F.lp_pool2d(x, 2.0, 2), IMAGE, scale=2)
for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
    for size in ((18, 20), (5, 7), (13, 4), (9, 10)):
        scale = 60 if mode in ("bilinear", "bicubic") else 1  # the coordinate is rounded in PyTorch
        case(f"interpolate {mode} {size}", lambda x, m=mode, s=size: ops.interpolate(x, s, mode=m),
             lambda x, m=mode, s=size: F.interpolate(x, s, mode=m), IMAGE, scale=scale)  # fmt: skip
        if "near" not in mode:
            case(f"interpolate {mode} {size} corners", lambda x, m=mode, s=size: ops.interpolate(x, s, mode=m, align_corners=True),
                 lambda x, m=mode, s=size: F.interpolate(x, s, mode=m, align_corners=True), IMAGE, scale=scale)  # fmt: skip
case("interpolate factor", lambda x: ops.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, scale_factor=2), IMAGE)
case("interpolate half", lambda x: ops.interpolate(x, scale_factor=0.5), lambda x: F.interpolate(x, scale_factor=0.5), normal(1, 2, 8, 6))
case("interpolate linear", lambda x: ops.interpolate(x, 11, mode="linear"), lambda x: F.interpolate(x, 11, mode="linear"), normal(2, 3, 7), scale=60)
case("interpolate area", lambda x: ops.interpolate(x, (3, 4), mode="area"), lambda x: F.interpolate(x, (3, 4), mode="area"), IMAGE)

# ---- normalisation

TOKENS, SCALE, SHIFT = normal(2, 5, 8), positive(8), normal(8)
for kind in (np.float32, np.float64, BF16, np.float16):
    name = np.dtype(kind).name
    inputs = [a.astype(kind) for a in (TOKENS, SCALE, SHIFT)]
    case(f"layer_norm {name}", lambda x, w, b: ops.layer_norm(x, 8, w, b), lambda x, w, b: F.layer_norm(x, (8,), w, b), *inputs, scale=4)
    case(f"rms_norm {name}", lambda x, w: ops.rms_norm(x, 8, w, 1e-5), lambda x, w: F.rms_norm(x, (8,), w, 1e-5), *inputs[:2], scale=4)
    case(f"softmax {name}", lambda x: ops.softmax(x, -1), lambda x: F.softmax(x, -1), inputs[0] * kind(5), scale=4)
case("layer_norm offset", lambda x: ops.layer_norm(x, 64), lambda x: F.layer_norm(x, (64,)), normal(3, 64) + 1e4, scale=3000)
case("layer_norm two dims", lambda x: ops.layer_norm(x, (5, 8)), lambda x: F.layer_norm(x, (5, 8)), TOKENS, scale=4)
case("rms_norm default eps", lambda x: ops.rms_norm(x, (8,)), lambda x: F.rms_norm(x, (8,)), TOKENS * 1e-4, scale=4)
case("group_norm", lambda x, w, b: ops.group_norm(x, 2, w, b), lambda x, w, b: F.group_norm(x, 2, w, b), normal(2, 8, 3, 3), SCALE, SHIFT, scale=4)
case("instance_norm", lambda x: ops.instance_norm(x), lambda x: F.instance_norm(x), normal(2, 8, 3, 3), scale=4)
case("batch_norm", lambda x, m, v, w, b: ops.batch_norm(x, m, v, w, b), lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
     normal(2, 8, 3), SHIFT * 2, SCALE * 3, SCALE, SHIFT, scale=4)  # fmt: skip
case("batch_norm training", lambda x, w, b: ops.batch_norm(x, None, None, w, b, True),
     lambda x, w, b: F.batch_norm(x, None, None, w, b, True), normal(4, 8, 3), SCALE, SHIFT, scale=4)  # fmt: skip
case("local_response_norm", lambda x: ops.local_response_norm(x, 3), lambda x: F.local_response_norm(x, 3), normal(2, 8, 3, 3), scale=4)

# ---- softmax

LARGE = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0, 0], [3e38, -3e38, 1]], np.float32)
for name in ("softmax", "log_softmax", "softmin"):
    case(name, lambda x, n=name: getattr(ops, n)(x, 1), lambda x, n=name: getattr(F, n)(x, 1), TOKENS, scale=2)
    case(f"{name} large", lambda x, n=name: getattr(ops, n)(x, 1), lambda x, n=name: getattr(F, n)(x, 1), LARGE, scale=2)
case("softmax nan", lambda x: ops.softmax(x, 0), lambda x: F.softmax(x, 0), special())
case("softmax all masked", lambda x: ops.softmax(x, 0), lambda x: F.softmax(x, 0), np.full(4, -np.inf, np.float32))
case("softmax size 1", lambda x: ops.softmax(x, 1), lambda x: F.softmax(x, 1), normal(4, 1))
case("softmax dtype", lambda x: ops.softmax(x, -1, "f64"), lambda x: F.softmax(x, -1, dtype=torch.float64), TOKENS)

# ---- attention

Q, K, V = normal(2, 4, 6, 8), normal(2, 4, 9, 8, seed=1), normal(2, 4, 9, 8, seed=2)
SDPA, TORCH_SDPA = ops.scaled_dot_product_attention, F.scaled_dot_product_attention
case("attention", SDPA, TORCH_SDPA, Q, K, V, scale=4)
case("attention causal", lambda q, k, v: SDPA(q, k, v, is_causal=True), lambda q, k, v: TORCH_SDPA(q, k, v, is_causal=True), Q, Q + 1, Q * 2, scale=4)
MASK = booleans(6, 9)
MASK[:, 0] = True
case("attention bool mask", lambda q, k, v, m: SDPA(q, k, v, m), lambda q, k, v, m: TORCH_SDPA(q, k, v, m), Q, K, V, MASK, scale=4)
case("attention summand", lambda q, k, v, m: SDPA(q, k, v, m), lambda q, k, v, m: TORCH_SDPA(q, k, v, m), Q, K, V, normal(2, 1, 6, 9), scale=4)
case("attention scale", lambda q, k, v: SDPA(q, k, v, scale=0.3), lambda q, k, v: TORCH_SDPA(q, k, v, scale=0.3), Q, K, V, scale=4)
case("attention gqa", lambda q, k, v: SDPA(q, k, v, enable_gqa=True), lambda q, k, v: TORCH_SDPA(q, k, v, enable_gqa=True),
     Q, K[:, :2].copy(), V[:, :2].copy(), scale=4)  # fmt: skip
case("attention gqa mask", lambda q, k, v, m: SDPA(q, k, v, m, enable_gqa=True), lambda q, k, v, m: TORCH_SDPA(q, k, v, m, enable_gqa=True),
     Q, K[:, :2].copy(), V[:, :2].copy(), np.broadcast_to(MASK, (2, 4, 6, 9)).copy(), scale=4)  # fmt: skip
case("attention mqa causal", lambda q, k, v: SDPA(q, k, v, is_causal=True, enable_gqa=True),
     lambda q, k, v: TORCH_SDPA(q, k, v, is_causal=True, enable_gqa=True), Q, Q[:, :1].copy(), Q[:, 1:2].copy(), scale=4)  # fmt: skip
case("attention bf16", SDPA, TORCH_SDPA, Q.astype(BF16), K.astype(BF16), V.astype(BF16), scale=2)

# ---- losses

A, B = normal(4, 6), normal(4, 6, seed=9)
CLASSES, LOGITS = integers(4, low=0, high=6), normal(4, 6)
for reduction in ("mean", "sum", "none"):
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        case(f"{name} {reduction}", lambda x, y, n=name, r=reduction: getattr(ops, n)(x, y, reduction=r),
             lambda x, y, n=name, r=reduction: getattr(F, n)(x, y, reduction=r), A, B, scale=4)  # fmt: skip
    case(f"cross_entropy {reduction}", lambda x, t, r=reduction: ops.cross_entropy(x, t, reduction=r),
         lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r), LOGITS, CLASSES, scale=4)  # fmt: skip
    case(f"cross_entropy full {reduction}", lambda x, t, w, r=reduction: ops.cross_entropy(x, t, w, 2, r, 0.1),
         lambda x, t, w, r=reduction: F.cross_entropy(x, t, w, ignore_index=2, reduction=r, label_smoothing=0.1),
         LOGITS, np.array([0, 2, 5, 1]), positive(6), scale=4)  # fmt: skip
    case(f"cross_entropy soft {reduction}", lambda x, t, r=reduction: ops.cross_entropy(x, t, reduction=r, label_smoothing=0.2),
         lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r, label_smoothing=0.2), LOGITS, unit(4, 6), scale=4)  # fmt: skip
    case(f"bce {reduction}", lambda x, t, r=reduction: ops.binary_cross_entropy(x, t, reduction=r),
         lambda x, t, r=reduction: F.binary_cross_entropy(x, t, reduction=r), unit(4, 6), unit(4, 6, seed=1), scale=4)  # fmt: skip
    case(f"kl_div {reduction}", lambda x, t, r=reduction: ops.kl_div(x, t, reduction=r),
         lambda x, t, r=reduction: F.kl_div(x, t, reduction=r), A, unit(4, 6), scale=4)  # fmt: skip
case("bce limits", lambda x, t: ops.binary_cross_entropy(x, t, reduction="none"), lambda x, t: F.binary_cross_entropy(x, t, reduction="none"),
     np.array([0, 1, 0, 1], np.float32), np.array([0, 1, 1, 0], np.float32))  # fmt: skip
case("bce with logits", lambda x, t, p: ops.binary_cross_entropy_with_logits(x, t, pos_weight=p),
     lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, pos_weight=p), A * 50, unit(4, 6), positive(6), scale=4)  # fmt: skip
case("cross_entropy images", ops.cross_entropy, F.cross_entropy, normal(2, 5, 3, 4), integers(2, 3, 4, low=0, high=5), scale=4)
case("nll_loss", ops.nll_loss, F.nll_loss, LOGITS, CLASSES, scale=4)
case("cosine_similarity", ops.cosine_similarity, F.cosine_similarity, A, B, scale=4)
case("pairwise_distance", ops.pairwise_distance, F.pairwise_distance, A, B, scale=4)
case("triplet", ops.triplet_margin_loss, F.triplet_margin_loss, A, B, A + B, scale=4)
SIGNS = np.where(booleans(4), 1, -1).astype(np.float32)
case("cosine_embedding", ops.cosine_embedding_loss, F.cosine_embedding_loss, A, B, SIGNS, scale=4)
case("margin_ranking", ops.margin_ranking_loss, F.margin_ranking_loss, normal(4), normal(4, seed=1), SIGNS, scale=4)
case("hinge_embedding", ops.hinge_embedding_loss, F.hinge_embedding_loss, normal(4), SIGNS, scale=4)
case("soft_margin", ops.soft_margin_loss, F.soft_margin_loss, normal(4), SIGNS, scale=4)
case("poisson_nll", ops.poisson_nll_loss, F.poisson_nll_loss, A, positive(4, 6), scale=4)
case("gaussian_nll", ops.gaussian_nll_loss, F.gaussian_nll_loss, A, B, positive(4, 6), scale=4)
