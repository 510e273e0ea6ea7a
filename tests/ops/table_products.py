"""Cases: products and convolutions."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, case, integers, normal

# ---- products

SHAPES = {
    "vector vector": ((5,), (5,)),
    "matrix vector": ((3, 5), (5,)),
    "vector matrix": ((5,), (5, 4)),
    "matrices": ((3, 5), (5, 4)),
    "batch": ((2, 3, 5), (2, 5, 4)),
    "shared": ((2, 3, 5), (5, 4)),
    "broadcast": ((2, 1, 3, 5), (6, 5, 4)),
    "empty inner": ((3, 0), (0, 4)),
    "size 1": ((1, 1), (1, 1)),
}
for name, (a, b) in SHAPES.items():
    case(f"matmul {name}", ops.matmul, torch.matmul, normal(*a), normal(*b, seed=1), scale=3)
for kind in (np.float64, np.float16, BF16, np.int32, np.int8):
    make = integers if np.dtype(kind).kind == "i" else normal
    case(
        f"matmul {np.dtype(kind).name}",
        ops.matmul,
        torch.matmul,
        make(9, 17, dtype=kind),
        make(17, 5, dtype=kind),
        scale=3,
    )
case("bmm", ops.bmm, torch.bmm, normal(2, 3, 4), normal(2, 4, 5), scale=3)
case("linear", ops.linear, F.linear, normal(2, 3, 5), normal(4, 5), normal(4), scale=3)
case(
    "addmm",
    lambda x, a, b: ops.addmm(x, a, b, 2, 0.5),
    lambda x, a, b: torch.addmm(x, a, b, beta=2, alpha=0.5),
    normal(3, 4),
    normal(3, 5),
    normal(5, 4),
    scale=3,
)
case(
    "bilinear",
    ops.bilinear,
    F.bilinear,
    normal(3, 4),
    normal(3, 5),
    normal(2, 4, 5),
    normal(2),
    scale=4,
)
case(
    "tensordot",
    lambda a, b: ops.tensordot(a, b, ([1, 2], [2, 0])),
    lambda a, b: torch.tensordot(a, b, ([1, 2], [2, 0])),
    normal(2, 3, 4),
    normal(4, 5, 3),
    scale=4,
)
case("outer", ops.outer, torch.outer, normal(3), normal(4))
EINSUMS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "ii->i": ((3, 3),),
    "ii": ((3, 3),),
    "ij->ji": ((2, 3),),
    "...ij,...jk": ((2, 1, 3, 4), (5, 4, 2)),
    "i,j->ij": ((2,), (3,)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "ijk->": ((2, 3, 4),),
    "b...d,d->b...": ((2, 3, 4), (4,)),
    "ij,kj": ((2, 3), (4, 3)),
    "ij,ik->jk": ((5, 3), (5, 4)),
}
for equation, shapes in EINSUMS.items():
    case(
        f"einsum {equation}",
        lambda *t, e=equation: ops.einsum(e, *t),
        lambda *t, e=equation: torch.einsum(e, *t),
        *(normal(*s, seed=i) for i, s in enumerate(shapes)),
        scale=4,
    )

# ---- convolutions

CONVS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2, "padding": 2},
    "groups": {"groups": 2},
    "all": {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    "same": {"padding": "same"},
}
for n in (1, 2, 3):
    size = (9, 8, 7)[:n]
    for name, options in CONVS.items():
        if n == 3 and name not in ("plain", "all"):
            continue
        x, w, b = (
            normal(2, 4, *size),
            normal(6, 4 // options.get("groups", 1), *(3,) * n),
            normal(6),
        )
        case(
            f"conv{n}d {name}",
            lambda x, w, b, n=n, o=options: getattr(ops, f"conv{n}d")(x, w, b, **o),
            lambda x, w, b, n=n, o=options: getattr(F, f"conv{n}d")(x, w, b, **o),
            x,
            w,
            b,
            scale=8,
        )
case(
    "conv2d depthwise",
    lambda x, w: ops.conv2d(x, w, groups=4, padding=1),
    lambda x, w: F.conv2d(x, w, groups=4, padding=1),
    normal(1, 4, 6, 7),
    normal(4, 1, 3, 3),
    scale=8,
)
case(
    "conv2d no batch",
    lambda x, w: ops.conv2d(x, w, stride=(1, 2), padding=(0, 1)),
    lambda x, w: F.conv2d(x, w, stride=(1, 2), padding=(0, 1)),
    normal(3, 6, 7),
    normal(4, 3, 1, 3),
    scale=8,
)
case(
    "conv2d bf16",
    ops.conv2d,
    F.conv2d,
    normal(1, 3, 5, 5, dtype=BF16),
    normal(2, 3, 3, 3, dtype=BF16),
    scale=2,
)
TRANSPOSED = {
    "plain": {},
    "stride": {"stride": 2},
    "all": {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 2},
}
for n in (1, 2, 3):
    for name, options in TRANSPOSED.items():
        if n == 3 and name == "stride":
            continue
        x, w, b = (
            normal(2, 4, *(5, 4, 3)[:n]),
            normal(4, 3, *(3,) * n),
            normal(3 * options.get("groups", 1)),
        )
        case(
            f"conv_transpose{n}d {name}",
            lambda x, w, b, n=n, o=options: getattr(ops, f"conv_transpose{n}d")(x, w, b, **o),
            lambda x, w, b, n=n, o=options: getattr(F, f"conv_transpose{n}d")(x, w, b, **o),
            x,
            w,
            b,
            scale=8,
        )
case(
    "unfold",
    lambda x: ops.conv.unfold(x, 3, 2, 1, 2),
    lambda x: F.unfold(x, 3, 2, 1, 2),
    normal(2, 3, 8, 9),
)
case(
    "pixel_shuffle",
    lambda x: ops.pixel_shuffle(x, 2),
    lambda x: F.pixel_shuffle(x, 2),
    normal(2, 8, 3, 4),
)
case(
    "pixel_unshuffle",
    lambda x: ops.pixel_unshuffle(x, 2),
    lambda x: F.pixel_unshuffle(x, 2),
    normal(2, 2, 6, 4),
)
