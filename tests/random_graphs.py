"""Random graphs, compiled and compared with the reference.

`python tests/random_graphs.py --count 20000 --seed 1` draws that many (graph N comes from seed N
alone) and prints those that are wrong, refused or crash; `--processes` shares them out, `--limits`
changes what the compiler decides by size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
from collections import Counter
from random import Random
from typing import Any

import numpy as np
from oracles.exactness import Grid, grids
from random_limits import limits
from random_steps import STEPS

from luminal import Graph, Tensor, ops
from luminal.graph.order import reachable

SIZES = {"s": 5, "t": 3}
OTHERS = [{"s": 1, "t": 1}, {"s": 17, "t": 2}, {"s": 64, "t": 1}, {"s": 4, "t": 9}]
SHAPES: list[tuple[Any, ...]] = [
    (4, 6), ("s", 6), (3, 4, 6), ("t", "s", 6), (6,), (6, 5), (1, 7), (4, 4), (2, 1, 3), (4, 6),
    ("s", 6), (17,), (1,), (3, 33), ("s",), (4,), (1, 1), (2, 3, 5, 2), (0, 3), (2, "s", "t"),
]  # fmt: skip
INTEGERS = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"]
DTYPES = ["f32"] * 6 + ["f64", "f16", "bf16", "bool", *INTEGERS]
STEPPED = Grid(3, 4.0)  # inputs whose sums and products are exact
HOSTILE = [np.nan, np.inf, -np.inf, -0.0, 1e-40, -3e38, 1.0]


class Maker:
    """Draws operations that fit what is there. Half of the leaves are made in the graph."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.graph = Graph()
        for name in SIZES:
            self.graph.dim(name, 1, 64)
        self.steps: dict[Any, Grid | None] = {}  # inputs on a grid, and states, which leave theirs
        self.known: dict[Any, Grid | None] = {}
        self.states: list[Tensor] = []  # inputs that may be renewed
        self.tensors = [self.leaf() for _ in range(4)]

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def leaf(self) -> Tensor:
        shape, graph = self.pick(SHAPES), self.graph
        kind = self.pick(["input", "input", "input", "number", "positions", "mask"])
        if kind == "input":
            return self.given(shape, self.pick(DTYPES))
        numbers = [graph.literal(float(self.random.randint(-2, 3))).expand(*shape) for _ in "ab"]
        if kind == "number":
            return numbers[0]
        if kind == "positions":
            return graph.iota(shape, self.index(shape)).cast("f32") * 0.5
        return ops.where(self.mask(shape), *numbers)

    def given(self, shape: tuple[Any, ...], dtype: str) -> Tensor:
        """An input; its name says how its values are drawn."""
        kinds = ["normal", "steps", "steps", "hostile"] if dtype != "bool" else ["few"]
        kind = self.pick(["few", "few", "ends"] if dtype in INTEGERS else kinds)
        x = self.graph.tensor(shape, dtype, name=f"{kind}{len(self.graph.inputs)}")
        if self.random.random() < 0.3:
            self.states.append(x)
            self.steps[x.node] = None
        elif kind in ("steps", "few"):
            self.steps[x.node] = STEPPED if kind == "steps" else Grid(0, 4)
        return x

    def exact(self, *tensors: Tensor) -> bool:
        """Whether one rounding could not decide what is made of these."""
        found = (grids(x.node, self.steps, self.known) for x in tensors)
        return all(grid is not None for grid in found)

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
        integer = x.dtype.name in INTEGERS and self.random.random() < 0.5
        made = STEPS["whole" if integer else self.pick(STEPS)](self, x)
        if made is not None and made.ndim <= 4:
            self.tensors.append(made)


def program(random: Random, most: int = 8) -> Graph:
    """A random graph with some outputs, and now and then states."""
    maker = Maker(random)
    for _ in range(random.randint(2, most)):
        maker.step()
    graph, made = maker.graph, maker.tensors
    made[-1].output()
    for _ in range(random.randint(0, 3)):
        maker.pick(made[4:] or made).output()
    for state in maker.states:
        new = [t for t in made if t.node.shape == state.node.shape and t.dtype is state.dtype]
        graph.donate(state, maker.pick(new[-3:]))
    return graph


