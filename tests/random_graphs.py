"""Random graphs, compiled and compared with the reference.

`python tests/random_graphs.py --count 20000 --seed 1` draws that many (graph N comes from seed N
alone) and prints those that are wrong, refused or crash; `--processes` shares them out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from luminal import Graph, Tensor, ops

SIZES = {"s": 5, "t": 3}
SHAPES: list[tuple[Any, ...]] = [
    (4, 6), ("s", 6), (3, 4, 6), ("t", "s", 6), (6,), (6, 5), (1, 7), (4, 4), (2, 1, 3),
]  # fmt: skip
DTYPES = ["f32"] * 5 + ["f64", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"]
STEPS: dict[str, Callable[[Maker, Tensor], Tensor | None]] = {}


def step(make: Callable[[Maker, Tensor], Tensor | None]) -> Callable[[Maker, Tensor], Any]:
    STEPS[make.__name__] = make
    return make


class Maker:
    """Draws operations that fit what is there. Half of the leaves are made in the graph."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.graph = Graph()
        for name in SIZES:
            self.graph.dim(name, 1, 64)
        self.tensors = [self.leaf() for _ in range(4)]

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def leaf(self) -> Tensor:
        shape, graph = self.pick(SHAPES), self.graph
        kind = self.pick(["input", "input", "input", "number", "positions", "mask"])
        if kind == "input":
            return graph.tensor(shape, self.pick(DTYPES))
        numbers = [graph.literal(float(self.random.randint(-2, 3))).expand(*shape) for _ in "ab"]
        if kind == "number":
            return numbers[0]
        if kind == "positions":
            return graph.iota(shape, self.index(shape)).cast("f32") * 0.5
        return ops.where(self.mask(shape), *numbers)

    def index(self, shape: tuple[Any, ...]) -> str:
        """An index over the positions of a shape."""
        dims = range(len(shape))
        return f"i{self.pick(dims)}*{self.random.randint(-2, 3)} + i{self.pick(dims)} - 2"

    def mask(self, shape: tuple[Any, ...]) -> Tensor:
        i = self.graph.iota(shape, self.index(shape))
        return self.pick([i < 1, i > 0, i == 0, (i > -2).logical_and(i < 2)])

    def step(self) -> None:
        """One more tensor, or nothing where it does not fit."""
        x = self.pick(self.tensors[-3:] + self.tensors)
        made = STEPS[self.pick(STEPS)](self, x)
        if made is not None and made.ndim <= 4:
            self.tensors.append(made)


def real(x: Tensor) -> Tensor:
    """In f32, small enough for any function."""
    return x.cast("f32").clamp(-4.0, 4.0)


@step
def unary(m: Maker, x: Tensor) -> Tensor:
    name = m.pick(["exp", "tanh", "relu", "abs", "neg", "sigmoid", "sin", "floor"])
    return getattr(real(x), name)()


@step
def binary(m: Maker, x: Tensor) -> Tensor:
    y = m.pick([y for y in m.tensors if _broadcasts(x, y)])
    if x.dtype is not y.dtype:
        x, y = x.cast("f32"), y.cast("f32")
    if x.dtype.name == "bool":
        return m.pick([x.logical_and(y), x.logical_or(y), x == y])
    return m.pick([x + y, x * y, x - y, x.maximum(y), x.minimum(y), ops.where(x < y, x, y)])


