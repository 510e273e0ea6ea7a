"""torch.compile(backend="luminal") beside inductor and eager: model shapes, random weights, f32.

    python benchmarks/torch_backend.py [--threads 2] [--search 0] [--only minilm,unet]

All sides run in one process in turns, results are compared with eager's. Compile times are from the
first call, cold (our kept programs and inductor's caches are not used).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import luminal.torch
from luminal.bench.paired import Spread, interleaved

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


def bert(layers: int, width: int, heads: int) -> Case:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                        intermediate_size=4 * width)  # fmt: skip
    return BertModel(config, add_pooling_layer=False), (torch.randint(0, 30000, (1, 128)),)


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


def vit() -> Case:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return ViTModel(config, add_pooling_layer=False), (torch.randn(1, 3, 224, 224),)


def resnet50() -> Case:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()), (torch.randn(1, 3, 224, 224),)


def mobilenet() -> Case:
    return MobileNet(), (torch.randn(1, 3, 224, 224),)


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


CASES: dict[str, Callable[[], Case]] = {
    "minilm": lambda: bert(6, 384, 12),
    "bert-base": lambda: bert(12, 768, 12),
    "gpt2-prefill": lambda: (Prefill(), (torch.randint(0, 50000, (1, 128)),)),
    "gpt2-decode": lambda: (
        Decode(),
        (torch.randint(0, 50000, (1, 1)), *(torch.randn(12, 1, 12, 128, 64) for _ in range(2))),
    ),
    "vit-s": vit,
    "resnet50": resnet50,
    "mobilenet-v3": mobilenet,
    "unet": lambda: (Unet(), (torch.randn(1, 3, 64, 64),)),
}


def tensor_of(result: object) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]  # type: ignore[index]


def measure(name: str, sides: dict[str, dict[str, object]], rounds: int) -> tuple[float, float]:
    """Print a row; the ratios inductor / ours and eager / ours."""
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    model = model.eval()
    calls: dict[str, Callable[[], object]] = {}
    first: dict[str, float] = {}
    expected = tensor_of(model(*inputs))
    for side, options in sides.items():
        torch._dynamo.reset()
        run = torch.compile(model, **options) if options else model  # type: ignore[call-overload]
        start = time.perf_counter()
        got = tensor_of(run(*inputs))
        first[side] = time.perf_counter() - start
        error = float((got - expected).abs().max() / expected.abs().max())
        if not error < 1e-4:
            raise SystemExit(f"{name}: {side} is wrong by {error:.1e} of the largest value")
        calls[side] = lambda run=run: run(*inputs)
    times = interleaved(calls, rounds)
    ours = times["luminal"]
    ratios = {side: Spread.of(times[side] / ours) for side in ("inductor", "eager")}
    cells = [f"{np.median(times[s]) * 1e3:9.2f}" for s in sides]
    cells += [f"{r.median:5.2f} ({r.low:.2f} - {r.high:.2f})" for r in ratios.values()]
    cells += [f"{first[s]:7.1f}" for s in ("luminal", "inductor")]
    print(f"{name:14}", *cells, flush=True)
    return ratios["inductor"].median, ratios["eager"].median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--search", default="0")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default=",".join(CASES))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch._inductor.config.force_disable_caches = True
    search = int(chosen.search) if chosen.search.isdecimal() else chosen.search
    sides = {
        "luminal": {
            "backend": luminal.torch.backend,
            "options": {"search": search, "cache": False},
        },
        "inductor": {"backend": "inductor"},
        "eager": {},
    }
    print("milliseconds; ratios: peer / ours, median and quartiles; first call in seconds")
    print(f"{'':14}", *(f"{s:>9}" for s in sides), "  inductor            eager", "   first calls")
    with torch.no_grad():
        ratios = [measure(name, sides, chosen.rounds) for name in chosen.only.split(",")]
    for side, values in zip(("inductor", "eager"), zip(*ratios)):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"geometric mean {side} / luminal: {mean:.2f}")


if __name__ == "__main__":
    main()
