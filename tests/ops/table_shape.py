"""Cases: joining, cutting, indexing, creation."""

from __future__ import annotations

import numpy as np
import torch

from luminal import ops

from .cases import booleans, case, integers, normal, positive, special

X = normal(3, 4, 5)

# ---- joining, cutting, moving

case(
    "cat", lambda *t: ops.cat(t, 1), lambda *t: torch.cat(t, 1), X, normal(3, 1, 5), normal(3, 7, 5)
)
case(
    "cat promote",
    lambda *t: ops.cat(t),
    lambda *t: torch.cat(t),
    integers(3),
    normal(2),
    booleans(4),
)
case("cat empty", lambda *t: ops.cat(t, 0), lambda *t: torch.cat(t, 0), normal(0), X)
case(
    "cat inf", lambda *t: ops.cat(t, 0), lambda *t: torch.cat(t, 0), special(), special(), normal(3)
)
case(
    "cat many",
    lambda *t: ops.cat(t, -1),
    lambda *t: torch.cat(t, -1),
    *(normal(2, n) for n in (1, 4, 2, 3, 1, 5, 2)),
)
case("stack", lambda *t: ops.stack(t, 1), lambda *t: torch.stack(t, 1), X, X + 1, X * 2)
case("hstack", lambda *t: ops.hstack(t), lambda *t: torch.hstack(t), X, X)
case("vstack", lambda *t: ops.vstack(t), lambda *t: torch.vstack(t), normal(3), normal(4, 3))
case("split", lambda x: ops.split(x, 2, 1), lambda x: torch.split(x, 2, 1), normal(3, 5))
case(
    "split sizes",
    lambda x: ops.split(x, [1, 0, 4], 1),
    lambda x: torch.split(x, [1, 0, 4], 1),
    normal(3, 5),
)
case("chunk", lambda x: ops.chunk(x, 3, 0), lambda x: torch.chunk(x, 3, 0), normal(7, 2))
case(
    "tensor_split",
    lambda x: ops.tensor_split(x, 3),
    lambda x: torch.tensor_split(x, 3),
    normal(7, 2),
)
case("unbind", lambda x: ops.unbind(x, 1), lambda x: torch.unbind(x, 1), X)
case("roll", lambda x: ops.roll(x, (1, -2), (0, 2)), lambda x: torch.roll(x, (1, -2), (0, 2)), X)
case("roll flat", lambda x: ops.roll(x, 7), lambda x: torch.roll(x, 7), X)
case("flip", lambda x: ops.flip(x, (0, 2)), lambda x: torch.flip(x, (0, 2)), X)
case("rot90", lambda x: ops.rot90(x, 3), lambda x: torch.rot90(x, 3), X)
case("repeat", lambda x: x.repeat(2, 1, 3, 2), lambda x: x.repeat(2, 1, 3, 2), X)
case(
    "repeat_interleave", lambda x: x.repeat_interleave(3, 1), lambda x: x.repeat_interleave(3, 1), X
)
case("tile", lambda x: ops.tile(x, (2, 3)), lambda x: torch.tile(x, (2, 3)), X)
case(
    "meshgrid",
    lambda *t: ops.meshgrid(*t),
    lambda *t: torch.meshgrid(*t, indexing="ij"),
    normal(2),
    normal(3),
    normal(4),
)
case(
    "meshgrid xy",
    lambda *t: ops.meshgrid(*t, indexing="xy"),
    lambda *t: torch.meshgrid(*t, indexing="xy"),
    normal(2),
    normal(3),
)
for k in (-2, 0, 1):
    case(f"tril {k}", lambda x, k=k: ops.tril(x, k), lambda x, k=k: torch.tril(x, k), X)
    case(f"triu {k}", lambda x, k=k: ops.triu(x, k), lambda x, k=k: torch.triu(x, k), X)
    case(
        f"diag_embed {k}",
        lambda x, k=k: ops.diag_embed(x, k),
        lambda x, k=k: torch.diag_embed(x, k),
        normal(2, 3),
    )
case("trace", ops.trace, torch.trace, normal(4, 4))
for mode in ("reflect", "replicate", "circular"):
    case(
        f"pad {mode}",
        lambda x, m=mode: ops.pad(x, (2, 1, 3, 2), m),
        lambda x, m=mode: torch.nn.functional.pad(x, (2, 1, 3, 2), mode=m),
        normal(2, 3, 4, 5),
    )
