"""Which laws act on real networks, and what their plans lose without each.

    python scripts/laws.py [--torch NAME,NAME] [--keep FILE] [--family FAMILY]

A row for each law: in how many distinct regions it fires, the e-nodes that it adds there, in how
many the plan costs more without it (by the model; the largest loss) or, by luck of a search, less.
--torch: image models of `scripts/vision_models.py` too, under torch.compile ("all": each of them);
--keep: regions that are collected are kept in this file and read from it.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import luminal
from luminal import compiler, nn, ops, train
from luminal.models.bert import Bert, BertConfig
from luminal.models.gpt2 import GPT2, GPT2Config
from luminal.models.llm.cache import ContiguousCache
from luminal.models.llm.config import DecoderConfig, Rope
from luminal.models.llm.decoder import Decoder
from luminal.models.llm.storage import Storage
from luminal.models.vision import ResNet, VisionTransformer, ViTConfig
from luminal.planning import Planning
from luminal.rewrite.engine import Engine
from luminal.rewrite.extract import classes_of
from luminal.rewrite.matching import Rule
from luminal.rewrite.optimise import Extractor
from luminal.rewrite.rates import CostModel
from luminal.rewrite.rules import FAMILIES, laws, program, rules
from luminal.rewrite.saturate import saturate
from luminal.rewrite.terms import Region

EQUAL = 1e-6  # of a plan's cost


class Collected(Exception):
    """The regions are known: nothing is to be compiled."""


# ---- networks


def encoder(graph: luminal.Graph) -> None:
    config = BertConfig(384, 384, 2, 12, 1536)
    Bert(graph, config)(graph.tensor((1, 128), "i64"), graph.tensor((1, 128), "bool")).output()


def gpt2(graph: luminal.Graph) -> None:
    model = GPT2(graph, GPT2Config(vocab_size=1000, n_layer=2))
    model.scores(model(graph.tensor((1, 128), "i64")).select(1, -1)).output()


def resnet(graph: luminal.Graph) -> None:
    ResNet(graph, (3, 4, 6, 3), 1000, 64)(graph.tensor((1, 3, 224, 224))).output()


def vision(graph: luminal.Graph) -> None:
    config = ViTConfig()
    VisionTransformer(graph, config)(graph.tensor((1, 3, config.image, config.image))).output()


def decoder(storage: str, tokens: int) -> Callable[[luminal.Graph], None]:
    config = DecoderConfig(
        "llama", 8192, 2048, 2, 32, 8, 64, 8192, 4096, (None,) * 2, ("all",) * 2,
        {"all": Rope()}, tied=True,
    )  # fmt: skip

    def build(graph: luminal.Graph) -> None:
        length = graph.dim("tokens", 1, 128, hint=tokens)
        position = graph.dim("position", 0, 1023, hint=512)
        model = Decoder(graph, config, 1024, Storage(storage))
        memory = ContiguousCache(graph, config, 1024, length, position)
        hidden = model(graph.tensor((length,), "i64"), memory)
        model.logits(hidden.narrow(0, length - 1, 1)).output()

    return build


def recurrent(graph: luminal.Graph) -> None:
    nn.LSTM(graph, 64, 256, 2)(graph.tensor((4, 16, 64)))[0].output()


def step(graph: luminal.Graph) -> None:
    """Training: two layers of a transformer, cross entropy, AdamW."""
    x, labels = graph.tensor((4, 64, 128)), graph.tensor((4, 64), "i64")
    layers = [nn.TransformerEncoderLayer(graph, 128, 4, 256, batch_first=True) for _ in range(2)]
    net = nn.Sequential(*layers, nn.Linear(graph, 128, 1000))
    loss = ops.cross_entropy(net(x).flatten(0, 1), labels.flatten())
    train.Step(loss, net.parameters(), train.AdamW(1e-3))


def convolutions_in_training(graph: luminal.Graph) -> None:
    x, labels = graph.tensor((8, 3, 32, 32)), graph.tensor((8,), "i64")
    net = nn.Sequential(
        nn.Conv2d(graph, 3, 16, 3, padding=1), nn.BatchNorm2d(graph, 16), nn.ReLU(),
        nn.Conv2d(graph, 16, 32, 3, 2, padding=1), nn.GroupNorm(graph, 8, 32), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(graph, 32, 10),
    )  # fmt: skip
    train.Step(ops.cross_entropy(net(x), labels), net.parameters(), train.SGD(0.1))


NETWORKS: dict[str, Callable[[luminal.Graph], None]] = {
    "BERT": encoder,
    "GPT-2": gpt2,
    "ResNet-50": resnet,
    "ViT": vision,
    "Llama, f32, prompt": decoder("f32", 128),
    "Llama, 8 bits, a token": decoder("q8", 1),
    "Llama, 4 bits, a token": decoder("q4k", 1),
    "LSTM": recurrent,
    "transformer in training": step,
    "convolutions in training": convolutions_in_training,
}


# ---- their regions


def collected(names: str) -> list[Region]:
    """The distinct regions of all networks."""
    found: dict[str, Region] = {}
    original = compiler.plan_regions

    def collect(jobs: Sequence[Planning], *_: Any) -> Any:
        found.update({job.region.key: job.region for job in jobs})
        raise Collected

    def look(jobs: Sequence[Planning], *rest: Any) -> Any:
        found.update({job.region.key: job.region for job in jobs})
        return original(jobs, *rest)

    compiler.plan_regions = collect
    for name, build in NETWORKS.items():
        graph = luminal.Graph()
        try:
            with nn.uninitialised():
                build(graph)
            graph.compile(cache=False, database=False)
        except Collected:
            print(f"{name}: {len(found)} regions", flush=True)
    compiler.plan_regions = look
    if names:
        compile_image_models(names.split(","))
    compiler.plan_regions = original
    return list(found.values())


def compile_image_models(names: list[str]) -> None:
    import torch
    import vision_models

    import luminal.torch  # noqa: F401

    for case in vision_models.cases():
        if names == ["all"] or case.name.split()[-1] in names:
            torch._dynamo.reset()
            with torch.no_grad():
                torch.compile(case.make().eval(), backend="luminal")(*case.inputs()[0])
            print(case.name, flush=True)


# ---- laws


def best(region: Region, program: tuple[Rule, ...]) -> tuple[float, int, set[tuple[str, int]]]:
    """Cost of the plan, e-nodes, what fired."""
    engine, encoding, growth = saturate(region, engine=Engine(program))
    plan = Extractor(classes_of(engine, encoding, region), CostModel(), "").plans()[0]
    return plan.cost, growth.after, engine.fired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--family", default="")
    options = parser.parse_args()
    if options.keep and options.keep.exists():
        zoo = pickle.loads(options.keep.read_bytes())
    else:
        zoo = collected(options.torch)
        if options.keep:
            options.keep.write_bytes(pickle.dumps(zoo))
    whole = program()
    own = {f: [law for law in laws(f) for _ in rules(law, f)] for f in FAMILIES}
    plain = [best(region, whole) for region in zoo]
    cost, nodes = (sum(found[n] for found in plain) for n in range(2))
    print(f"{len(zoo)} regions, {nodes} e-nodes, {cost * 1e3:.2f} ms modelled")
    print(" fires   adds  needed    loss  lucky  law")
    for family in [options.family] if options.family else FAMILIES:
        for law in laws(family):
            numbers = {(family, n) for n, text in enumerate(own[family]) if text == law}
            print(row(zoo, plain, law, family, numbers), flush=True)


def row(
    zoo: list[Region], plain: list[Any], law: str, family: str, numbers: set[tuple[str, int]]
) -> str:
    less = tuple(rule for rule in program() if rule not in rules(law, family))
    fires = [n for n, found in enumerate(plain) if found[2] & numbers]
    without = [best(zoo[n], less) for n in fires]
    added = sum(plain[n][1] - other[1] for n, other in zip(fires, without))
    gains = [other[0] / plain[n][0] - 1 for n, other in zip(fires, without)]
    worse, lucky = (sum(sign * gain > EQUAL for gain in gains) for sign in (1, -1))
    return f"{len(fires):6} {added:6} {worse:7} {max(gains, default=0.0):7.1%} {lucky:6}  {law}"


if __name__ == "__main__":
    main()
