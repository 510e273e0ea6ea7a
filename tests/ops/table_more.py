"""Cases: what is used less often, and functions that are made of others."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from luminal import ops

from .cases import BF16, booleans, case, integers, normal, pairs, positive, special

X, Y = normal(3, 4, 5), normal(3, 4, 5, seed=1)
VOLUME = normal(2, 3, 5, 6, 7)

# ---- elementwise

for name in ("copysign", "hypot", "xlogy"):
    case(f"{name} special", getattr(ops, name), getattr(torch, name), *pairs(), scale=4)
WIDENED = ((BF16, np.float32), (np.float32, BF16), (np.float16, BF16), (np.int32, np.float16))
for name in ("logaddexp2", "dist", "mse_loss", "l1_loss"):
    theirs = getattr(torch if hasattr(torch, name) else F, name)
    for kinds in WIDENED:
        inputs = ((normal(3, 4, seed=n) * 4).astype(kind) for n, kind in enumerate(kinds))
        text = " and ".join(str(np.dtype(kind)) for kind in kinds)
        case(f"{name} of {text}", getattr(ops, name), theirs, *inputs, scale=2)
case("xlog1py", ops.xlog1py, torch.special.xlog1py, normal(20), positive(20))
case("heaviside", ops.heaviside, torch.heaviside, special(), normal(14))
for name in ("signbit", "deg2rad", "rad2deg", "sinc"):
    hostile = special() if name == "signbit" else special()[:8]
    case(f"{name} special", getattr(ops, name), getattr(torch, name), hostile)
case("sinc", ops.sinc, torch.sinc, normal(20))
case("entr", ops.entr, torch.special.entr, special())
case(
    "addcdiv",
    lambda x, a, b: ops.addcdiv(x, a, b, 2),
    lambda x, a, b: torch.addcdiv(x, a, b, value=2),
    normal(5),
    normal(5, seed=1),
    positive(5),
)
case("rsub", ops.rsub, torch.rsub, normal(5), normal(5, seed=1))
for name in ("bitwise_and", "bitwise_or", "bitwise_left_shift", "bitwise_right_shift"):
    inputs = (integers(20), integers(20, low=0, high=9))
    case(name, getattr(ops, name), getattr(torch, name), *inputs)
case("bitwise_not", ops.bitwise_not, torch.bitwise_not, integers(9, low=0, dtype=np.uint8))
case("swiglu", ops.swiglu, lambda x: F.silu(x[..., :2]) * x[..., 2:], normal(3, 4))
case("ones_like", ops.ones_like, torch.ones_like, integers(3))
case("zeros_like", ops.zeros_like, torch.zeros_like, normal(3))

# ---- reductions, sorting, indexing

case("aminmax", lambda x: ops.aminmax(x, 1), lambda x: torch.aminmax(x, dim=1), X)
case("var_mean", lambda x: ops.var_mean(x, 1), lambda x: torch.var_mean(x, 1), X)
case("std_mean", lambda x: ops.std_mean(x, 1), lambda x: torch.std_mean(x, 1), X)
case("dist", ops.dist, torch.dist, X, Y)
case("msort", ops.msort, torch.msort, X)
case("take", ops.take, torch.take, X, integers(3, 2, low=-60, high=60))
case("bucketize", ops.bucketize, torch.bucketize, normal(9), np.sort(normal(4)))
case(
    "hardmax",
    ops.hardmax,
    lambda x: F.one_hot(x.argmax(-1), x.shape[-1]).float(),
    np.array([[1, 3, 3], [2, 2, 2]], np.float32),
)
# ---- products

case("mm", ops.mm, torch.mm, normal(3, 4), normal(4, 5), scale=3)
case("mv", ops.mv, torch.mv, normal(3, 4), normal(4), scale=3)
case("dot", ops.dot, torch.dot, normal(7), normal(7, seed=1), scale=3)
case("baddbmm", ops.baddbmm, torch.baddbmm, normal(2, 3, 5), X[:2, :3], normal(2, 5, 5), scale=3)
case("cdist", ops.cdist, torch.cdist, normal(2, 3, 4), normal(2, 5, 4), scale=3)
case("cdist 1", lambda a, b: ops.cdist(a, b, 1), lambda a, b: torch.cdist(a, b, 1), X, Y, scale=3)
for a, b in ((normal(2, 3), normal(4, 2)), (normal(2), normal(3, 2)), (normal(2, 1, 3), normal(2))):
    case(f"kron {a.shape} {b.shape}", ops.kron, torch.kron, a, b)
case("cross", ops.cross, torch.cross, normal(4, 3), normal(4, 3, seed=1))
case("cross of the first 3", ops.cross, torch.cross, normal(4, 3, 3), normal(4, 3, 3, seed=1))
NONE = np.full((3, 5), np.nan, np.float32)
for beta in (0, 2):
    case(
        f"addmm beta {beta}",
        lambda x, a, b, beta=beta: ops.addmm(x, a, b, beta, 0.5),
        lambda x, a, b, beta=beta: torch.addmm(x, a, b, beta=beta, alpha=0.5),
        NONE if beta == 0 else normal(5),
        normal(3, 4),
        normal(4, 5),
        scale=3,
    )
case("addmm int", lambda x, a, b: ops.addmm(x, a, b, 2, 3),
     lambda x, a, b: torch.addmm(x, a, b, beta=2, alpha=3),
     integers(3, 5), integers(3, 4), integers(4, 5))  # fmt: skip
case("addmv", ops.addmv, torch.addmv, normal(3), normal(3, 4), normal(4), scale=3)
case("addr", ops.addr, torch.addr, normal(3, 4), normal(3), normal(4), scale=3)
case("addbmm", ops.addbmm, torch.addbmm, normal(3, 5), normal(2, 3, 4), normal(2, 4, 5), scale=4)
SEEN = np.array([[True, False, True], [False] * 3])
for name, mask in (("bool", SEEN), ("summand", np.where(SEEN, 0.5, -np.inf).astype(np.float32))):
    case(
        f"attention, a row sees nothing, {name}",
        ops.scaled_dot_product_attention,
        F.scaled_dot_product_attention,
        normal(2, 3, 2, 4),
        normal(2, 3, 3, 4),
        normal(2, 3, 3, 5),
        mask,
        scale=4,
    )
case("cosine_similarity of large", ops.cosine_similarity, F.cosine_similarity,
     normal(3, 4) * np.float32(1e15), normal(3, 4) * np.float32(1e-15), scale=4)  # fmt: skip

# ---- searching

ORDER = np.array([-1, 0.5, 0.5, 2, np.inf, np.nan], np.float32)
for right in (False, True):
    for label, rows in (("sorted", ORDER), ("NaN inside", np.roll(ORDER, 2))):
        case(
            f"searchsorted {label} {right}",
            lambda s, v, right=right: ops.searchsorted(s, v, right=right),
            lambda s, v, right=right: torch.searchsorted(s, v, right=right),
            rows,
            special(),
        )
case("histc", lambda x: ops.histc(x, 5, -1, 2), lambda x: torch.histc(x, 5, -1, 2), X)
case("histc of the data", lambda x: ops.histc(x, 4), lambda x: torch.histc(x, 4), X)

# ---- sizes by any factor

for factor in (2.5, 0.3, 1.7, 1 / 3, 2):
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        case(
            f"interpolate {factor:.2f} {mode}",
            lambda x, f=factor, m=mode: ops.interpolate(x, None, f, m),
            lambda x, f=factor, m=mode: F.interpolate(x, None, f, m),
            normal(2, 1, 5, 7),
            scale=20,
        )

# ---- shapes

MOVES = {
    "permute": lambda m, x: m.permute(x, (2, 0, 1)),
    "transpose": lambda m, x: m.transpose(x, 0, -1),
    "reshape": lambda m, x: m.reshape(x, (5, -1)),
    "expand": lambda m, x: m.broadcast_to(x, (2, 3, 4, 5)),
    "squeeze": lambda m, x: m.squeeze(x[:, :1], 1),
    "unsqueeze": lambda m, x: m.unsqueeze(x, -2),
    "flatten": lambda m, x: m.flatten(x, 1),
    "unflatten": lambda m, x: m.unflatten(x, 1, (2, 2)),
    "movedim": lambda m, x: m.movedim(x, 0, -1),
    "narrow": lambda m, x: m.narrow(x, 1, 1, 2),
    "select": lambda m, x: m.select(x, 1, -1),
    "diagonal": lambda m, x: m.diagonal(x, 1, 0, 2),
    "repeat_interleave flat": lambda m, x: m.repeat_interleave(x, 2),
    "diag of a matrix": lambda m, x: m.diag(x[0], 1),
    "diag of a vector": lambda m, x: m.diag(x[0, 0], -1),
    "concat": lambda m, x: m.concat([x, x], 1),
}
for name, move in MOVES.items():
    ours, theirs = (lambda x, f=move, m=m: f(m, x) for m in (ops, torch))
    case(name, ours, theirs, X)
case(
    "upsample",
    lambda x: ops.upsample(x, None, 2),
    lambda x: F.interpolate(x, scale_factor=2),
    X[None],
)
case("channel_shuffle", lambda x: ops.channel_shuffle(x, 2), lambda x: F.channel_shuffle(x, 2), X)
case("tri", lambda x: ops.tri(x.graph, 3, 5, 1), lambda x: torch.ones(3, 5).tril(1).bool(), X)
case(
    "tril_indices",
    lambda x: ops.tril_indices(x.graph, 3, 4, -1),
    lambda x: torch.tril_indices(3, 4, -1),
    X,
)
case("where broadcast", ops.where, torch.where, booleans(3, 1, 1), X, Y[0])

# ---- pooling over one and three dimensions

for kind in ("avg", "max"):
    for n, data in ((1, X), (3, VOLUME)):
        name = f"adaptive_{kind}_pool{n}d"
        size = (2, 3, 4)[:n] if n > 1 else 3
        case(
            name,
            lambda x, f=name, s=size: getattr(ops, f)(x, s),
            lambda x, f=name, s=size: getattr(F, f)(x, s),
            data,
        )

# ---- rotary positions

ANGLES = np.outer(np.arange(4), [1.0, 0.1]).astype(np.float32)  # (positions, width / 2)


def turned(x: torch.Tensor, angles: torch.Tensor, pairs_of_neighbours: bool) -> torch.Tensor:
    """The rotation as multiplication by complex numbers."""
    first, second = (x[..., ::2], x[..., 1::2]) if pairs_of_neighbours else x.chunk(2, -1)
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    parts = (product.real, product.imag)
    return torch.stack(parts, -1).flatten(-2) if pairs_of_neighbours else torch.cat(parts, -1)


def rotary(x: object, angles: object) -> object:
    both = ops.cat([angles, angles], -1)
    return ops.apply_rotary(x, ops.cos(both), ops.sin(both))


case("apply_rotary", rotary, lambda x, a: turned(x, a, False), normal(2, 4, 4), ANGLES, scale=2)
case(
    "apply_rotary_pairs",
    lambda x, a: ops.apply_rotary_pairs(x, ops.cos(a), ops.sin(a)),
    lambda x, a: turned(x, a, True),
    normal(2, 4, 4),
    ANGLES,
    scale=2,
)
