"""Whole models of the suite, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import nn
from ..graph import Graph, Tensor
from ..models.bert import Bert, BertConfig
from ..models.gpt2 import GPT2, GPT2Config
from ..models.vision import ResNet, VisionTransformer, ViTConfig
from .case import Case, Mark, State, Work, normal

if TYPE_CHECKING:
    import torch

MINILM = BertConfig(
    hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
)


MARKS = (Mark("openvino", 1.1), Mark("openvino", 1.0, "bf16"))
ENCODER = (Mark("openvino", 1.15), Mark("openvino", 1.1, "bf16"))


def all_models() -> Iterator[Case]:
    """Every case, in order of printing."""
    yield bert("MiniLM", MINILM, 128, short=True)
    yield bert("BERT-base", BertConfig(), 128)
    yield resnet("ResNet-50", (3, 4, 6, 3), 1000, 64, 224, short=True)
    yield vit("ViT-B/16", ViTConfig())
    yield gpt2("GPT-2 prefill", GPT2Config(), 128)
    yield yolo("YOLOv8n", 16, 640)


def bert(name: str, config: BertConfig, tokens: int, short: bool = False) -> Case:
    """A BERT encoder on one text."""

    def twin() -> torch.nn.Module:
        from . import twins

        return twins.Bert(config)

    def inputs() -> list[np.ndarray]:
        return [_ids(config.vocab_size, tokens), np.ones((1, tokens), np.bool_)]

    tables = tuple(f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position"))
    return _model(
        f"{name} 1x{tokens}", lambda g: Bert(g, config), twin, inputs, short, None, tables, ENCODER
    )


def resnet(
    name: str, blocks: Sequence[int], classes: int, width: int, size: int, short: bool = False
) -> Case:
    """A ResNet on one image."""

    def twin() -> torch.nn.Module:
        from . import twins

        return twins.ResNet(blocks, classes, width)

    return _model(
        f"{name} 1x3x{size}x{size}",
        lambda graph: ResNet(graph, blocks, classes, width),
        twin,
        lambda: [normal(1, 3, size, size)],
        short,
    )


def vit(name: str, config: ViTConfig, short: bool = False) -> Case:
    """A vision transformer on one image."""

    def twin() -> torch.nn.Module:
        from . import twins

        return twins.VisionTransformer(config)

    return _model(
        f"{name} 1x3x{config.image}x{config.image}",
        lambda graph: VisionTransformer(graph, config),
        twin,
        lambda: [normal(1, 3, config.image, config.image)],
        short,
    )


def gpt2(name: str, config: GPT2Config, tokens: int, short: bool = False) -> Case:
    """GPT-2 on a prompt: scores of the next token."""

    def twin() -> torch.nn.Module:
        from . import twins

        return twins.GPT2(config)

    def call(model: GPT2, ids: Tensor) -> Tensor:
        return model.scores(model(ids).select(1, -1))

    return _model(
        f"{name} 1x{tokens}",
        lambda graph: GPT2(graph, config),
        twin,
        lambda: [_ids(config.vocab_size, tokens)],
        short,
        call,
        gathered=("wpe.weight",),
    )


def yolo(name: str, width: int, size: int) -> Case:
    """YOLOv8 on one image, as `torch.compile` hands it to us."""

    def make() -> Work:
        from .twins import seeded
        from .yolo import Yolo

        return Work([normal(1, 3, size, size)], seeded(lambda: Yolo(width)), None)

    return Case(f"{name} 1x3x{size}x{size}", "models", make, marks=MARKS)


def _ids(words: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, words, (1, tokens))


def _model(
    name: str,
    ours: Callable[[Graph], nn.Module],
    twin: Callable[[], torch.nn.Module],
    inputs: Callable[[], list[np.ndarray]],
    short: bool,
    call: Callable[..., Tensor] | None = None,
    gathered: tuple[str, ...] = (),
    marks: tuple[Mark, ...] = MARKS,
) -> Case:
    def record(graph: Graph, tensors: Sequence[Tensor], state: State) -> Tensor:
        with nn.uninitialised():
            model = ours(graph)
        model.load_state_dict(state)
        result: Tensor = call(model, *tensors) if call else model(*tensors)
        return result

    def make() -> Work:
        from .twins import seeded

        return Work(inputs(), seeded(twin), record, gathered=gathered)

    return Case(name, "models", make, short, marks)
