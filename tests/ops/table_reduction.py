"""Cases: reductions, scans, sorting."""

from __future__ import annotations

import numpy as np
import torch

from luminal import ops

from .cases import BF16, booleans, case, integers, normal, special

X = normal(3, 4, 5)
TIES = np.array([[3, 1, 3, 2, 1, 3], [0, 0, 0, 0, 0, 0], [5, 4, 3, 2, 1, 0]], np.float32)
NANS = np.array([[1, np.nan, 3, np.nan], [np.inf, -np.inf, 0, -0.0], [np.nan] * 4], np.float32)

# ---- reductions

for name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "any", "all"):
    ours, theirs = getattr(ops, name), getattr(torch, name)
    for dim in (0, -1, (0, 2)):
        for keep in (False, True):
            case(
                f"{name} {dim} {keep}",
                lambda x, o=ours, d=dim, k=keep: o(x, d, keepdim=k),
                lambda x, t=theirs, d=dim, k=keep: t(x, d, keepdim=k),
                X,
            )
    case(f"{name} nan", lambda x, o=ours: o(x, -1), lambda x, t=theirs: t(x, -1), NANS)
    case(f"{name} size 1", lambda x, o=ours: o(x, 0), lambda x, t=theirs: t(x, 0), normal(1, 3))
    if name != "logsumexp":
        case(f"{name} of all", ours, theirs, X)
for name in ("sum", "mean", "prod", "any", "all"):
    ours, theirs = getattr(ops, name), getattr(torch, name)
    case(f"{name} empty", lambda x, o=ours: o(x, 0), lambda x, t=theirs: t(x, 0), normal(0, 3))
for name in ("sum", "mean", "prod", "amax", "var"):
    for kind in (np.float64, np.float16, BF16):
        case(
            f"{name} {np.dtype(kind).name}",
            lambda x, n=name: getattr(ops, n)(x, 1),
            lambda x, n=name: getattr(torch, n)(x, 1),
            X.astype(kind),
        )
for name in ("sum", "prod", "amax", "amin"):
    for kind in (np.int8, np.int32, np.uint8):
        case(
            f"{name} {np.dtype(kind).name}",
            lambda x, n=name: getattr(ops, n)(x, 1),
            lambda x, n=name: getattr(torch, n)(x, 1),
            integers(3, 7, low=0, dtype=kind),
        )
case("sum bool", ops.sum, torch.sum, booleans(9))
case(
    "sum dtype",
    lambda x: ops.sum(x, 0, dtype="f64"),
    lambda x: torch.sum(x, 0, dtype=torch.float64),
    X,
)
case("sum i64 large", ops.sum, torch.sum, np.array([2**62, 2**61, 3, -(2**62)]))
case(
    "var correction",
    lambda x: ops.var(x, 1, correction=0),
    lambda x: torch.var(x, 1, correction=0),
    X,
)
case(
    "var offset",
    lambda x: ops.var(x, 0),
    lambda x: torch.var(x, 0),
    normal(200, 3) + 1e4,
    scale=600,
)
case("nansum", lambda x: ops.nansum(x, 1), lambda x: torch.nansum(x, 1), NANS)
case("nanmean", lambda x: ops.nanmean(x, 1), lambda x: torch.nanmean(x, 1), NANS)
case(
    "count_nonzero",
    lambda x: ops.count_nonzero(x, 1),
    lambda x: torch.count_nonzero(x, 1),
    integers(4, 6, low=0, high=2),
)
case(
    "logsumexp inf",
    lambda x: ops.logsumexp(x, 1),
    lambda x: torch.logsumexp(x, 1),
    np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000], [-1000, -1001]], np.float32),
)
for p in (1, 2, 3, 0, float("inf"), float("-inf")):
    case(
        f"norm {p}",
        lambda x, p=p: ops.norm(x, p, 1),
        lambda x, p=p: torch.linalg.vector_norm(x, p, 1),
        X,
        scale=4,
    )
case(
    "normalize",
    lambda x: ops.normalize(x, dim=1),
    lambda x: torch.nn.functional.normalize(x, dim=1),
    X,
)
for name in ("argmax", "argmin"):
    ours, theirs = getattr(ops, name), getattr(torch, name)
    case(f"{name} of all", ours, theirs, X)
    for label, data in (("ties", TIES), ("nan", NANS), ("int", TIES.astype(np.int32))):
        case(f"{name} {label}", lambda x, o=ours: o(x, 1), lambda x, t=theirs: t(x, 1), data)
    case(f"{name} keep", lambda x, o=ours: o(x, 0, True), lambda x, t=theirs: t(x, 0, True), X)
