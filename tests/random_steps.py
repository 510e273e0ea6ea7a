"""The steps of random graphs: each makes one more tensor, or nothing where it does not fit.

What one rounding decides (a rank, a comparison, a number rounded to an integer) is asked of exact
values only (`Maker.exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import numpy as np

from luminal import Graph, Tensor, ops


class Maker(Protocol):
    """Who draws the steps."""

    random: Random
    graph: Graph
    tensors: list[Tensor]

    def pick(self, options: Any) -> Any: ...
    def mask(self, shape: tuple[Any, ...]) -> Tensor: ...
    def index(self, shape: tuple[Any, ...]) -> str: ...
    def exact(self, *tensors: Tensor) -> bool: ...


Step = Callable[[Maker, Tensor], "Tensor | None"]
STEPS: dict[str, Step] = {}


def step(make: Step) -> Step:
    STEPS[make.__name__] = make
    return make


def real(x: Tensor) -> Tensor:
    """In f32, small enough for any function."""
    return x.cast("f32").clamp(-4.0, 4.0)


@step
def unary(m: Maker, x: Tensor) -> Tensor:
    smooth = ["exp", "tanh", "relu", "abs", "neg", "sigmoid", "sin"]
    stepped = ["floor", "ceil", "trunc", "round", "sign"] if m.exact(x) else []
    return getattr(real(x), m.pick(smooth + stepped))()


@step
def binary(m: Maker, x: Tensor) -> Tensor:
    y = m.pick([y for y in m.tensors if _broadcasts(x, y)])
    if x.dtype is not y.dtype:
        x, y = x.cast("f32"), y.cast("f32")
    if x.dtype.name == "bool":
        return m.pick([x.logical_and(y), x.logical_or(y), x == y])
    made = [x + y, x * y, x - y, x.maximum(y), x.minimum(y), ops.where(x < y, x, y)]
    if m.exact(x, y):
        made += [x < y, x <= y, x == y, ops.where(x != y, x, 1), (x > y).cast("f32")]
    return m.pick(made)


@step
def whole(m: Maker, x: Tensor) -> Tensor | None:
    """Integers as they are, up to the ends of their dtype."""
    if not x.dtype.is_integer or x.dtype.name == "bool":
        return None
    y = m.pick([y for y in m.tensors if y.dtype is x.dtype and _broadcasts(x, y)])
    bits = [x.bitwise_and(y), x.bitwise_or(y), x.bitwise_xor(y), x.bitwise_not()]
    made = [*bits, x + y, x * y, x - y, x // y, x % y, ops.fmod(x, y), abs(x), x.sign(), -x]
    made += [x.bitwise_left_shift(x * 0 + 2), x.bitwise_right_shift(x * 0 + 1)]
    if x.ndim and 0 not in x.shape:
        dim = m.random.randrange(x.ndim)
        made += [x.sum(dim), x.prod(dim), x.amax(dim), x.cumsum(dim), x.cumprod(dim)]
        made += [x.argmin(dim), x.cummax(dim).indices]
    return m.pick(made)


@step
def half(m: Maker, x: Tensor) -> Tensor | None:
    """In the few bits of f16 and bf16."""
    x = real(x).cast(m.pick(["f16", "bf16"]))
    y = m.pick([y for y in m.tensors if _broadcasts(x, y)])
    y = real(y).cast(x.dtype.name)
    made = [x + y, x * y, x.maximum(y), x.tanh()]
    return m.pick(made + [x.sum(-1), x.softmax(-1)] if x.ndim else made)


@step
def reduction(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim:
        return None
    kinds = ["sum", "mean", "amax", "amin", "prod", "logsumexp"]
    name = m.pick(["sum"] if 0 in x.shape else kinds)
    return getattr(real(x), name)(m.random.randrange(x.ndim), keepdim=m.pick([False, True]))


@step
def normalised(m: Maker, x: Tensor) -> Tensor | None:
    x = real(x)
    return m.pick([x.softmax(-1), x - x.mean(-1, keepdim=True)]) if x.ndim else None


@step
def running(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or 0 in x.shape:
        return None
    x, dim = real(x), m.random.randrange(x.ndim)
    made = [x.cumsum(dim), x.cumsum(dim), ops.logcumsumexp(x, dim), (x * 0.5).cumprod(dim)]
    made += [ops.cummax(x, dim).values, ops.cummin(x, dim).values, x.flip(dim).cumsum(dim)]
    return m.pick(made)


@step
def permuted(m: Maker, x: Tensor) -> Tensor:
    return x.permute(*m.random.sample(range(x.ndim), x.ndim))


@step
def sliced(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[0], int):
        return None
    keys = [slice(1, None), slice(None, None, 2), slice(None, None, -1), 0]
    return x[m.pick(keys)] if x.shape[0] > 1 else None


@step
def padded(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[-1], int):
        return None
    return real(x).pad([(0, 0)] * (x.ndim - 1) + [(1, 2)], m.pick([0.0, -1.5]))


@step
def reshaped(m: Maker, x: Tensor) -> Tensor:
    if not x.ndim:
        return x.unsqueeze(0)
    made = [x.flatten(), x.unsqueeze(0)]
    if isinstance(x.shape[-1], int) and x.shape[-1] % 2 == 0:
        made.append(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2))
    return m.pick(made)


@step
def flipped(m: Maker, x: Tensor) -> Tensor | None:
    return x.flip(x.ndim - 1) if x.ndim else None


@step
def moved(m: Maker, x: Tensor) -> Tensor | None:
    """Views of views of views."""
    for _ in range(m.random.randint(2, 4)):
        made = STEPS[m.pick(["permuted", "sliced", "reshaped", "flipped", "repeated"])](m, x)
        if made is not None and made.ndim <= 4:
            x = made
    return x


@step
def parts(m: Maker, x: Tensor) -> Tensor | None:
    """A diagonal, or places next to each other, or all rows as tensors of their own."""
    if x.ndim < 2 or not all(isinstance(n, int) and n > 1 for n in x.shape[-2:]):
        return None
    rows = x.unbind(-2)
    return m.pick([x.diagonal(m.random.randint(-1, 1), -2, -1), ops.stack(rows[::-1], 0), rows[0]])


@step
def joined(m: Maker, x: Tensor) -> Tensor | None:
    same = [y for y in m.tensors if y.node.shape == x.node.shape and y.dtype is x.dtype]
    return ops.cat([x, m.pick(same)], m.random.randrange(x.ndim)) if x.ndim and same else None


@step
def picked(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[0], int) or x.shape[0] < 3:
        return None
    return ops.index_select(x, 0, m.graph.constant(np.array([2, -1, 0, 2])))


def places(m: Maker, count: int) -> Tensor:
    """Rows of a dimension: some twice, as data or as a constant."""
    graph = m.graph
    known = [t for t in m.tensors if t.node.op == "input" and t.dtype.name == "i64" and t.ndim == 1]
    index = m.pick([graph.constant(m.random.choices(range(count), k=4)), *known])
    return ops.remainder(index.cast("i64"), count)


@step
def scattered(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[0], int) or x.shape[0] < 2:
        return None
    x, index = real(x), places(m, x.shape[0])
    rows = (x.sum(0, keepdim=True) * 0.5).expand(*index.shape, *x.shape[1:])
    rows = rows + m.graph.iota(rows.shape, "i0").cast("f32")
    how = m.pick(["add", "add", "copy", "prod", "mean", "amax", "amin", "fill", "put"])
    if how in ("prod", "mean", "amax", "amin"):
        return ops.index_reduce(x, 0, index, rows, how, include_self=m.pick([True, False]))
    if how == "fill":
        return ops.index_fill(x, 0, index, 2.0)
    if how == "put":
        return ops.index_put(x, (index,), rows, accumulate=m.pick([True, False]))
    return {"add": ops.index_add, "copy": ops.index_copy}[how](x, 0, index, rows)


@step
def taken(m: Maker, x: Tensor) -> Tensor | None:
    """Rows, or an element of each column, at places that are data."""
    if not x.ndim or not isinstance(x.shape[0], int) or x.shape[0] < 2:
        return None
    index = places(m, x.shape[0])
    if m.pick([True, False]):
        return ops.index_select(x, 0, index)
    along = index.reshape(-1, *[1] * (x.ndim - 1)).expand(*index.shape, *x.shape[1:])
    return ops.gather(x, 0, along)


@step
def window(m: Maker, x: Tensor) -> Tensor | None:
    """Convolutions and pooling over short rows."""
    if x.ndim < 2 or not isinstance(x.shape[-1], int) or x.shape[-1] < 3:
        return None
    if not isinstance(x.shape[-2], int):
        return None
    x, wide = real(x).reshape(-1, *x.shape[-2:]), m.pick([1, 2, 3])
    stride, padding = m.pick([1, 2, 3]), m.random.randint(0, wide // 2)
    kind = m.pick(["max", "mean", "conv", "conv2d"])
    fitting = [n for n in (1, 2, 3) if n * (wide - 1) < x.shape[-1] + 2 * padding]
    dilation = m.pick(fitting)
    if kind == "max":
        return ops.max_pool1d(x, wide, stride, padding, dilation)
    if kind == "mean":
        return ops.avg_pool1d(x, wide, stride, padding, count_include_pad=m.pick([True, False]))
    numbers = np.arange(4 * x.shape[-2] * wide, dtype=np.float32) % 7 / 8 - 0.4
    weight = m.graph.constant(numbers.reshape(4, x.shape[-2], wide))
    if kind == "conv":
        return ops.conv1d(x, weight, None, stride, padding, dilation)
    image, apart = x.unsqueeze(1), (1, dilation)
    return ops.conv2d(image, weight[:, :1].unsqueeze(1), None, stride, (0, padding), apart).sum(1)


@step
def assigned(m: Maker, x: Tensor) -> Tensor | None:
    """`x[1:3, 0] = y`, `x[1:3, 0] += y`, `x[mask] = y`."""
    if not x.ndim or not all(isinstance(size, int) for size in x.shape):
        return None
    x = real(x)
    y = real(m.pick([y for y in m.tensors if _broadcasts(x, y)] or [x])).expand(x.shape)
    if m.pick([True, False, False]):
        return ops.where(m.mask(x.shape), y, x)
    if 0 in x.shape:
        return None
    starts = [m.random.randrange(size) for size in x.shape]
    stops = [m.random.randint(start + 1, size) for start, size in zip(starts, x.shape)]
    block = tuple(slice(*ends) for ends in zip(starts, stops))
    widths = [(start, size - stop) for start, stop, size in zip(starts, stops, x.shape)]
    written = m.pick([y[block], y[block] + x[block], y[block] * 0.0 + 1.0])
    there = m.graph.literal(True).expand(*written.shape).pad(widths, False)
    return ops.where(there, written.pad(widths, 0.0), x)


@step
def converted(m: Maker, x: Tensor) -> Tensor:
    stepped = ["i32", "i64", "i8", "u8", "bool"] if m.exact(x) else []
    kind = m.pick(["f16", "bf16", "f64", *stepped])
    small = real(x).cast(kind)
    return m.pick([small, small if kind == "bool" else small * small, small.cast("f32")])


@step
def triangle(m: Maker, x: Tensor) -> Tensor | None:
    return m.pick([ops.tril, ops.triu])(real(x)) if x.ndim >= 2 else None


@step
def repeated(m: Maker, x: Tensor) -> Tensor:
    return m.pick([x.repeat(*[2] * x.ndim), x.roll(1, 0)]) if x.ndim else x


@step
def extreme(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or 0 in x.shape:
        return None
    dim, down = m.random.randrange(x.ndim), m.pick([True, False])
    x = real(x)
    made = [ops.sort(x, dim, descending=down).values, ops.msort(x)]
    count = x.shape[dim]
    if isinstance(count, int):
        made.append(ops.topk(x, m.random.randint(1, count), dim, largest=down).values)
        made.append(ops.kthvalue(x, m.random.randint(1, count), dim).values)
    if m.exact(x):
        places = [x.argmax(dim), x.argmin(dim), ops.argsort(x, dim, descending=down)]
        made += [place.cast("f32") for place in places]
    return m.pick(made)


@step
def layer(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 2 or not isinstance(x.shape[-1], int):
        return None
    weights = np.arange(x.shape[-1] * 7, dtype=np.float32).reshape(-1, 7) / 50 - 0.3
    return real(x) @ m.graph.constant(weights) + 0.5


@step
def product(m: Maker, x: Tensor) -> Tensor | None:
    return real(x) @ real(x).transpose(-1, -2) if x.ndim >= 2 else None


@step
def attended(m: Maker, x: Tensor) -> Tensor | None:
    """Attention of rows to rows: all, those before, or those that a mask lets through."""
    if x.ndim < 2 or 0 in x.shape:
        return None
    q = real(x)
    v = real(m.pick([y for y in m.tensors if y.node.shape == x.node.shape]))
    k, rows = q.flip(-2) * 0.5, x.shape[-2]
    allowed = m.mask((rows, rows))
    how = m.pick(["all", "causal", "mask", "weights", "softmax"])
    if how == "softmax":
        return ((q @ k.transpose(-1, -2)) * 0.5).softmax(-1) @ v
    if how == "causal":  # a NaN behind the mask need not reach the result (docs/limits.md)
        v = ops.where(v == v, v, 0.0)
    mask = {"mask": allowed, "weights": (q @ v.transpose(-1, -2))}.get(how)
    return ops.scaled_dot_product_attention(q, k, v, mask, is_causal=how == "causal")


@step
def contracted(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 2:
        return None
    x = real(x)
    row = x.amax(-2) if 0 not in x.shape else x.sum(-2)
    forms = [("...ij,...kj->...ik", x, x), ("...ij,...ij->...i", x, x * 0.5)]
    forms += [("...ij,...j->...i", x, row), ("...i,...j->...ij", x.sum(-1), row)]
    form, *operands = m.pick(forms)
    return ops.einsum(form, *operands)


@step
def standardised(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 2 or not all(isinstance(n, int) and n for n in x.shape[1:]):
        return None
    x = real(x)
    groups = m.pick([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0])
    most = m.random.randint(1, x.ndim - 1)
    made = [lambda: ops.group_norm(x, groups, eps=0.1)]
    made.append(lambda: ops.layer_norm(x, x.shape[-most:], eps=0.1))
    return m.pick(made)()


@step
def written(m: Maker, x: Tensor) -> Tensor | None:
    """Every element to a place in its row that is computed."""
    if not x.ndim or not all(isinstance(n, int) and n for n in x.shape):
        return None
    x, dim = real(x), m.random.randrange(x.ndim)
    at = ops.remainder(m.graph.iota(x.shape, m.index(x.shape)), x.shape[dim])
    how = m.pick(["sum", "prod", "mean", "amax", "amin"])
    return ops.scatter_reduce(x, dim, at, x * 0.5 + 1.0, how, include_self=m.pick([True, False]))


@step
def looked_up(m: Maker, x: Tensor) -> Tensor | None:
    """Elements at the places of others' order, or at computed ones."""
    if not x.ndim or not all(isinstance(n, int) and n for n in x.shape):
        return None
    dim = m.random.randrange(x.ndim)
    at = ops.remainder(m.graph.iota(x.shape, m.index(x.shape)), x.shape[dim])
    if m.exact(x):
        at = m.pick([at, ops.argsort(real(x), dim), real(x).argmax(dim, keepdim=True)])
    return ops.gather(x, dim, at)


@step
def counted(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim:
        return None
    truth = real(x) > 0.5 if m.exact(x) else m.mask(x.shape)
    dim = m.random.randrange(x.ndim)
    made = [truth.any(dim), truth.all(dim), ops.count_nonzero(truth, dim), truth.sum(dim)]
    return m.pick([*made, truth.cumsum(dim), truth.logical_not().cast("f32").mean(dim)])


@step
def pooled(m: Maker, x: Tensor) -> Tensor | None:
    """Windows over an image whose sizes may be those of a run."""
    if x.ndim < 3 or 0 in x.shape:
        return None
    padding = m.pick([0, 1])
    rest = {"stride": m.pick([1, 2]), "padding": padding}
    if any(isinstance(n, int) and n < 3 for n in x.shape[-2:]) or not padding:
        rest = {"stride": 1, "padding": 1}
    pool = m.pick([ops.max_pool2d, ops.avg_pool2d])
    return pool(real(x), m.pick([2, 3]), **rest)


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    """y broadcasts to the shape of x."""
    pairs = zip(reversed(x.shape), reversed(y.shape))
    return y.ndim <= x.ndim and all(a == b or b == 1 for a, b in pairs)