case(
    "pad constant",
    lambda x: ops.pad(x, (2, -1, 0, 3), value=7),
    lambda x: torch.nn.functional.pad(x, (2, -1, 0, 3), value=7),
    X,
)

# ---- indexing

ROWS = integers(4, low=-3, high=3)
case(
    "embedding",
    lambda w, i: ops.embedding(i, w),
    lambda w, i: torch.nn.functional.embedding(i, w),
    normal(7, 3),
    integers(2, 5, low=0, high=7),
)
for padding in (3, -1):
    case(
        f"embedding with padding {padding}",
        lambda w, i, padding=padding: ops.embedding(i, w, padding),
        lambda w, i, padding=padding: torch.nn.functional.embedding(i, w, padding),
        normal(7, 3),
        np.array([[0, 3, 6], [6, 3, 3]]),
    )
case(
    "embedding i32",
    lambda w, i: ops.embedding(i, w),
    lambda w, i: torch.nn.functional.embedding(i, w),
    normal(7, 3),
    integers(5, low=0, high=7, dtype=np.int32),
)
case(
    "index_select",
    lambda x, i: ops.index_select(x, 1, i),
    lambda x, i: torch.index_select(x, 1, i),
    X,
    integers(6, low=0, high=4),
)
case(
    "gather",
    lambda x, i: ops.gather(x, 1, i),
    lambda x, i: torch.gather(x, 1, i),
    X,
    integers(2, 6, 5, low=0, high=4),
)
case(
    "take_along_dim",
    lambda x, i: ops.take_along_dim(x, i, 1),
    lambda x, i: torch.take_along_dim(x, i, 1),
    X,
    integers(3, 2, 1, low=0, high=4),
)
case(
    "one_hot",
    lambda i: ops.one_hot(i, 6),
    lambda i: torch.nn.functional.one_hot(i, 6),
    integers(2, 3, low=0, high=6),
)
case("x[i]", lambda x, i: x[i], lambda x, i: x[i], X, ROWS)
case("x[:, i]", lambda x, i: x[:, i], lambda x, i: x[:, i], X, ROWS)
case("x[..., i]", lambda x, i: x[..., i], lambda x, i: x[..., i], X, ROWS)
case(
    "x[i, j]",
    lambda x, i, j: x[i, j],
    lambda x, i, j: x[i, j],
    X,
    ROWS,
    integers(2, 4, low=-4, high=4),
)
case("x[:, i, j]", lambda x, i, j: x[:, i, j], lambda x, i, j: x[:, i, j], X, ROWS, ROWS)
case("x[i, :, j]", lambda x, i, j: x[i, :, j], lambda x, i, j: x[i, :, j], X, ROWS, ROWS)
case("x[1:, i, 2]", lambda x, i: x[1:, i, ::2], lambda x, i: x[1:, i, ::2], X, ROWS)
case("x[[2, 0]]", lambda x: x[[2, 0]], lambda x: x[[2, 0]], X)
BASE, PUT = normal(5, 3), normal(4, 3, seed=8)
PLACES = integers(4, 3, low=0, high=5)
UNIQUE = np.argsort(normal(5, 3), axis=0)[:4].copy()
case(
    "scatter",
    lambda b, i, v: ops.scatter(b, 0, i, v),
    lambda b, i, v: b.scatter(0, i, v),
    BASE,
    UNIQUE,
    PUT,
)
case(
    "scatter number",
    lambda b, i: ops.scatter(b, 0, i, 2.5),
    lambda b, i: b.scatter(0, i, 2.5),
    BASE,
    PLACES,
)
case(
    "scatter_add",
    lambda b, i, v: ops.scatter_add(b, 0, i, v),
    lambda b, i, v: b.scatter_add(0, i, v),
    BASE,
    PLACES,
    PUT,
)
case(
    "scatter_add part",
    lambda b, i, v: ops.scatter_add(b, 0, i, v),
    lambda b, i, v: b.scatter_add(0, i, v),
    BASE,
    PLACES[:3, :2].copy(),
    PUT,
)
for mode in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        case(
            f"scatter_reduce {mode} {own}",
            lambda b, i, v, m=mode, o=own: ops.scatter_reduce(b, 0, i, v, m, include_self=o),
            lambda b, i, v, m=mode, o=own: b.scatter_reduce(0, i, v, m, include_self=o),
            BASE,
            PLACES,
            PUT,
        )