@step
def reduction(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim:
        return None
    name = m.pick(["sum", "mean", "amax", "amin"])
    return getattr(real(x), name)(m.random.randrange(x.ndim), keepdim=m.pick([False, True]))


@step
def normalised(m: Maker, x: Tensor) -> Tensor | None:
    x = real(x)
    return m.pick([x.softmax(-1), x - x.mean(-1, keepdim=True)]) if x.ndim else None


@step
def running(m: Maker, x: Tensor) -> Tensor | None:
    return real(x).cumsum(m.random.randrange(x.ndim)) if x.ndim else None


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
def joined(m: Maker, x: Tensor) -> Tensor | None:
    same = [y for y in m.tensors if y.node.shape == x.node.shape and y.dtype is x.dtype]
    return ops.cat([x, m.pick(same)], m.random.randrange(x.ndim)) if x.ndim and same else None


@step
def picked(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[0], int) or x.shape[0] < 3:
        return None
    return ops.index_select(x, 0, m.graph.constant(np.array([2, -1, 0, 2])))


@step
def scattered(m: Maker, x: Tensor) -> Tensor | None:
    if not x.ndim or not isinstance(x.shape[0], int) or x.shape[0] < 2:
        return None
    index = m.graph.constant(np.array([1, 0, 1, 5])) * 0 + m.random.randrange(2)
    x = real(x)
    return ops.index_add(x, 0, index, (x.sum(0, keepdim=True) * 0.5).expand(4, *x.shape[1:]))


@step
def assigned(m: Maker, x: Tensor) -> Tensor | None:
    """`x[1:3, 0] = y`, `x[1:3, 0] += y`, `x[mask] = y`."""
    if not x.ndim or not all(isinstance(size, int) for size in x.shape):
        return None
    x = real(x)
    y = real(m.pick([y for y in m.tensors if _broadcasts(x, y)] or [x])).expand(x.shape)
    if m.pick([True, False, False]):
        return ops.where(m.mask(x.shape), y, x)
    starts = [m.random.randrange(size) for size in x.shape]
    stops = [m.random.randint(start + 1, size) for start, size in zip(starts, x.shape)]
    block = tuple(slice(*ends) for ends in zip(starts, stops))
    widths = [(start, size - stop) for start, stop, size in zip(starts, stops, x.shape)]
    written = m.pick([y[block], y[block] + x[block], y[block] * 0.0 + 1.0])
    there = m.graph.literal(True).expand(*written.shape).pad(widths, False)
    return ops.where(there, written.pad(widths, 0.0), x)


@step
def converted(m: Maker, x: Tensor) -> Tensor:
    kind = m.pick(["f16", "bf16", "i32", "f64", "i64", "i8", "bool"])
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
    if not x.ndim:
        return None
    dim = m.random.randrange(x.ndim)
    taken = m.pick(["argmax", "sort"])
    if taken == "argmax" and x.node.op == "input":  # ties of sums are decided by rounding
        return real(x).argmax(dim).cast("f32")
    return ops.sort(real(x), dim).values


@step
def layer(m: Maker, x: Tensor) -> Tensor | None:
    if x.ndim < 2 or not isinstance(x.shape[-1], int):
        return None
    weights = np.arange(x.shape[-1] * 7, dtype=np.float32).reshape(-1, 7) / 50 - 0.3
    return real(x) @ m.graph.constant(weights) + 0.5


@step
def product(m: Maker, x: Tensor) -> Tensor | None:
    return real(x) @ real(x).transpose(-1, -2) if x.ndim >= 2 else None


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    """y broadcasts to the shape of x."""
    pairs = zip(reversed(x.shape), reversed(y.shape))
    return y.ndim <= x.ndim and all(a == b or b == 1 for a, b in pairs)


def program(random: Random, most: int = 8) -> Graph:
    """A random graph with one or two outputs, and now and then a state."""
    maker = Maker(random)
    for _ in range(random.randint(2, most)):
        maker.step()
    graph, made = maker.graph, maker.tensors
    made[-1].output()
    if random.random() < 0.5:
        maker.pick(made).output()
    for state in graph.inputs[: random.randint(0, 2)]:
        new = [t for t in made if t.node.shape == state.node.shape and t.dtype is state.dtype]
        graph.donate(state, maker.pick(new[-3:]))
    return graph


def feeds(graph: Graph, seed: int) -> dict[Any, np.ndarray]:
    """Values of the inputs."""
    rng = np.random.default_rng(seed)
    found: dict[Any, np.ndarray] = {}
    for tensor in graph.inputs:
        shape = [int(size.evaluate(SIZES)) for size in tensor.node.shape]
        values = rng.standard_normal(shape) if tensor.dtype.is_float else rng.integers(0, 4, shape)
        found[tensor] = values.astype(tensor.dtype.numpy)
    return found


def run_twice(rt: Any, graph: Graph, given: dict[Any, np.ndarray]) -> list[np.ndarray]:
    """All outputs of two runs in a row, and the states behind them."""
    found = []
    for tensor, array in given.items():
        rt[tensor] = array
    for _ in range(2):
        rt.run(**{name: SIZES[name] for name in rt.sizes})
        found += [np.array(rt[t]) for t in (*graph.outputs, *(s for s, _ in graph.states))]
    return found


def check(graph: Graph, seed: int) -> None:
    """Compile, run, compare. Raises AssertionError."""
    given = feeds(graph, seed)
    with np.errstate(all="ignore"):
        wanted = run_twice(graph.compile(device="reference"), graph, given)
        found = run_twice(graph.compile(device="cpu", threads=1 + seed % 2), graph, given)
    for mine, theirs in zip(found, wanted):
        assert mine.dtype == theirs.dtype
        half = mine.dtype.name in ("float16", "bfloat16")
        tolerance = 2e-2 if half else 2e-4
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=_text(graph))


def _text(graph: Graph) -> str:
    return str(graph.display())


def _one(seed: int) -> tuple[int, str, str]:
    try:
        check(program(Random(seed), most=12), seed % 4)
        return seed, "right", ""
    except AssertionError as error:
        return seed, "wrong", str(error)
    except Exception as error:
        return seed, type(error).__name__, traceback.format_exc()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    start, counts = time.time(), Counter[str]()
    seeds = range(options.seed, options.seed + options.count)
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=500) as pool:
        for seed, verdict, text in pool.imap_unordered(_one, seeds, chunksize=20):
            counts[verdict] += 1
            if counts.total() % 1000 == 0:
                print(f"{dict(counts)} after {time.time() - start:.0f} s", flush=True)
            if verdict != "right":
                print(f"--- seed {seed}: {verdict}\n{text[:3000]}", flush=True)
    print(f"{dict(counts)} in {time.time() - start:.0f} s")
    raise SystemExit(counts["right"] != options.count)


if __name__ == "__main__":
    main()
