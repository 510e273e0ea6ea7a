"""Models of usual shapes, recorded without weights: what `luminal bench gpu --compile` compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from .. import nn, ops, train
from ..graph import Graph
from ..models.diffusion.unet import UNet, UNetConfig
from ..models.gpt2 import GPT2, GPT2Config
from ..models.llm.config import DecoderConfig
from ..models.llm.families import family_of
from ..models.llm.program import recorded
from ..models.llm.storage import Storage
from ..models.vision import ResNet
from ..weights.fields import Fields

Sizes: TypeAlias = Mapping[str, int]
LAYERS = 2  # equal layers have equal kernels
CONTEXT, PROMPT = 8192, 512
LLAMA3_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": CONTEXT,
}  # fmt: skip
SD15 = {
    "in_channels": 4, "out_channels": 4, "block_out_channels": [320, 640, 1280, 1280],
    "down_block_types": [*["CrossAttnDownBlock2D"] * 3, "DownBlock2D"],
    "up_block_types": ["UpBlock2D", *["CrossAttnUpBlock2D"] * 3], "attention_head_dim": 8,
    "layers_per_block": 2, "cross_attention_dim": 768, "sample_size": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Shaped:
    """record: a graph. phases: sizes of runs, by name. layered: it has LAYERS equal layers, and one
    more where `record` is given True."""

    name: str
    record: Callable[[bool], Graph]
    phases: Mapping[str, Sizes]
    precision: str = "f32"
    layered: bool = False


def llama(kind: str, precision: str = "f32") -> Shaped:
    """Llama 3 8B with matrices of a kind, a cache in f16."""

    def record(more: bool) -> Graph:
        fields = Fields(LLAMA3_8B | {"num_hidden_layers": LAYERS + more}, "Llama 3 8B")
        config: DecoderConfig = family_of(fields).config(fields)
        return recorded(config, CONTEXT, PROMPT, Storage(kind), "f16").whole()

    prefill = {"tokens": PROMPT, "wanted": 1, "position": 0}
    phases = {"prefill": prefill, "decode": {"tokens": 1, "wanted": 1, "position": PROMPT}}
    return Shaped(f"Llama 3 8B {kind}", record, phases, precision, layered=True)


def resnet(more: bool) -> Graph:
    graph = Graph()
    with nn.uninitialised():
        model = ResNet(graph).eval()
    model(graph.tensor((1, 3, 224, 224), name="x")).output("y")
    return graph


def unet(more: bool) -> Graph:
    graph = Graph()
    with nn.uninitialised():
        model = UNet(graph, UNetConfig.read(Fields(SD15, "Stable Diffusion 1.5")))
    x, times = graph.tensor((1, 4, 64, 64), name="x"), graph.tensor((1,), name="times")
    model(x, times, graph.tensor((1, 77, 768), name="prompt")).output("y")
    return graph


def training(more: bool) -> Graph:
    """A step of AdamW on two layers of GPT-2."""
    graph = Graph()
    with nn.uninitialised():
        model = GPT2(graph, replace(GPT2Config(), n_layer=LAYERS, vocab_size=8192))
    ids, labels = (graph.tensor((8, 128), "i64", name) for name in ("ids", "labels"))
    loss = ops.cross_entropy(model.scores(model(ids)).flatten(0, 1), labels.flatten(0, 1))
    train.Step(loss, model.parameters(), train.AdamW())
    return graph


WHOLE: Mapping[str, Sizes] = {"": {}}
MODELS = (
    *(llama(kind, "bf16") for kind in ("bf16", "q8", "q4k")),
    *(Shaped(f"{name}{end}", record, WHOLE, precision)
      for name, record in (("ResNet-50", resnet), ("Stable Diffusion 1.5 UNet", unet))
      for end, precision in (("", "f32"), (" bf16", "bf16"))),
    Shaped("GPT-2 training", training, WHOLE),
)  # fmt: skip
