"""A training step beside PyTorch's: a small GPT, f32, the same start and the same data.

    python benchmarks/training.py [--threads 2] [--steps 50] [--rounds 5] [--kernels]

All sides take turns in one process: ours, torch eager, inductor (forward, backward and the fused
AdamW compiled). First the losses of so many steps are compared, then steps are timed. --kernels
prints where the time of our step goes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luminal
from luminal import nn, ops, train
from luminal.backend import cpu
from luminal.bench.paired import settle
from luminal.cores import count
from luminal.search.profile import profile

RATE = 3e-4


@dataclass(frozen=True)
class Shape:
    """Of a GPT: its layers, their width, tokens of a sequence, sequences of a batch."""

    layers: int = 6
    width: int = 384
    heads: int = 6
    tokens: int = 256
    batch: int = 8
    vocabulary: int = 2048


class Block:
    """A layer, in both libraries: `n` makes the parts, `f` computes."""

    @staticmethod
    def forward(m: Any, x: Any, f: Any, heads: int) -> Any:
        wide = m.qkv(m.norm1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in wide)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + m.out(mixed.transpose(1, 2).flatten(2))
        return x + m.down(f.gelu(m.up(m.norm2(x))))


class Layer(nn.Module):
    def __init__(self, graph: luminal.Graph, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(graph, width), nn.LayerNorm(graph, width)
        self.qkv, self.out = nn.Linear(graph, width, 3 * width), nn.Linear(graph, width, width)
        self.up, self.down = nn.Linear(graph, width, 4 * width), nn.Linear(graph, 4 * width, width)
        self.heads = heads

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        return Block.forward(self, x, ops, self.heads)


class TorchLayer(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Block.forward(self, x, F, self.heads)


class Gpt(nn.Module):
    """Tokens (batch, tokens) to logits (batch, tokens, vocabulary); the table is tied."""

    def __init__(self, graph: luminal.Graph, shape: Shape) -> None:
        super().__init__()
        self.table = nn.Embedding(graph, shape.vocabulary, shape.width)
        self.places = nn.Embedding(graph, shape.tokens, shape.width)
        self.layers = nn.ModuleList(
            [Layer(graph, shape.width, shape.heads) for _ in range(shape.layers)]
        )
        self.norm = nn.LayerNorm(graph, shape.width)

    def forward(self, x: luminal.Tensor) -> luminal.Tensor:
        x = self.table(x) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return ops.linear(self.norm(x), self.table.weight)


class TorchGpt(torch.nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(shape.vocabulary, shape.width)
        self.places = torch.nn.Embedding(shape.tokens, shape.width)
        self.layers = torch.nn.ModuleList(
            [TorchLayer(shape.width, shape.heads) for _ in range(shape.layers)]
        )
        self.norm = torch.nn.LayerNorm(shape.width)
        for p in self.parameters():
            if p.ndim == 2:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x) + self.places.weight
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.table.weight)


def text(shape: Shape, steps: int) -> np.ndarray:
    """Tokens (steps, batch, tokens + 1) in which the next follows from the last, most often."""
    random = np.random.default_rng(0)
    after = random.integers(0, shape.vocabulary, shape.vocabulary)
    made = random.integers(0, shape.vocabulary, (steps, shape.batch, shape.tokens + 1))
    for place in range(1, shape.tokens + 1):
        known = random.random((steps, shape.batch)) < 0.8
        made[..., place] = np.where(known, after[made[..., place - 1]], made[..., place])
    return made


Side = Callable[[np.ndarray], float]


def ours(shape: Shape, state: dict[str, Any], threads: int) -> tuple[Side, Any]:
    """A step of ours and its program."""
    graph = luminal.Graph()
    model = Gpt(graph, shape)
    model.load_state_dict(state)
    x = graph.tensor((shape.batch, shape.tokens), "i64")
    y = graph.tensor((shape.batch, shape.tokens), "i64")
    loss = ops.cross_entropy(model(x).flatten(0, 1), y.flatten())
    train.Step(loss, model.parameters(), train.AdamW(RATE))
    start = time.perf_counter()
    rt = graph.compile(threads=threads)
    print(f"ours: {len(rt.kernels)} kernels, compiled in {time.perf_counter() - start:.1f} s")

    def step(rows: np.ndarray) -> float:
        rt[x], rt[y] = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
        rt.run()
        return float(rt[loss])

    return step, rt


def theirs(shape: Shape, state: dict[str, Any], inductor: bool) -> Side:
    """A step of PyTorch."""
    model = TorchGpt(shape)
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    compiled = torch.compile(loss_of) if inductor else loss_of

    def step(rows: np.ndarray) -> float:
        tokens = torch.from_numpy(rows)
        optimizer.zero_grad()
        loss = compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def losses(sides: dict[str, Side], data: np.ndarray) -> None:
    """Every side over the same data; how far apart they are."""
    curves = {name: np.array([side(rows) for rows in data]) for name, side in sides.items()}
    base = curves["torch"]
    print(f"loss {base[0]:.4f} -> {base[-1]:.4f} in {len(data)} steps; largest relative distance:")
    for name, curve in curves.items():
        print(f"  {name:9} {np.abs(curve / base - 1).max():.1e}")


def table(sides: dict[str, Side], rows: np.ndarray, rounds: int) -> None:
    """Wall time of a step, and processor time of all its threads, which others on the machine
    hardly change; ratios within a round."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in sorted(sides, reverse=bool(number % 2)):
            settle()
            wall, busy = time.perf_counter(), time.process_time()
            sides[name](rows)
            now = time.perf_counter() - wall, time.process_time() - busy
            taken[name] += [now] if number else []  # the first one warms up
    print("          wall ms (x ours)    processor ms (x ours)")
    base = np.array(taken.get("ours", taken[next(iter(taken))]))
    for name, samples in taken.items():
        middle, ratio = np.median(samples, 0), np.median(np.array(samples) / base, 0)
        cells = (f"{1e3 * t:9.1f} ({r:.2f})" for t, r in zip(middle, ratio))
        print(f"{name:9}", "    ".join(cells))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=count())
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--only", help="the names of sides, comma between")
    for name, value in vars(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args(arguments))
    shape = Shape(**{name: given[name] for name in vars(Shape())})
    torch.set_num_threads(given["threads"])
    torch.manual_seed(0)
    state = TorchGpt(shape).state_dict()
    wanted = (given["only"] or "ours,torch,inductor").split(",")
    sides: dict[str, Side] = {}
    if "ours" in wanted:
        sides["ours"], rt = ours(shape, state, given["threads"])
    if "torch" in wanted:
        sides["torch"] = theirs(shape, state, inductor=False)
    if "inductor" in wanted:
        sides["inductor"] = theirs(shape, state, inductor=True)
    data = text(shape, given["steps"])
    if "torch" in sides:
        losses(sides, data)
    table(sides, data[0], given["rounds"])
    if given["kernels"] and "ours" in sides:
        threads = given["threads"]
        print(profile(rt, cpu.target(threads), cpu.rates(threads)))


if __name__ == "__main__":
    main()