def feeds(graph: Graph, seed: int, sizes: dict[str, int]) -> dict[Any, np.ndarray]:
    """Values of the inputs, drawn as their names say."""
    rng = np.random.default_rng(seed)
    found: dict[Any, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for tensor in graph.inputs:
            shape = [int(size.evaluate(sizes)) for size in tensor.node.shape]
            found[tensor] = _drawn(rng, tensor, shape).astype(tensor.dtype.numpy)
    return found


def _drawn(rng: np.random.Generator, tensor: Tensor, shape: list[int]) -> np.ndarray:
    kind, dtype = tensor.node.attribute.name, tensor.dtype
    if kind.startswith("steps"):
        return rng.integers(-32, 33, shape) / 8
    if kind.startswith("hostile"):
        plain = rng.standard_normal(shape)
        return np.where(rng.random(shape) < 0.2, rng.choice(HOSTILE, shape), plain)
    if kind.startswith("ends"):
        ends = [dtype.lowest, dtype.lowest + 1, 0, 1, 3, dtype.highest - 1, dtype.highest]
        return rng.choice(np.array(ends, dtype.numpy), shape)
    return rng.standard_normal(shape) if dtype.is_float else rng.integers(0, 4, shape)


def run_twice(rt: Any, graph: Graph, given: dict[Any, np.ndarray], sizes: Any) -> list[np.ndarray]:
    """All outputs of two runs in a row, and the states behind them."""
    found = []
    for tensor, array in given.items():
        rt[tensor] = array
    for _ in range(2):
        rt.run(**{name: sizes[name] for name in rt.sizes})
        found += [np.array(rt[t]) for t in (*graph.outputs, *(s for s, _ in graph.states))]
    return found


def check(graph: Graph, seed: int, **options: Any) -> None:
    """Compile, run at two choices of sizes, compare. Raises AssertionError."""
    reference = graph.compile(device="reference")
    compiled = graph.compile(device="cpu", **{"threads": 1 + seed % 2, **options})
    nodes = reachable([t.node for t in (*graph.outputs, *(new for _, new in graph.states))])
    coarse = any(n.dtype.name in ("f16", "bf16") for n in nodes)
    for sizes in [SIZES, OTHERS[seed % len(OTHERS)]] if reference.sizes else [SIZES]:
        given = feeds(graph, seed, sizes)
        with np.errstate(all="ignore"):
            wanted = run_twice(reference, graph, given, sizes)
            found = run_twice(compiled, graph, given, sizes)
        for mine, theirs in zip(found, wanted):
            _compare(mine, theirs, 2e-2 if coarse else 2e-4, f"{sizes}\n{graph.display()}")


def _compare(mine: np.ndarray, theirs: np.ndarray, tolerance: float, text: str) -> None:
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    if mine.dtype.kind in "iub":
        np.testing.assert_array_equal(mine, theirs, err_msg=text)
    else:
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=text)


def check_with_limits(seed: int) -> None:
    """The same, where the compiler has other limits."""
    random = Random(f"limits {seed}")
    graph = program(Random(seed), most=12)
    for name in SIZES:
        graph.dim(name, hint=random.choice([None, 1, 64, (1, 17), (2, 5, 64)]))
    with limits(random) as drawn:
        try:
            check(graph, seed % 4, threads=random.choice([1, 2, 3]), cache=False, database=False)
        except Exception as error:
            error.add_note(f"limits: {drawn}")
            raise


def _one(job: tuple[int, bool]) -> tuple[int, str, str]:
    seed, limited = job
    try:
        if limited:
            check_with_limits(seed)
        else:
            check(program(Random(seed), most=12), seed % 4)
        return seed, "right", ""
    except AssertionError as error:
        return seed, "wrong", "\n".join([str(error), *getattr(error, "__notes__", ())])
    except Exception as error:
        return seed, type(error).__name__, traceback.format_exc()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limits", action="store_true", help="draw the compiler's limits, too")
    options = parser.parse_args()
    start, counts = time.time(), Counter[str]()
    seeds = range(options.seed, options.seed + options.count)
    jobs = [(seed, options.limits) for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=500) as pool:
        for seed, verdict, text in pool.imap_unordered(_one, jobs, chunksize=20):
            counts[verdict] += 1
            if counts.total() % 1000 == 0:
                print(f"{dict(counts)} after {time.time() - start:.0f} s", flush=True)
            if verdict != "right":
                print(f"--- seed {seed}: {verdict}\n{text[-3000:]}", flush=True)
    print(f"{dict(counts)} in {time.time() - start:.0f} s")
    raise SystemExit(counts["right"] != options.count)


if __name__ == "__main__":
    main()
