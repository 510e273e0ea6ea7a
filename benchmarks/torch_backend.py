"""torch.compile(backend="luminal") beside inductor and eager: model shapes, random weights, f32.

    python benchmarks/torch_backend.py [--threads 2] [--search 0] [--only minilm] [--json FILE]

All sides take turns in one process; results are checked against eager's. With a search, "untuned"
is ours once more without it: what the search gains. A crash or an endless compilation costs one
row. First calls are cold (our kept programs and inductor's caches are not used): seconds, and
processor seconds in brackets (children that still run are not counted).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from luminal.bench.case import Case, Work, normal
from luminal.bench.compare import Cell, Options, Row
from luminal.bench.machine import measured
from luminal.bench.peers import PEERS, Peer, Side, compiled
from luminal.bench.results import Results
from luminal.bench.suite import TIMEOUT, run
from luminal.bench.table import closing, heading, line
from luminal.bench.twins import seeded

TOGETHER = ("torch", "inductor")


def untuned(work: Work, threads: int, precision: str) -> Side:
    """Ours without a search, and without what earlier ones have found."""
    from luminal.frontend.torch import backend

    options = {"threads": threads, "precision": precision, "database": False, "cache": False}
    return compiled(work, threads, precision, backend=backend, options=options)


PEERS["untuned"] = Peer("untuned", "torch", untuned)  # in the process that measures, too


def bert(layers: int, width: int, heads: int) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                        intermediate_size=4 * width)  # fmt: skip
    return BertModel(config, add_pooling_layer=False)


class Prefill(nn.Module):
    """GPT-2 over a prompt: the logits of its last token."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens, use_cache=False, logits_to_keep=1).logits


class Decode(Prefill):
    """GPT-2 for one token after 128 others, whose keys and values are given."""

    def forward(
        self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        from transformers import DynamicCache

        past = DynamicCache()
        for layer, (k, v) in enumerate(zip(keys, values)):
            past.update(k, v, layer)
        return self.model(token, past_key_values=past).logits


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return ViTModel(config, add_pooling_layer=False)


def resnet50() -> nn.Module:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig())


class Inverted(nn.Module):
    """MobileNetV3's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, source: int, inner: int, out: int, kernel: int, stride: int, gate: bool,
                 act: Callable[[], nn.Module]) -> None:  # fmt: skip
        super().__init__()

        def conv(a: int, b: int, k: int, s: int = 1, groups: int = 1) -> nn.Sequential:
            layer = nn.Conv2d(a, b, k, s, k // 2, groups=groups, bias=False)
            return nn.Sequential(layer, nn.BatchNorm2d(b))

        self.expand = nn.Sequential(conv(source, inner, 1), act())
        self.depth = nn.Sequential(conv(inner, inner, kernel, stride, inner), act())
        self.project = conv(inner, out, 1)
        few = max(8, inner // 4 // 8 * 8)
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, few, 1), nn.ReLU()]
        excite = [nn.Conv2d(few, inner, 1), nn.Hardsigmoid()]
        self.gate = nn.Sequential(*squeeze, *excite) if gate else None
        self.same = stride == 1 and source == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.expand(x))
        y = y if self.gate is None else y * self.gate(y)
        y = self.project(y)
        return x + y if self.same else y


class MobileNet(nn.Module):
    """MobileNetV3-Small (Howard et al. 2019, table 2)."""

    ROWS = (  # kernel, inner, out, gate, hard swish, stride
        (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2),
        (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1),
        (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16),
                                   nn.Hardswish()]  # fmt: skip
        source = 16
        for kernel, inner, out, gate, swish, stride in self.ROWS:
            act = nn.Hardswish if swish else nn.ReLU
            layers.append(Inverted(source, inner, out, kernel, stride, bool(gate), act))
            source = out
        layers += [nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish(),
                   nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 1024), nn.Hardswish(),
                   nn.Linear(1024, 1000)]  # fmt: skip
        self.layers = nn.Sequential(*layers)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)


class Unet(nn.Module):
    """Two levels down and up, group norm and SiLU, skips by concatenation."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()

        def pair(a: int, b: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for source in (a, b):
                layers += [nn.Conv2d(source, b, 3, 1, 1), nn.GroupNorm(8, b), nn.SiLU()]
            return nn.Sequential(*layers)

        w = width
        self.top, self.left, self.middle = pair(3, w), pair(2 * w, 2 * w), pair(4 * w, 4 * w)
        self.down1, self.down2 = nn.Conv2d(w, 2 * w, 3, 2, 1), nn.Conv2d(2 * w, 4 * w, 3, 2, 1)
        self.up1, self.up2 = nn.Conv2d(4 * w, 2 * w, 3, 1, 1), nn.Conv2d(2 * w, w, 3, 1, 1)
        self.right, self.last, self.out = pair(4 * w, 2 * w), pair(2 * w, w), nn.Conv2d(w, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        a = self.top(image)
        b = self.left(self.down1(a))
        c = self.up1(F.interpolate(self.middle(self.down2(b)), scale_factor=2.0))
        c = self.up2(F.interpolate(self.right(torch.cat([c, b], 1)), scale_factor=2.0))
        return self.out(self.last(torch.cat([c, a], 1)))


class First(nn.Module):
    """The first tensor of a model's result."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result = self.model(*inputs)
        return result if isinstance(result, torch.Tensor) else result[0]


def ids(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 30000, shape)


def case(name: str, model: Callable[[], nn.Module], *inputs: np.ndarray) -> Case:
    make = lambda: Work(list(inputs), seeded(lambda: First(model())), None)  # noqa: E731
    return Case(name, "torch", make)


PAST = [normal(12, 1, 12, 128, 64, seed=seed) for seed in (1, 2)]  # keys, values
CASES = (
    case("minilm", lambda: bert(6, 384, 12), ids(1, 128)),
    case("bert-base", lambda: bert(12, 768, 12), ids(1, 128)),
    case("gpt2-prefill", Prefill, ids(1, 128)),
    case("gpt2-decode", Decode, ids(1, 1), *PAST),
    case("vit-s", vit, normal(1, 3, 224, 224)),
    case("resnet50", resnet50, normal(1, 3, 224, 224)),
    case("mobilenet-v3", MobileNet, normal(1, 3, 224, 224)),
    case("unet", Unet, normal(1, 3, 64, 64)),
)


def find(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def first_calls(row: Row) -> str:
    """What the first call of each compiler took."""

    def text(cell: Cell) -> str:
        return f"{cell.setup:.1f} s ({cell.cpu:.1f} s)"

    others = [f"{name} {text(cell)}" for name, cell in row.peers.items() if name != "torch"]
    return "    first call: " + ", ".join([f"ours {text(row.ours)}", *others])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--search", default="0")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="a word in the names of cases")
    parser.add_argument("--peers", default=",".join(TOGETHER))
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds for a case")
    parser.add_argument("--json", type=Path, default=None, help="write all figures here")
    given = parser.parse_args()
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    search = int(given.search) if given.search.isdecimal() else given.search
    peers = tuple(name for name in given.peers.split(",") if name)
    peers += ("untuned",) if search else ()
    options = Options(given.threads, peers, search=search, rounds=given.rounds)
    results = Results(given.json)
    part = results.part(measured(given.threads))
    print(heading(part.machine, peers))
    for row in run([c for c in CASES if given.only in c.name], options, given.timeout, find):
        part.add(row)
        print(line(row, peers), first_calls(row), sep="\n", flush=True)
        results.write()
    print("\n" + closing(part.rows, peers))


if __name__ == "__main__":
    main()
