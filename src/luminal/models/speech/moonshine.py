"""Moonshine (Jeffries et al. 2024, https://arxiv.org/abs/2410.15608): English speech to text, in
time that grows with the length of the sound."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn, ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from ...weights import Safetensors
from ...weights.fields import Fields
from ..llm.config import DecoderConfig, rope
from ..llm.elsewhere import Recorded, compiled
from ..llm.storage import Storage
from ..llm.text import load_tokenizer
from ..llm.weights import Deferred, give
from .audio import RATE
from .ear import PART, Ear, Part
from .encoder import Memory, Stack, encoder_outputs, plain_config
from .program import DecoderProgram, Encoding, part_of

TOKENS_A_SECOND = 6.5  # more are no speech, says the model's card
LONGEST = round(PART * RATE)  # samples
SHORTEST = 895  # samples of one frame and one more
RULES = [(re.compile(theirs), ours) for theirs, ours in (
    (r"^model\.", ""), (r"^encoder\.layers\.", "encoder.stack.layers."),
    (r"^encoder\.layer_norm\.", "encoder.stack.norm."),
    (r"^(decoder\.layers\.\d+)\.post_attention_layernorm\.", r"\1.cross_layernorm."),
    (r"\.final_layernorm\.", ".post_attention_layernorm."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."), (r"^(encoder.*)\.mlp\.fc1\.", r"\1.mlp.up_proj."),
    (r"^decoder\.layers\.(\d+)\.encoder_attn\.([kv]_proj)", r"memory.layers.\1.\2"),
    (r"^proj_out\.", "decoder.lm_head."),
)]  # fmt: skip


class MoonshineEncoder(nn.Module):
    """Samples (batch, samples) -> (batch, frames, width): three convolutions, rotary layers."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        width = config.width
        self.conv1 = nn.Conv1d(graph, 1, width, 127, 64, bias=False)
        self.groupnorm = nn.GroupNorm(graph, 1, width, 1e-5)
        self.conv2 = nn.Conv1d(graph, width, 2 * width, 7, 3)
        self.conv3 = nn.Conv1d(graph, 2 * width, width, 3, 2)
        self.stack = Stack(graph, config, storage, LONGEST // 384 + 1)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.groupnorm(ops.tanh(self.conv1(samples.unsqueeze(1))))
        x = ops.gelu(self.conv3(ops.gelu(self.conv2(x))))
        return self.stack(x.transpose(1, 2))


def configs(values: Fields) -> tuple[DecoderConfig, DecoderConfig]:
    """(encoder, decoder). Raises WeightsError."""
    values.text("model_type", among=("moonshine",))
    width, hidden = values.count("hidden_size"), values.count("intermediate_size")

    def stack(part: str, activation: str, **more: Any) -> DecoderConfig:
        heads = values.count(f"{part}_num_attention_heads", 8, high=1 << 12)
        layers = values.count(f"{part}_num_hidden_layers", 6, high=1 << 10)
        if width % heads or values.count(f"{part}_num_key_value_heads", heads) != heads:
            raise WeightsError(f"{values.where}: {heads} heads of {part} for {width} features")
        bias = values.flag("attention_bias")
        turned = replace(rope(values), interleaved=True)
        return plain_config(
            family="moonshine", width=width, heads=heads, layers=layers, hidden=hidden,
            norm="scale", activation=values.text(f"{part}_hidden_act", activation),
            context=values.count("max_position_embeddings", 512), mlp_bias=True,
            attention_bias=bias, rotary=("all",) * layers, ropes={"all": turned}, **more,
        )  # fmt: skip

    return stack("encoder", "gelu", gated=False), stack(
        "decoder", "silu", vocabulary=values.count("vocab_size"),
        tied=values.flag("tie_word_embeddings", True),
    )  # fmt: skip


def recorded_encoder(encoder: DecoderConfig, decoder: DecoderConfig) -> Recorded:
    """Samples (1, samples) of a recording to the keys and values of each layer."""
    graph, storage = Graph(), Storage()
    count = graph.dim("samples", SHORTEST, LONGEST, hint=10 * RATE)
    samples = graph.tensor((1, count), name="samples")
    with nn.uninitialised():
        model = Encoding(
            MoonshineEncoder(graph, encoder, storage),
            Memory(graph, decoder, encoder.width, storage),
        )
    encoder_outputs(model(samples))
    return Recorded(graph, model, [])


class Moonshine(Ear):
    """A model of a directory as Hugging Face writes it. options: of `Graph.compile`. Raises
    WeightsError or Unsupported."""

    shortest = SHORTEST

    def __init__(self, path: Path, threads: int | None = None, **options: Any) -> None:
        values = Fields.load(path / "config.json")
        encoder, self.config = configs(values)
        self.tokenizer = load_tokenizer(path)
        self.start = values.count("decoder_start_token_id", 1, low=0)
        self.end = values.count("eos_token_id", 2, low=0)
        state = self._state(Safetensors(path))
        options |= {"threads": threads, "precision": "f32"}
        made, self.encoder = compiled(
            recorded_encoder, {"encoder": encoder, "decoder": self.config}, options
        )
        give(self.encoder, made.model, part_of(state, "encoder.", "memory."))
        self.decoder = DecoderProgram(self.config, state, None, 1, Storage(), **options)

    def _state(self, given: Any) -> Deferred:
        """Under our names; the decoder's up and gate matrices lie below each other."""
        found: dict[str, np.ndarray] = {}
        for name, value in given.items():
            for pattern, ours in RULES:
                name = pattern.sub(ours, name)
            place, fused, kind = name.partition(".mlp.fc1.")
            if fused:
                found[f"{place}.mlp.up_proj.{kind}"], found[f"{place}.mlp.gate_proj.{kind}"] = (
                    np.split(value, 2))  # fmt: skip
            elif not (name.startswith("decoder.lm_head.") and self.config.tied):
                found[name] = value
        return Deferred.of(found)

    def encode(self, samples: np.ndarray) -> list[np.ndarray]:
        """Keys and values of each layer."""
        self.encoder["samples"] = samples[None]
        self.encoder.run()
        return [self.encoder[f"{what}{n}"] for n in range(self.config.layers)
                for what in ("keys", "values")]  # fmt: skip

    def tokens(self, samples: np.ndarray, limit: int) -> list[int]:
        """The likeliest tokens of a recording, at most `limit`."""
        self.decoder.listen(self.encode(samples))
        logits, found = self.decoder.prompt(np.array([[self.start]]), [0]), []
        while (token := int(logits[0, -1].argmax())) != self.end:
            found.append(token)
            if len(found) == min(limit, self.config.context - 1):
                break
            logits = self.decoder.step(np.array([[token]]))
        return found

    def hear(self, samples: np.ndarray) -> Part:
        limit = max(1, round(len(samples) / RATE * TOKENS_A_SECOND))
        return self.tokenizer.decode(self.tokens(samples, limit)), ()
