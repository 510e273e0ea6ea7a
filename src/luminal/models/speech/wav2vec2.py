"""Wav2Vec2 with a CTC head (Baevski et al. 2020, https://arxiv.org/abs/2006.11477; Graves et al.
2006): sound to letters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn, ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from ...once import computed_once
from ...weights import Safetensors
from ...weights.fields import Fields, read_json
from ..llm.attention import attention
from ..llm.config import DecoderConfig
from ..llm.decoder import FeedForward, norm
from ..llm.elsewhere import Recorded, compiled
from ..llm.storage import Storage
from ..llm.weights import Deferred, give
from .audio import RATE
from .ear import PART, ROWS, Ear, Part, padded
from .encoder import Lengths, Stack, Whole, plain_config
from .transcript import Word

LONGEST = round(PART * RATE)
RULES = [(re.compile(theirs), ours) for theirs, ours in (
    (r"^wav2vec2\.", ""), (r"^feature_extractor\.conv_layers\.(\d+)\.layer_norm", r"convs.\1.norm"),
    (r"^feature_extractor\.conv_layers\.", "convs."), (r"^feature_projection\.", ""),
    (r"^encoder\.pos_conv_embed\.conv\.", "positions."), (r"^encoder\.layer_norm\.", "stack.norm."),
    (r"^encoder\.layers\.", "stack.layers."), (r"\.attention\.out_proj\.", ".attention.o_proj."),
    (r"\.attention\.", ".self_attn."), (r"(layers\.\d+)\.layer_norm\.", r"\1.input_layernorm."),
    (r"\.final_layer_norm\.", ".post_attention_layernorm."),
    (r"\.feed_forward\.intermediate_dense\.", ".mlp.up_proj."),
    (r"\.feed_forward\.output_dense\.", ".mlp.down_proj."),
    (r"^positions\.parametrizations\.weight\.original0$", "positions.weight_g"),
    (r"^positions\.parametrizations\.weight\.original1$", "positions.weight_v"),
)]  # fmt: skip


class ConvLayer(nn.Module):
    """A convolution, its norm ("group": of each channel over time; "layer": over channels; None),
    GELU."""

    def __init__(
        self, graph: Graph, inside: int, out: int, kernel: int, stride: int, bias: bool,
        kind: str | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv1d(graph, inside, out, kernel, stride, bias=bias)
        self.norm: nn.LayerNorm | nn.GroupNorm | None = None
        if kind is not None:
            whole = kind == "layer"
            self.norm = nn.LayerNorm(graph, out) if whole else nn.GroupNorm(graph, out, out)

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """lengths: frames of each recording behind the convolution."""
        x = self.conv(x)
        if isinstance(self.norm, nn.LayerNorm):
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        elif isinstance(self.norm, nn.GroupNorm):
            x = self.norm(x) if lengths is None else lengths.norm(self.norm, x)
        return ops.gelu(x)


class PostLayer(nn.Module):
    """Attention and a feed-forward part, with a norm after each residual."""

    def __init__(self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage) -> None:
        super().__init__()
        self.self_attn = attention(graph, config, layer, None, storage)
        self.input_layernorm = norm(graph, config, config.width)
        self.mlp = FeedForward(graph, config, storage)
        self.post_attention_layernorm = norm(graph, config, config.width)

    def forward(self, x: Tensor, cache: Whole) -> Tensor:
        x = self.input_layernorm(x + self.self_attn(x, cache))
        return self.post_attention_layernorm(x + self.mlp(x))


class PostStack(nn.Module):
    """A norm, then layers with norms after their residuals."""

    def __init__(self, graph: Graph, config: DecoderConfig, storage: Storage) -> None:
        super().__init__()
        self.config = config
        self.norm = norm(graph, config, config.width)
        layers = range(config.layers)
        self.layers = nn.ModuleList(PostLayer(graph, config, n, storage) for n in layers)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        batch, length = x.shape[:2]
        cache, flat = Whole(self.config, batch, length, seen), self.norm(x).flatten(0, 1)
        for layer in self.layers:
            flat = layer(flat, cache)
        return flat.unflatten(0, (batch, length))


class Wav2Vec2Network(nn.Module):
    """Samples (batch, samples) -> logits (batch, frames, vocabulary) f32."""

    def __init__(self, graph: Graph, values: Fields, config: DecoderConfig) -> None:
        super().__init__()
        sizes, kernels, strides = (values.counts(f"conv_{n}") for n in ("dim", "kernel", "stride"))
        self.convolutions = list(zip(kernels, strides))
        group = values.text("feat_extract_norm", "group", among=("group", "layer")) == "group"
        bias, width = values.flag("conv_bias"), config.width
        self.convs = nn.ModuleList()
        for n, (inside, out) in enumerate(zip([1, *sizes], sizes)):
            kind = ("group" if n == 0 else None) if group else "layer"
            self.convs.append(ConvLayer(graph, inside, out, kernels[n], strides[n], bias, kind))
        self.layer_norm = nn.LayerNorm(graph, sizes[-1], config.eps)
        self.projection = nn.Linear(graph, sizes[-1], width)
        self.wide = values.count("num_conv_pos_embeddings", 128, high=4096)
        groups = values.count("num_conv_pos_embedding_groups", 16, high=4096)
        self.positions = nn.Conv1d(graph, width, width, self.wide, 1, self.wide // 2, 1, groups)
        stable = values.flag("do_stable_layer_norm")
        self.stack: nn.Module = (Stack if stable else PostStack)(graph, config, Storage())
        self.lm_head = nn.Linear(graph, width, config.vocabulary)

    def forward(self, samples: Tensor, counts: Tensor | None = None) -> Tensor:
        """counts: (batch,) i64, the samples of each recording; None: all."""
        x, seen = samples.unsqueeze(1), None
        lengths = None if counts is None else Lengths(counts)
        for conv, sizes in zip(self.convs, self.convolutions):
            lengths = None if lengths is None else lengths.behind(*sizes)
            x = conv(x, lengths)
        x = self.projection(self.layer_norm(x.transpose(1, 2)))
        if lengths is not None:
            seen = lengths.there(x.shape[1])
            x = ops.where(seen.unsqueeze(-1), x, 0.0)
        around = self.positions(x.transpose(1, 2))
        if self.wide % 2 == 0:  # an even kernel sees one frame too many
            around = around.narrow(2, 0, x.shape[1])
        return self.lm_head(self.stack(x + ops.gelu(around).transpose(1, 2), seen))


def recorded(values: Mapping[str, Any], where: str, rows: int) -> Recorded:
    """The network of a config.json, for at most `rows` recordings; of several `counts` says how
    many samples each has."""
    given, graph = Fields(values, where), Graph()
    config = network_config(given)
    count = graph.dim("samples", shortest(given), LONGEST, hint=10 * RATE)
    batch = 1 if rows == 1 else graph.dim("recordings", 1, rows, hint=rows)
    samples = graph.tensor((batch, count), name="samples")
    counts = None if rows == 1 else graph.tensor((batch,), "i64", "counts")
    with nn.uninitialised():
        model = Wav2Vec2Network(graph, given, config)
    model(samples, counts).output("logits")
    return Recorded(graph, model, [])


def network_config(values: Fields) -> DecoderConfig:
    """Raises WeightsError."""
    values.text("model_type", among=("wav2vec2",))
    heads, width = values.count("num_attention_heads"), values.count("hidden_size")
    if width % heads:
        raise values.wrong("num_attention_heads", f"a divisor of {width}")
    count = len(values.counts("conv_dim"))
    for name in ("conv_kernel", "conv_stride"):
        values.counts(name, count)
    values.text("feat_extract_activation", "gelu", among=("gelu",))
    return plain_config(
        family="wav2vec2", width=width, heads=heads, layers=values.count("num_hidden_layers"),
        hidden=values.count("intermediate_size"), vocabulary=values.count("vocab_size"),
        context=LONGEST, eps=values.number("layer_norm_eps", 1e-5, low=0, high=1), gated=False,
        activation=values.text("hidden_act", "gelu"), attention_bias=True, output_bias=True,
        mlp_bias=True,
    )  # fmt: skip


def shortest(values: Fields) -> int:
    """Samples of two frames."""
    length = 2
    sizes = zip(values.counts("conv_kernel"), values.counts("conv_stride"))
    for kernel, stride in reversed(list(sizes)):
        length = (length - 1) * stride + kernel
    return length


class Wav2Vec2(Ear):
    """A model of a directory as Hugging Face writes it (config.json, *.safetensors, vocab.json).
    options: of `Graph.compile`. Raises WeightsError."""

    timed = True

    def __init__(self, path: Path, threads: int | None = None, **options: Any) -> None:
        values = Fields.load(path / "config.json")
        self.shortest = shortest(values)
        self.blank = values.count("pad_token_id", 0, low=0)
        self._letters, self._between = _vocabulary(path)
        more = path / "preprocessor_config.json"
        self.normalise = not more.exists() or Fields.load(more).flag("do_normalize", True)
        options |= {"threads": threads, "precision": "f32"}
        self._recorded = partial(_compiled, values, Safetensors(path), options)
        self._made: list[Any] = []
        self._sizes = list(zip(values.counts("conv_kernel"), values.counts("conv_stride")))
        self._program = self._compiled(1)

    @computed_once
    def _several(self) -> Any:
        return self._compiled(ROWS)

    def _compiled(self, rows: int) -> Any:
        self._made.append(self._recorded(rows))
        return self._made[-1]

    @property
    def peak_bytes(self) -> int:
        return sum(each.peak_bytes for each in self._made)

    def _given(self, samples: np.ndarray) -> np.ndarray:
        if self.normalise:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        return samples.astype(np.float32)

    def logits(self, samples: np.ndarray) -> np.ndarray:
        """(frames, vocabulary) f32."""
        self._program["samples"] = self._given(samples)[None]
        self._program.run()
        found: np.ndarray = self._program["logits"][0]
        return found

    def logits_of(self, several: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `logits`, of several recordings (at most ROWS) at once."""
        program, counts = self._several, np.array([len(each) for each in several], np.int64)
        program["samples"] = padded([self._given(samples) for samples in several])
        program["counts"] = counts
        program.run()
        for kernel, stride in self._sizes:
            counts = (counts - kernel) // stride + 1
        return [rows[:count] for rows, count in zip(np.array(program["logits"]), counts)]

    def hear(self, samples: np.ndarray) -> Part:
        return self._said(samples, self.logits(samples))

    def hear_all(self, several: Sequence[np.ndarray]) -> list[Part]:
        return list(map(self._said, several, self.logits_of(several)))

    def _said(self, samples: np.ndarray, logits: np.ndarray) -> Part:
        """The likeliest token of each frame; what repeats is said once, blanks stand between."""
        logits = logits.astype(np.float64)
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        best, step = logits.argmax(-1), len(samples) / RATE / len(logits)
        edges = np.flatnonzero(np.diff(best, prepend=-1))
        text, words, likely = "", [], []  # of one word
        first = last = 0.0
        for start, stop in zip(edges, [*edges[1:], len(best)]):
            token = int(best[start])
            letter = self._letters.get(token, "")
            if token != self.blank and letter and letter != self._between:
                first = first if text else start * step
                text, last = text + letter, stop * step
                likely.append(float(shares[start:stop, token].max()))
            elif letter == self._between and text:
                words.append(Word(f" {text}", first, last, float(np.mean(likely))))
                text, likely = "", []
        if text:
            words.append(Word(f" {text}", first, last, float(np.mean(likely))))
        return "".join(word.text for word in words), tuple(words)


