"""Cases: normalisation, softmax, attention, losses."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, booleans, case, integers, normal, positive, special, unit

# ---- normalisation

TOKENS, SCALE, SHIFT = normal(2, 5, 8), positive(8), normal(8)
for kind in (np.float32, np.float64, BF16, np.float16):
    name = np.dtype(kind).name
    inputs = [a.astype(kind) for a in (TOKENS, SCALE, SHIFT)]
    case(
        f"layer_norm {name}",
        lambda x, w, b: ops.layer_norm(x, 8, w, b),
        lambda x, w, b: F.layer_norm(x, (8,), w, b),
        *inputs,
        scale=4,
    )
    case(
        f"rms_norm {name}",
        lambda x, w: ops.rms_norm(x, 8, w, 1e-5),
        lambda x, w: F.rms_norm(x, (8,), w, 1e-5),
        *inputs[:2],
        scale=4,
    )
    case(
        f"softmax {name}",
        lambda x: ops.softmax(x, -1),
        lambda x: F.softmax(x, -1),
        inputs[0] * kind(5),
        scale=4,
    )
case(
    "layer_norm offset",
    lambda x: ops.layer_norm(x, 64),
    lambda x: F.layer_norm(x, (64,)),
    normal(3, 64) + 1e4,
    scale=3000,
)
case(
    "layer_norm two dims",
    lambda x: ops.layer_norm(x, (5, 8)),
    lambda x: F.layer_norm(x, (5, 8)),
    TOKENS,
    scale=4,
)
case(
    "rms_norm default eps",
    lambda x: ops.rms_norm(x, (8,)),
    lambda x: F.rms_norm(x, (8,)),
    TOKENS * 1e-4,
    scale=4,
)
case(
    "group_norm",
    lambda x, w, b: ops.group_norm(x, 2, w, b),
    lambda x, w, b: F.group_norm(x, 2, w, b),
    normal(2, 8, 3, 3),
    SCALE,
    SHIFT,
    scale=4,
)
case(
    "instance_norm",
    lambda x: ops.instance_norm(x),
    lambda x: F.instance_norm(x),
    normal(2, 8, 3, 3),
    scale=4,
)
case(
    "batch_norm",
    lambda x, m, v, w, b: ops.batch_norm(x, m, v, w, b),
    lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
    normal(2, 8, 3),
    SHIFT * 2,
    SCALE * 3,
    SCALE,
    SHIFT,
    scale=4,
)
case(
    "batch_norm training",
    lambda x, w, b: ops.batch_norm(x, None, None, w, b, True),
    lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    normal(4, 8, 3),
    SCALE,
    SHIFT,
    scale=4,
)
case(
    "local_response_norm",
    lambda x: ops.local_response_norm(x, 3),
    lambda x: F.local_response_norm(x, 3),
    normal(2, 8, 3, 3),
    scale=4,
)

# ---- softmax

LARGE = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0, 0], [3e38, -3e38, 1]], np.float32)
for name in ("softmax", "log_softmax", "softmin"):
    case(
        name,
        lambda x, n=name: getattr(ops, n)(x, 1),
        lambda x, n=name: getattr(F, n)(x, 1),
        TOKENS,
        scale=2,
    )
    case(
        f"{name} large",
        lambda x, n=name: getattr(ops, n)(x, 1),
        lambda x, n=name: getattr(F, n)(x, 1),
        LARGE,
        scale=2,
    )
case("softmax nan", lambda x: ops.softmax(x, 0), lambda x: F.softmax(x, 0), special())
case(
    "softmax all masked",
    lambda x: ops.softmax(x, 0),
    lambda x: F.softmax(x, 0),
    np.full(4, -np.inf, np.float32),
)
case("softmax size 1", lambda x: ops.softmax(x, 1), lambda x: F.softmax(x, 1), normal(4, 1))
case(
    "softmax dtype",
    lambda x: ops.softmax(x, -1, "f64"),
    lambda x: F.softmax(x, -1, dtype=torch.float64),
    TOKENS,
)

# ---- attention

Q, K, V = normal(2, 4, 6, 8), normal(2, 4, 9, 8, seed=1), normal(2, 4, 9, 8, seed=2)
SDPA, TORCH_SDPA = ops.scaled_dot_product_attention, F.scaled_dot_product_attention
case("attention", SDPA, TORCH_SDPA, Q, K, V, scale=4)
case(
    "attention causal",
    lambda q, k, v: SDPA(q, k, v, is_causal=True),
    lambda q, k, v: TORCH_SDPA(q, k, v, is_causal=True),
    Q,
    Q + 1,
    Q * 2,
    scale=4,
)
MASK = booleans(6, 9)
MASK[:, 0] = True
case(
    "attention bool mask",
    lambda q, k, v, m: SDPA(q, k, v, m),
    lambda q, k, v, m: TORCH_SDPA(q, k, v, m),
    Q,
    K,
    V,
    MASK,
    scale=4,
)
case(
    "attention summand",
    lambda q, k, v, m: SDPA(q, k, v, m),
    lambda q, k, v, m: TORCH_SDPA(q, k, v, m),
    Q,
    K,
    V,
    normal(2, 1, 6, 9),
    scale=4,
)
case(
    "attention scale",
    lambda q, k, v: SDPA(q, k, v, scale=0.3),
    lambda q, k, v: TORCH_SDPA(q, k, v, scale=0.3),
    Q,
    K,
    V,
    scale=4,
)
case(
    "attention gqa",
    lambda q, k, v: SDPA(q, k, v, enable_gqa=True),
    lambda q, k, v: TORCH_SDPA(q, k, v, enable_gqa=True),
    Q,
    K[:, :2].copy(),
    V[:, :2].copy(),
    scale=4,
)
case(
    "attention gqa mask",
    lambda q, k, v, m: SDPA(q, k, v, m, enable_gqa=True),
    lambda q, k, v, m: TORCH_SDPA(q, k, v, m, enable_gqa=True),
    Q,
    K[:, :2].copy(),
    V[:, :2].copy(),
    np.broadcast_to(MASK, (2, 4, 6, 9)).copy(),
    scale=4,
)
case(
    "attention mqa causal",
    lambda q, k, v: SDPA(q, k, v, is_causal=True, enable_gqa=True),
    lambda q, k, v: TORCH_SDPA(q, k, v, is_causal=True, enable_gqa=True),
    Q,
    Q[:, :1].copy(),
    Q[:, 1:2].copy(),
    scale=4,
)
case("attention bf16", SDPA, TORCH_SDPA, Q.astype(BF16), K.astype(BF16), V.astype(BF16), scale=2)

# ---- losses

A, B = normal(4, 6), normal(4, 6, seed=9)
CLASSES, LOGITS = integers(4, low=0, high=6), normal(4, 6)
for reduction in ("mean", "sum", "none"):
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        case(
            f"{name} {reduction}",
            lambda x, y, n=name, r=reduction: getattr(ops, n)(x, y, reduction=r),
            lambda x, y, n=name, r=reduction: getattr(F, n)(x, y, reduction=r),
            A,
            B,
            scale=4,
        )
    case(
        f"cross_entropy {reduction}",
        lambda x, t, r=reduction: ops.cross_entropy(x, t, reduction=r),
        lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r),
        LOGITS,
        CLASSES,
        scale=4,
    )
    case(
        f"cross_entropy full {reduction}",
        lambda x, t, w, r=reduction: ops.cross_entropy(
            x, t, w, ignore_index=2, reduction=r, label_smoothing=0.1
        ),
        lambda x, t, w, r=reduction: F.cross_entropy(
            x, t, w, ignore_index=2, reduction=r, label_smoothing=0.1
        ),
        LOGITS,
        np.array([0, 2, 5, 1]),
        positive(6),
        scale=4,
    )
    case(
        f"cross_entropy soft {reduction}",
        lambda x, t, r=reduction: ops.cross_entropy(x, t, reduction=r, label_smoothing=0.2),
        lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r, label_smoothing=0.2),
        LOGITS,
        unit(4, 6),
        scale=4,
    )
    case(
        f"bce {reduction}",
        lambda x, t, r=reduction: ops.binary_cross_entropy(x, t, reduction=r),
        lambda x, t, r=reduction: F.binary_cross_entropy(x, t, reduction=r),
        unit(4, 6),
        unit(4, 6, seed=1),
        scale=4,
    )
    case(
        f"kl_div {reduction}",
        lambda x, t, r=reduction: ops.kl_div(x, t, reduction=r),
        lambda x, t, r=reduction: F.kl_div(x, t, reduction=r),
        A,
        unit(4, 6),
        scale=4,
    )
case(
    "bce limits",
    lambda x, t: ops.binary_cross_entropy(x, t, reduction="none"),
    lambda x, t: F.binary_cross_entropy(x, t, reduction="none"),
    np.array([0, 1, 0, 1], np.float32),
    np.array([0, 1, 1, 0], np.float32),
)
case(
    "bce with logits",
    lambda x, t, p: ops.binary_cross_entropy_with_logits(x, t, pos_weight=p),
    lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, pos_weight=p),
    A * 50,
    unit(4, 6),
    positive(6),
    scale=4,
)
case(
    "cross_entropy images",
    ops.cross_entropy,
    F.cross_entropy,
    normal(2, 5, 3, 4),
    integers(2, 3, 4, low=0, high=5),
    scale=4,
)
case("nll_loss", ops.nll_loss, F.nll_loss, LOGITS, CLASSES, scale=4)
case("cosine_similarity", ops.cosine_similarity, F.cosine_similarity, A, B, scale=4)
case("pairwise_distance", ops.pairwise_distance, F.pairwise_distance, A, B, scale=4)
case("triplet", ops.triplet_margin_loss, F.triplet_margin_loss, A, B, A + B, scale=4)
SIGNS = np.where(booleans(4), 1, -1).astype(np.float32)
case("cosine_embedding", ops.cosine_embedding_loss, F.cosine_embedding_loss, A, B, SIGNS, scale=4)
case(
    "margin_ranking",
    ops.margin_ranking_loss,
    F.margin_ranking_loss,
    normal(4),
    normal(4, seed=1),
    SIGNS,
    scale=4,
)
case("hinge_embedding", ops.hinge_embedding_loss, F.hinge_embedding_loss, normal(4), SIGNS, scale=4)
case("soft_margin", ops.soft_margin_loss, F.soft_margin_loss, normal(4), SIGNS, scale=4)
case("poisson_nll", ops.poisson_nll_loss, F.poisson_nll_loss, A, positive(4, 6), scale=4)
case("gaussian_nll", ops.gaussian_nll_loss, F.gaussian_nll_loss, A, B, positive(4, 6), scale=4)
