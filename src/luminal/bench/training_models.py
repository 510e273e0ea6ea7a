"""Models whose training steps are timed, each written once for both libraries.

`base`: the class of modules. `make`: (name of a module, arguments) -> the module. `f`: functions.
All return logits (rows, classes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

Make: TypeAlias = Callable[..., Any]
Batch: TypeAlias = tuple[np.ndarray, np.ndarray]  # inputs, targets (rows,)
Model: TypeAlias = Callable[[type, Make, Any], Any]

LAYERS, WIDTH, HEADS, TOKENS, SEQUENCES, VOCABULARY = 6, 384, 6, 256, 8, 2048
IMAGES, CLASSES = 16, 10
LENGTH, LETTERS, HIDDEN = 64, 96, 256


def gpt(base: type, make: Make, f: Any) -> Any:
    """A GPT whose table of tokens is tied to its head."""

    class Layer(base):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = make("LayerNorm", WIDTH), make("LayerNorm", WIDTH)
            self.qkv, self.out = make("Linear", WIDTH, 3 * WIDTH), make("Linear", WIDTH, WIDTH)
            self.up, self.down = make("Linear", WIDTH, 4 * WIDTH), make("Linear", 4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            wide = self.qkv(self.norm1(x)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in wide)
            mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(f.gelu(self.up(self.norm2(x))))

    class Gpt(base):
        def __init__(self) -> None:
            super().__init__()
            self.table = make("Embedding", VOCABULARY, WIDTH)
            self.places = make("Embedding", TOKENS, WIDTH)
            self.norm = make("LayerNorm", WIDTH)
            for number in range(LAYERS):
                setattr(self, f"layer{number}", Layer())

        def forward(self, x: Any) -> Any:
            x = self.table(x) + self.places.weight
            for number in range(LAYERS):
                x = getattr(self, f"layer{number}")(x)
            return f.linear(self.norm(x), self.table.weight).flatten(0, 1)

    return Gpt()


def resnet(base: type, make: Make, f: Any) -> Any:
    """arXiv 1512.03385 as it is used on small images: a 3 x 3 stem, no pooling before the end."""

    class Block(base):
        def __init__(self, inside: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = make("Conv2d", inside, out, 3, stride, 1, bias=False)
            self.conv2 = make("Conv2d", out, out, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = make("BatchNorm2d", out), make("BatchNorm2d", out)
            self.shortened = stride > 1 or inside != out
            if self.shortened:
                self.short = make("Conv2d", inside, out, 1, stride, bias=False)
                self.bn3 = make("BatchNorm2d", out)

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(f.relu(self.bn1(self.conv1(x)))))
            return f.relu(y + (self.bn3(self.short(x)) if self.shortened else x))

    class ResNet(base):
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

    class Letters(base):
        def __init__(self) -> None:
            super().__init__()
            self.table = make("Embedding", LETTERS, HIDDEN)
            self.lstm = make("LSTM", HIDDEN, HIDDEN, 2, batch_first=True)
            self.head = make("Linear", HIDDEN, LETTERS)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.table(x))[0]).flatten(0, 1)

    return Letters()


# ---- data: something that can be learnt


def words() -> Iterator[Batch]:
    """Tokens of which the next follows from the last, most often."""
    random = np.random.default_rng(0)
    after = random.integers(0, VOCABULARY, VOCABULARY)
    while True:
        rows = random.integers(0, VOCABULARY, (SEQUENCES, TOKENS + 1))
        for place in range(1, TOKENS + 1):
            known = random.random(SEQUENCES) < 0.8
            rows[:, place] = np.where(known, after[rows[:, place - 1]], rows[:, place])
        yield rows[:, :-1].copy(), rows[:, 1:].reshape(-1)


def pictures() -> Iterator[Batch]:
    """A class is a pattern under noise."""
    random = np.random.default_rng(0)
    patterns = random.standard_normal((CLASSES, 3, 32, 32))
    while True:
        targets = random.integers(0, CLASSES, IMAGES)
        noise = random.standard_normal((IMAGES, 3, 32, 32))
        yield (patterns[targets] + noise).astype(np.float32), targets


def letters() -> Iterator[Batch]:
    """A letter follows from the one before it."""
    random = np.random.default_rng(0)
    after = random.permutation(LETTERS)
    while True:
        rows = [random.integers(0, LETTERS, IMAGES)]
        for _ in range(LENGTH):
            rows.append(after[rows[-1]])
        made = np.stack(rows, -1)
        yield made[:, :-1].copy(), made[:, 1:].reshape(-1)


@dataclass(frozen=True)
class Case:
    """A model, and endless batches for it."""

    model: Model
    data: Callable[[], Iterator[Batch]]


CASES = {"gpt": Case(gpt, words), "resnet": Case(resnet, pictures), "lstm": Case(lstm, letters)}
