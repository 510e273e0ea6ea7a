"""Moonshine (Jeffries et al. 2024, https://arxiv.org/abs/2410.15608): English speech to text, in
time that grows with the length of the sound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn, ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from ...once import computed_once
from ...weights import Safetensors
from ...weights.fields import Fields
from ..llm.config import DecoderConfig, rope
from ..llm.elsewhere import Recorded, compiled
from ..llm.storage import Storage
from ..llm.text import load_tokenizer
from ..llm.weights import Deferred, give
from .audio import RATE
from .ear import PART, ROWS, Ear, Part, padded
from .encoder import Lengths, Memory, Stack, encoder_outputs, plain_config
from .program import DecoderProgram, Encoding, part_of

TOKENS_A_SECOND = 6.5  # more are no speech, says the model's card
LONGEST = round(PART * RATE)  # samples
CONVOLUTIONS = (127, 64), (7, 3), (3, 2)  # kernels and strides
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
        first, second, third = CONVOLUTIONS
        self.conv1 = nn.Conv1d(graph, 1, width, *first, bias=False)
        self.groupnorm = nn.GroupNorm(graph, 1, width, 1e-5)
        self.conv2 = nn.Conv1d(graph, width, 2 * width, *second)
        self.conv3 = nn.Conv1d(graph, 2 * width, width, *third)
        self.stack = Stack(graph, config, storage, LONGEST // 384 + 1)

    def forward(self, samples: Tensor, counts: Tensor | None = None) -> Tensor:
        """counts: (batch,) i64, the samples of each recording; None: all."""
        x, seen = ops.tanh(self.conv1(samples.unsqueeze(1))), None
        if counts is None:
            x = self.groupnorm(x)
        else:
            lengths = Lengths(counts).behind(*CONVOLUTIONS[0])
            x = lengths.norm(self.groupnorm, x)
            lengths = lengths.behind(*CONVOLUTIONS[1]).behind(*CONVOLUTIONS[2])
        x = ops.gelu(self.conv3(ops.gelu(self.conv2(x))))
        if counts is not None:
            seen = lengths.there(x.shape[2])
        return self.stack(x.transpose(1, 2), seen)


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


def recorded_encoder(encoder: DecoderConfig, decoder: DecoderConfig, rows: int) -> Recorded:
    """Samples (recordings, samples), of at most `rows` recordings, to the keys and values of each
    layer; of several `counts` says how many samples each has."""
    graph, storage = Graph(), Storage()
    count = graph.dim("samples", SHORTEST, LONGEST, hint=10 * RATE)
    batch = 1 if rows == 1 else graph.dim("recordings", 1, rows, hint=rows)
    samples = graph.tensor((batch, count), name="samples")
    counts = [] if rows == 1 else [graph.tensor((batch,), "i64", "counts")]
    with nn.uninitialised():
        model = Encoding(
            MoonshineEncoder(graph, encoder, storage),
            Memory(graph, decoder, encoder.width, storage),
        )
    encoder_outputs(model(samples, *counts))
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
        self._compiled = partial(_programs, encoder, self.config, state, options)
        self._made: list[Any] = []
        self.encoder, self.decoder = self._programs(1)

    @computed_once
    def _several(self) -> tuple[Any, DecoderProgram]:
        return self._programs(ROWS)

    def _programs(self, rows: int) -> tuple[Any, DecoderProgram]:
        encoder, decoder = self._compiled(rows)
        self._made += [encoder, decoder.executable]
        return encoder, decoder

    @property
    def peak_bytes(self) -> int:
        return sum(each.peak_bytes for each in self._made)

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

    def tokens_of(self, several: Sequence[np.ndarray], limits: Sequence[int]) -> list[list[int]]:
        """As `tokens`, of several recordings (at most ROWS) at once."""
        encoder, decoder = self._several
        counts = [len(samples) for samples in several]
        encoder["samples"], encoder["counts"] = padded(several), np.array(counts, np.int64)
        encoder.run()
        kept = [encoder[f"{what}{n}"] for n in range(self.config.layers)
                for what in ("keys", "values")]  # fmt: skip
        decoder.listen(kept, heard=[_frames(count) for count in counts])
        rows: list[list[int]] = [[] for _ in several]
        most = [min(limit, self.config.context - 1) for limit in limits]
        going = [True] * len(rows)
        logits = decoder.prompt(np.full((len(rows), 1), self.start), [0])
        while True:
            best = logits[:, -1].argmax(-1)
            for n, token in enumerate(best):
                if going[n] and token != self.end:
                    rows[n].append(int(token))
                going[n] = going[n] and token != self.end and len(rows[n]) < most[n]
            if not any(going):
                return rows
            logits = decoder.step(best[:, None])

    def hear(self, samples: np.ndarray) -> Part:
        return self.tokenizer.decode(self.tokens(samples, _limit(samples))), ()

    def hear_all(self, several: Sequence[np.ndarray]) -> list[Part]:
        found = self.tokens_of(several, [_limit(samples) for samples in several])
        return [(self.tokenizer.decode(tokens), ()) for tokens in found]


def _limit(samples: np.ndarray) -> int:
    return max(1, round(len(samples) / RATE * TOKENS_A_SECOND))


def _frames(count: int) -> int:
    """Of so many samples."""
    for kernel, stride in CONVOLUTIONS:
        count = (count - kernel) // stride + 1
    return count


def _programs(
    encoder: DecoderConfig, decoder: DecoderConfig, state: Deferred, options: dict[str, Any],
    rows: int,
) -> tuple[Any, DecoderProgram]:  # fmt: skip
    """(encoder, decoder) for at most `rows` recordings at once."""
    given = {"encoder": encoder, "decoder": decoder, "rows": rows}
    made, program = compiled(recorded_encoder, given, options)
    give(program, made.model, part_of(state, "encoder.", "memory."))
    return program, DecoderProgram(decoder, state, None, rows, Storage(), **options)
