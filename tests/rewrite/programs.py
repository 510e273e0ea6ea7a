"""Random graphs: movements, elementwise operations, reductions, scans, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from luminal.graph.graph import Graph
from luminal.graph.tensor import Tensor

Draw = Callable[[Any], Any]


def ints(draw: Draw, low: int, high: int) -> int:
    return draw(st.integers(low, high))


def random_view(draw: Draw, x: Tensor) -> Tensor:
    """One movement of x."""
    dim = ints(draw, 0, x.ndim - 1)
    size = int(x.shape[dim])
    kind = draw(st.sampled_from(("permute", "reshape", "slice", "pad", "flip", "roll", "unfold",
                                 "expand", "squeeze", "diagonal", "repeat", "interleave",
                                 "dilate")))  # fmt: skip
    if kind == "permute":
        return x.permute(*draw(st.permutations(range(x.ndim))))
    if kind == "reshape":
        return random_reshape(draw, x)
    if kind == "slice" and size > 1:
        start = ints(draw, 0, size - 1)
        stop = ints(draw, start, size)
        key: list[Any] = [slice(None)] * x.ndim
        key[dim] = slice(start, stop, ints(draw, 1, 2))
        return x[tuple(key)]
    if kind == "pad":
        widths = [(0, 0)] * x.ndim
        widths[dim] = (ints(draw, -1 if size > 2 else 0, 2), ints(draw, -1 if size > 2 else 0, 2))
        return x.pad(widths, draw(st.sampled_from((0, 3))))
    if kind == "flip":
        return x.flip(dim)
    if kind == "roll" and size:
        return x.roll(ints(draw, -2, 2), dim)
    if kind == "unfold" and size > 1:
        return x.unfold(dim, ints(draw, 1, min(size, 3)), ints(draw, 1, 3))
    if kind == "expand":
        return x.unsqueeze(dim).expand(*x.shape[:dim], ints(draw, 1, 3), *x.shape[dim:])
    if kind == "squeeze":
        return x.squeeze()
    if kind == "diagonal" and x.ndim > 1:
        return x.diagonal(ints(draw, -1, 1), 0, 1)
    if kind == "repeat":
        return x.repeat(*[2 if d == dim else 1 for d in range(x.ndim)])
    if kind == "interleave":
        return x.repeat_interleave(2, dim)
    if kind == "dilate" and size:
        return x.dilate(2, dim)
    return x


def random_reshape(draw: Draw, x: Tensor) -> Tensor:
    total = int(np.prod([int(n) for n in x.shape]))
    if total == 0:
        return x
    sizes = []
    while total > 1 and len(sizes) < 3:
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        sizes.append(draw(st.sampled_from(divisors)))
        total //= sizes[-1]
    return x.reshape(*sizes, total)


def fitted(draw: Draw, x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Some tensor of this shape made of x."""
    if x.shape == shape:
        return x
    total = int(np.prod([int(n) for n in x.shape]))
    wanted = int(np.prod([int(n) for n in shape]))
    if total == 0:
        x, total = x.graph.literal(2, x.dtype).reshape(1), 1
    flat = x.reshape(total)
    count = max(1, -(-wanted // total))
    return flat.repeat(count)[:wanted].reshape(*shape)


def random_step(draw: Draw, pool: list[Tensor], index: Tensor) -> Tensor:
    """A new tensor made of those in the pool."""
    x = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(("view", "view", "view", "add", "mul", "self", "reduce", "scan",
                                 "gather", "scatter", "where", "transposed", "assign",
                                 "assign")))  # fmt: skip
    if kind == "view" and x.ndim:
        return random_view(draw, x)
    if kind == "self" and x.ndim:
        return x._binary("add", fitted(draw, random_view(draw, x), x.shape))
    if kind in ("add", "mul"):
        return x._binary(kind, fitted(draw, draw(st.sampled_from(pool)), x.shape))
    if kind == "reduce" and x.ndim:
        dims = draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))
        return x._reduce(draw(st.sampled_from(("sum", "max", "min"))), tuple(sorted(dims)))
    if kind == "scan" and x.ndim:
        return x.scan(draw(st.sampled_from(("sum", "max"))), ints(draw, 0, x.ndim - 1))
    if kind in ("gather", "scatter") and x.ndim:
        return random_indexed(draw, kind, x, pool, index)
    if kind == "where" and x.ndim:
        return random_where(draw, x, fitted(draw, draw(st.sampled_from(pool)), x.shape))
    if kind == "assign" and x.ndim and all(x.shape):
        return random_assignment(draw, x, draw(st.sampled_from(pool)))
    if kind == "transposed" and x.ndim == 2 and x.shape[0] == x.shape[1]:
        return x._binary("add", x.permute(1, 0))
    return x


