"""Training steps of other kinds of models beside PyTorch's: ResNet-18 on 32 x 32 images, an LSTM.

    python benchmarks/training_models.py [resnet] [lstm] [--threads 2] [--steps 5] [--rounds 5]

As training.py: f32, AdamW, the same start and data; all sides take turns in one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from training import RATE, losses, table

import luminal
from luminal import nn, ops, train
from luminal.cores import count

Make: TypeAlias = Callable[..., Any]  # (name of a module, arguments) -> the module of a library
Batch: TypeAlias = tuple[np.ndarray, np.ndarray]
BATCH, CLASSES = 16, 10
LENGTH, LETTERS, WIDTH = 64, 96, 256


def resnet(base: type, make: Make, f: Any) -> Any:
    """arXiv 1512.03385 as it is used on small images: a 3 x 3 stem, no pooling before the end."""

    class Block(base):  # type: ignore[misc]
        def __init__(self, inside: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = make("Conv2d", inside, out, 3, stride, 1, bias=False)
            self.conv2 = make("Conv2d", out, out, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = make("BatchNorm2d", out), make("BatchNorm2d", out)
            self.short = self.bn3 = None
            if stride > 1 or inside != out:
                self.short = make("Conv2d", inside, out, 1, stride, bias=False)
                self.bn3 = make("BatchNorm2d", out)

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(f.relu(self.bn1(self.conv1(x)))))
            return f.relu(y + (x if self.short is None else self.bn3(self.short(x))))

    class ResNet(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = make("Conv2d", 3, 64, 3, 1, 1, bias=False)
            self.bn = make("BatchNorm2d", 64)
            widths = (64, 64, 128, 256, 512)
            pairs = [(Block(a, b, 1 + (a != b)), Block(b, b, 1)) for a, b in pairwise(widths)]
            for number, block in enumerate(block for pair in pairs for block in pair):
                setattr(self, f"block{number}", block)
            self.head = make("Linear", 512, CLASSES)

        def forward(self, x: Any) -> Any:
            x = f.relu(self.bn(self.stem(x)))
            for number in range(8):
                x = getattr(self, f"block{number}")(x)
            return self.head(x.mean((2, 3)))

    return ResNet()


def lstm(base: type, make: Make, f: Any) -> Any:
    """Two layers over letters, the next one guessed."""

    class Letters(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = make("Embedding", LETTERS, WIDTH)
            self.lstm = make("LSTM", WIDTH, WIDTH, 2, batch_first=True)
            self.head = make("Linear", WIDTH, LETTERS)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.table(x))[0]).flatten(0, 1)

    return Letters()


def pictures(steps: int) -> list[Batch]:
    """A class is a pattern under noise."""
    random = np.random.default_rng(0)
    patterns = random.standard_normal((CLASSES, 3, 32, 32))
    made = []
    for _ in range(steps):
        targets = random.integers(0, CLASSES, BATCH)
        noise = random.standard_normal((BATCH, 3, 32, 32))
        made.append(((patterns[targets] + noise).astype(np.float32), targets))
    return made


def letters(steps: int) -> list[Batch]:
    """A letter follows from the one before it."""
    random = np.random.default_rng(0)
    after, starts = random.permutation(LETTERS), random.integers(0, LETTERS, (steps, BATCH))
    rows = [starts]
    for _ in range(LENGTH):
        rows.append(after[rows[-1]])
    made = np.stack(rows, -1)
    return [(row[:, :-1].copy(), row[:, 1:].reshape(-1)) for row in made]


MODELS = {"resnet": (resnet, pictures), "lstm": (lstm, letters)}


def ours(model: Any, state: dict[str, Any], first: Batch, threads: int) -> Any:
    graph = luminal.Graph()

    def make(name: str, *given: Any, **named: Any) -> Any:
        return getattr(nn, name)(graph, *given, **named)

    module = model(nn.Module, make, ops)
    module.load_state_dict({n: state[n] for n in module.state_dict()})
    module.train()
    x, y = (graph.tensor(a.shape, {"f": "f32", "i": "i64"}[a.dtype.kind]) for a in first)
    loss = ops.cross_entropy(module(x), y)
    train.Step(loss, module.parameters(), train.AdamW(RATE))
    start = time.perf_counter()
    rt = graph.compile(threads=threads)
    print(f"ours: {len(rt.kernels)} kernels, compiled in {time.perf_counter() - start:.1f} s")

    def step(batch: Batch) -> float:
        rt[x], rt[y] = batch
        rt.run()
        return float(rt[loss])

    return step


def theirs(model: Any, state: dict[str, Any], inductor: bool) -> Any:
    def make(name: str, *given: Any, **named: Any) -> Any:
        return getattr(torch.nn, name)(*given, **named)

    module = model(torch.nn.Module, make, F)
    module.load_state_dict(state)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(module(x), y)

    compiled = torch.compile(loss_of) if inductor else loss_of

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        loss = compiled(*map(torch.from_numpy, batch))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=count())
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    for name in given.models:
        model, data_of = MODELS[name]
        torch.manual_seed(0)

        def make(kind: str, *given: Any, **named: Any) -> Any:
            return getattr(torch.nn, kind)(*given, **named)

        state = {n: v.clone() for n, v in model(torch.nn.Module, make, F).state_dict().items()}
        data = data_of(given.steps)
        print(name)
        sides = {
            "ours": ours(model, state, data[0], given.threads),
            "torch": theirs(model, state, inductor=False),
            "inductor": theirs(model, state, inductor=True),
        }
        losses(sides, data)
        table(sides, data[0], given.rounds)


if __name__ == "__main__":
    main()