for name in ("max", "min"):
    case(
        f"{name} pair",
        lambda x, n=name: getattr(ops, n)(x, 1),
        lambda x, n=name: getattr(torch, n)(x, 1),
        NANS,
    )
    case(f"{name} all", getattr(ops, name), getattr(torch, name), X)

# ---- scans and sorting

for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
    ours, theirs = getattr(ops, name), getattr(torch, name)
    for dim in (0, 2):
        case(
            f"{name} {dim}",
            lambda x, o=ours, d=dim: o(x, d),
            lambda x, t=theirs, d=dim: t(x, d),
            X,
            scale=2,
        )
    if name != "logcumsumexp":
        case(f"{name} nan", lambda x, o=ours: o(x, 1), lambda x, t=theirs: t(x, 1), NANS)
        case(
            f"{name} int",
            lambda x, o=ours: o(x, 0),
            lambda x, t=theirs: t(x, 0),
            integers(9, dtype=np.int32),
        )
        case(f"{name} ties", lambda x, o=ours: o(x, 1), lambda x, t=theirs: t(x, 1), TIES)
case("diff", lambda x: ops.diff(x, 2), lambda x: torch.diff(x, 2), X)
for down in (False, True):
    for label, data in (
        ("ties", TIES),
        ("nan", NANS),
        ("int", integers(3, 9)),
        ("plain", X),
        ("long", normal(2, 700)),
        ("long ties", integers(2, 600, low=0, high=5)),
        ("long extremes", np.repeat(np.array([-128, 127, 0, 127, -128], np.int8), 130)),
        ("long inf", np.tile(special(), 40)),
        ("long nan", np.where(normal(520) > 1, np.nan, normal(520))),
    ):
        case(
            f"sort {label} {down}",
            lambda x, d=down: ops.sort(x, -1, d),
            lambda x, d=down: torch.sort(x, dim=-1, descending=d, stable=True),
            data,
        )
    case(
        f"sort dim 0 {down}",
        lambda x, d=down: ops.sort(x, 0, d),
        lambda x, d=down: torch.sort(x, dim=0, descending=d, stable=True),
        X,
    )
    case(f"argsort {down}", lambda x, d=down: x.argsort(1, d), lambda x, d=down: x.argsort(1, d), X)
    case(
        f"topk {down}",
        lambda x, d=down: ops.topk(x, 3, 1, largest=d),
        lambda x, d=down: torch.topk(x, 3, 1, d),
        X,
    )
    case(
        f"topk many {down}",
        lambda x, d=down: ops.topk(x, 40, 0, largest=d),
        lambda x, d=down: torch.topk(x, 40, 0, d),
        normal(50),
    )
    case(
        f"topk nan {down}",
        lambda x, d=down: ops.topk(x, 4, 0, largest=d)[0],
        lambda x, d=down: torch.topk(x, 4, 0, d)[0],
        np.array([1, np.nan, np.inf, 3, np.nan, -np.inf], np.float32),
    )
    case(
        f"topk all lowest {down}",
        lambda x, d=down: ops.topk(x, 3, 0, largest=d)[0],
        lambda x, d=down: torch.topk(x, 3, 0, d)[0],
        np.array([-np.inf] * 4, np.float32),
    )
case("kthvalue", lambda x: ops.kthvalue(x, 2, 1), lambda x: torch.kthvalue(x, 2, 1), X)
case("median", lambda x: ops.median(x, 1), lambda x: torch.median(x, 1), X)
case("median nan", lambda x: ops.median(x, 1)[0], lambda x: torch.median(x, 1)[0], NANS)
case("median all", ops.median, torch.median, X)
case("quantile", lambda x: ops.quantile(x, 0.3, 1), lambda x: torch.quantile(x, 0.3, 1), X)
SORTED = np.sort(normal(9))
case(
    "searchsorted",
    ops.searchsorted,
    torch.searchsorted,
    SORTED,
    np.concatenate([normal(5), SORTED[:3]]),
)
case(
    "searchsorted right",
    lambda s, v: ops.searchsorted(s, v, right=True),
    lambda s, v: torch.searchsorted(s, v, right=True),
    SORTED,
    SORTED[:3].copy(),
)