def random_indexed(draw: Draw, kind: str, x: Tensor, pool: list[Tensor], index: Tensor) -> Tensor:
    dim = ints(draw, 0, x.ndim - 1)
    shape = list(x.shape)
    shape[dim] = ints(draw, 1, 3)
    if draw(st.booleans()):
        where = fitted(draw, index, tuple(shape))
    else:
        step, offset = ints(draw, -2, 2), ints(draw, -2, 3)
        where = x.graph.iota(shape, f"i{dim}*{step} + {offset}")
    if kind == "gather":
        return x._gather(where, dim)
    values = fitted(draw, draw(st.sampled_from(pool)), tuple(shape))
    return x._scatter(where, values, dim, draw(st.sampled_from(("set", "sum", "max"))))


def random_where(draw: Draw, x: Tensor, y: Tensor) -> Tensor:
    graph, shape = x.graph, x.shape
    conditions = []
    for _ in range(ints(draw, 1, 2)):
        first = graph.iota(shape, f"i{ints(draw, 0, x.ndim - 1)}*{ints(draw, -1, 2)}")
        second = graph.iota(shape, f"i{ints(draw, 0, x.ndim - 1)} + {ints(draw, -2, 2)}")
        op = draw(st.sampled_from(("less", "equal")))
        condition = graph.apply(op, [first, second])
        if draw(st.booleans()):
            true = graph.literal(True).expand(*shape)
            condition = graph.apply("xor", [condition, true])
        conditions.append(condition)
    if draw(st.booleans()):
        conditions.append(graph.apply("less", [x, y]))
    condition = conditions[0]
    for other in conditions[1:]:
        condition = graph.apply(draw(st.sampled_from(("and", "or"))), [condition, other])
    return graph.apply("select", [condition, x, y])


def random_assignment(draw: Draw, x: Tensor, values: Tensor) -> Tensor:
    """x with a block of it replaced, as `x[1:3, 0] = values` does, or added to."""
    starts = [ints(draw, 0, int(size) - 1) for size in x.shape]
    stops = [ints(draw, start + 1, int(size)) for start, size in zip(starts, x.shape)]
    ends = list(zip(starts, stops))
    block = tuple(stop - start for start, stop in ends)
    written = fitted(draw, values, block)
    if draw(st.booleans()):
        written = written._binary("add", x[tuple(slice(*end) for end in ends)])
    widths = [(start, int(size) - stop) for (start, stop), size in zip(ends, x.shape)]
    there = x.graph.literal(True).expand(*block).pad(widths, False)
    return x.graph.apply("select", [there, written.pad(widths, 0), x])


def random_constant(draw: Draw, graph: Graph, shape: tuple[int, ...]) -> Tensor:
    """Values made in the graph: one number, positions, or two numbers by a mask."""
    kind = draw(st.sampled_from(("number", "number", "positions", "mask")))
    numbers = [graph.literal(float(ints(draw, -1, 2)), "f64").expand(*shape) for _ in range(2)]
    if kind == "positions":
        return graph.iota(shape, f"i{ints(draw, 0, len(shape) - 1)} - 1").cast("f64")
    return random_where(draw, *numbers) if kind == "mask" else numbers[0]


@st.composite
def programs(draw: Draw, steps: int = 6) -> tuple[Graph, list[Any], dict[Any, np.ndarray]]:
    """(graph, output nodes, values of the sources): small integers in f64, so sums are exact. Half
    of what they start from is made in the graph."""
    graph = Graph()
    rng = np.random.default_rng(ints(draw, 0, 999))
    pool: list[Tensor] = []
    feeds: dict[Any, np.ndarray] = {}
    for _ in range(2):
        shape = draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=3))
        if draw(st.booleans()):
            pool.append(random_constant(draw, graph, tuple(shape)))
            continue
        pool.append(graph.tensor(tuple(shape), dtype="f64"))
        feeds[pool[-1].node] = rng.integers(-4, 5, shape).astype(np.float64)
    index = graph.tensor((5,), dtype="i64")
    feeds[index.node] = rng.integers(-2, 6, 5)
    for _ in range(ints(draw, 1, steps)):
        new = random_step(draw, pool, index)
        if int(np.prod([int(n) for n in new.shape])) <= 2000 and new.ndim <= 6:
            pool.append(new)
    outputs = [pool[-1].node, *(t.node for t in pool[2:-1] if draw(st.booleans()))]
    return graph, outputs, feeds