VECTOR = np.array([3, 0, 3])
case(
    "index_add",
    lambda b, i, v: ops.index_add(b, 0, i, v, alpha=2),
    lambda b, i, v: b.index_add(0, i, v, alpha=2),
    BASE,
    VECTOR,
    normal(3, 3),
)
case(
    "index_copy",
    lambda b, i, v: ops.index_copy(b, 1, i, v),
    lambda b, i, v: b.index_copy(1, i, v),
    BASE,
    np.array([2, 0]),
    normal(5, 2),
)
case(
    "index_fill",
    lambda b, i: ops.index_fill(b, 0, i, 9),
    lambda b, i: b.index_fill(0, i, 9),
    BASE,
    VECTOR,
)
case(
    "select_scatter",
    lambda b, v: ops.select_scatter(b, v, 1, 2),
    lambda b, v: torch.select_scatter(b, v, 1, 2),
    BASE,
    normal(5),
)
case(
    "index_put",
    lambda b, i, v: ops.index_put(b, (i,), v),
    lambda b, i, v: b.index_put((i,), v),
    BASE,
    np.array([4, -5, 2]),
    normal(3, 3),
)
case(
    "index_put pairs",
    lambda b, i, j, v: ops.index_put(b, (i, j), v),
    lambda b, i, j, v: b.index_put((i, j), v),
    BASE,
    np.array([4, 1, 2]),
    np.array([0, -1, 1]),
    normal(3),
)
case(
    "index_put add",
    lambda b, i, v: ops.index_put(b, (i,), v, accumulate=True),
    lambda b, i, v: b.index_put((i,), v, accumulate=True),
    BASE,
    VECTOR,
    normal(3, 3),
)
case(
    "index_put mask",
    lambda b, m: ops.index_put(b, (m,), 0.5),
    lambda b, m: b.index_put((m,), torch.tensor(0.5)),
    BASE,
    booleans(5, 3),
)
case(
    "bincount",
    lambda x: ops.bincount(x, minlength=8),
    lambda x: torch.bincount(x, minlength=8),
    integers(30, low=0, high=8),
)

# ---- creation (a tensor is needed to know the graph)

ONE = positive(1)
CREATED = {
    "arange": (lambda g: ops.arange(g, 7), lambda: torch.arange(7)),
    "arange step": (lambda g: ops.arange(g, 10, -3, -4), lambda: torch.arange(10, -3, -4)),
    "arange float": (lambda g: ops.arange(g, 0.5, 3.0, 0.3), lambda: torch.arange(0.5, 3.0, 0.3)),
    "arange f32": (
        lambda g: ops.arange(g, 5, dtype="f32"),
        lambda: torch.arange(5, dtype=torch.float32),
    ),
    "linspace": (lambda g: ops.linspace(g, -1, 3, 11), lambda: torch.linspace(-1, 3, 11)),
    "logspace": (lambda g: ops.logspace(g, -1, 2, 7), lambda: torch.logspace(-1, 2, 7)),
    "linspace i64": (
        lambda g: ops.linspace(g, -3, 8, 6, "i64"),
        lambda: torch.linspace(-3, 8, 6, dtype=torch.int64),
    ),
    "logspace i64": (
        lambda g: ops.logspace(g, 0, 9, 10, dtype="i64"),
        lambda: torch.logspace(0, 9, 10, dtype=torch.int64),
    ),
    "zeros": (lambda g: ops.zeros(g, (2, 3)), lambda: torch.zeros(2, 3)),
    "ones i8": (lambda g: ops.ones(g, (2,), "i8"), lambda: torch.ones(2, dtype=torch.int8)),
    "full": (lambda g: ops.full(g, (2, 2), 7), lambda: torch.full((2, 2), 7)),
    "eye": (lambda g: ops.eye(g, 3, 5), lambda: torch.eye(3, 5)),
}
for name, (ours, theirs) in CREATED.items():
    case(name, lambda x, o=ours: o(x.graph), lambda x, t=theirs: t(), ONE, scale=2)
