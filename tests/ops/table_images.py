"""Cases: pooling and resizing."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, case, normal

# ---- pooling and resizing

IMAGE = normal(2, 3, 9, 10)
POOLS = {
    "plain": {"kernel_size": 2},
    "stride": {"kernel_size": 3, "stride": 2},
    "padding": {"kernel_size": 3, "stride": 2, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "ceil pad": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
}
for name, options in POOLS.items():
    for op in ("max_pool2d", "avg_pool2d"):
        case(
            f"{op} {name}",
            lambda x, f=op, o=options: getattr(ops, f)(x, **o),
            lambda x, f=op, o=options: getattr(F, f)(x, **o),
            IMAGE,
        )
    case(
        f"avg_pool2d inside {name}",
        lambda x, o=options: ops.avg_pool2d(x, count_include_pad=False, **o),
        lambda x, o=options: F.avg_pool2d(x, count_include_pad=False, **o),
        IMAGE,
    )
case(
    "max_pool2d nan",
    lambda x: ops.max_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 2),
    np.where(IMAGE > 1.5, np.float32(np.nan), IMAGE),
)
case(
    "max_pool2d dilation",
    lambda x: ops.max_pool2d(x, 3, 1, 1, 2),
    lambda x: F.max_pool2d(x, 3, 1, 1, 2),
    IMAGE,
)
case(
    "avg_pool2d divisor",
    lambda x: ops.avg_pool2d(x, 2, divisor_override=3),
    lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    IMAGE,
)
case(
    "avg_pool2d bf16",
    lambda x: ops.avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 2),
    IMAGE.astype(BF16),
)
for n in (1, 3):
    for op in ("max_pool", "avg_pool"):
        case(
            f"{op}{n}d",
            lambda x, f=f"{op}{n}d": getattr(ops, f)(x, 2),
            lambda x, f=f"{op}{n}d": getattr(F, f)(x, 2),
            normal(2, 3, *(6,) * n),
        )
for op in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
    for size in ((1, 1), (3, 5), (4, 7), (9, 3)):
        case(
            f"{op} {size}",
            lambda x, f=op, s=size: getattr(ops, f)(x, s),
            lambda x, f=op, s=size: getattr(F, f)(x, s),
            IMAGE,
        )
case(
    "lp_pool2d",
    lambda x: ops.lp_pool2d(x, 2.0, 2),
    lambda x: F.lp_pool2d(x, 2.0, 2),
    IMAGE,
    scale=2,
)
for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
    for size in ((18, 20), (5, 7), (13, 4), (9, 10)):
        scale = 60 if mode in ("bilinear", "bicubic") else 1  # the coordinate is rounded in PyTorch
        case(
            f"interpolate {mode} {size}",
            lambda x, m=mode, s=size: ops.interpolate(x, s, mode=m),
            lambda x, m=mode, s=size: F.interpolate(x, s, mode=m),
            IMAGE,
            scale=scale,
        )
        if "near" not in mode:
            case(
                f"interpolate {mode} {size} corners",
                lambda x, m=mode, s=size: ops.interpolate(x, s, mode=m, align_corners=True),
                lambda x, m=mode, s=size: F.interpolate(x, s, mode=m, align_corners=True),
                IMAGE,
                scale=scale,
            )
for mode in ("bilinear", "bicubic"):
    for size, factor, corners in (((3, 4), None, False), ((2, 9), None, True), (None, 0.6, False)):
        options = {"mode": mode, "align_corners": corners, "antialias": True}
        case(
            f"interpolate {mode} {size} {factor} smoothly",
            lambda x, s=size, f=factor, o=options: ops.interpolate(x, s, f, **o),
            lambda x, s=size, f=factor, o=options: F.interpolate(x, s, f, **o),
            IMAGE,
        )
case(
    "interpolate factor",
    lambda x: ops.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, scale_factor=2),
    IMAGE,
)
case(
    "interpolate half",
    lambda x: ops.interpolate(x, scale_factor=0.5),
    lambda x: F.interpolate(x, scale_factor=0.5),
    normal(1, 2, 8, 6),
)
case(
    "interpolate linear",
    lambda x: ops.interpolate(x, 11, mode="linear"),
    lambda x: F.interpolate(x, 11, mode="linear"),
    normal(2, 3, 7),
    scale=60,
)
case(
    "interpolate area",
    lambda x: ops.interpolate(x, (3, 4), mode="area"),
    lambda x: F.interpolate(x, (3, 4), mode="area"),
    IMAGE,
)