def _compiled(values: Fields, state: Any, options: dict[str, Any], rows: int) -> Any:
    given = {"values": dict(values.values), "where": values.where, "rows": rows}
    made, program = compiled(recorded, given, options)
    give(program, made.model, _state(state))
    return program


def _vocabulary(path: Path) -> tuple[dict[int, str], str]:
    """(letters by token, special ones left out; the one that stands between words)."""
    file, settings = path / "vocab.json", path / "tokenizer_config.json"
    if not file.exists():
        raise WeightsError(f"{file}: no such file; it says which letters the tokens are")
    values = Fields.load(settings) if settings.exists() else Fields({}, str(settings))
    between = values.text("word_delimiter_token", "|")
    known = {str(text): token for text, token in read_json(file).items()}
    if not all(isinstance(token, int) for token in known.values()):
        raise WeightsError(f"{file}: not a table of tokens (are there several languages in it?)")
    letters = {token: text for text, token in known.items()
               if not re.fullmatch(r"<.*>|\[.*\]", text)}  # fmt: skip
    return letters, between


def _state(given: Mapping[str, np.ndarray]) -> Deferred:
    """Under our names; the kernel of positions is its direction times its length along time."""
    found: dict[str, np.ndarray] = {}
    for name, value in given.items():
        for pattern, ours in RULES:
            name = pattern.sub(ours, name)
        if name != "masked_spec_embed":
            found[name] = value
    if "positions.weight_g" in found and "positions.weight_v" in found:
        length, way = (found.pop(f"positions.weight_{n}").astype(np.float32) for n in "gv")
        size = np.sqrt((way**2).sum((0, 1), keepdims=True))
        found["positions.weight"] = way * (length / size)
    return Deferred.of(found)
