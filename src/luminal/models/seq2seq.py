"""T5 and Flan-T5 (Raffel and others 2019, https://arxiv.org/abs/1910.10683): a text read whole, and
another one made of it, token by token with a cache.

The encoder is that of the diffusion models, the decoder that of the models of speech, with biases
of scores by distance in the place of positions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..errors import InputError
from ..graph import Graph, Tensor
from ..weights.checkpoints import read_tensors
from ..weights.fields import Fields
from ..weights.gguf import GGUF, gguf_file
from .diffusion.t5 import T5Config, T5Encoder
from .gguf_t5 import gguf_t5
from .llm.config import DecoderConfig, end_tokens
from .llm.elsewhere import Recorded, compiled
from .llm.gguf_text import raw_tokenizer
from .llm.sampling import Sampler, Sampling
from .llm.storage import Storage
from .llm.weights import give
from .llm.whole import plain_config
from .speech.encoder import Memory, encoder_outputs
from .speech.program import DecoderProgram, Encoding, part_of
from .tokenizing import read_tokenizer

PARTS = (  # of decoder.block.N.layer., under our names below layers.N.
    (r"0\.SelfAttention\.([qkvo])\.", r"self_attn.\1_proj."),
    (r"0\.layer_norm\.", "input_layernorm."),
    (r"1\.EncDecAttention\.([qo])\.", r"encoder_attn.\1_proj."),
    (r"1\.layer_norm\.", "cross_layernorm."), (r"2\.layer_norm\.", "post_attention_layernorm."),
    (r"2\.DenseReluDense\.wi_0\.", "mlp.gate_proj."),
    (r"2\.DenseReluDense\.wi_1\.", "mlp.up_proj."),
    (r"2\.DenseReluDense\.wi\.", "mlp.up_proj."), (r"2\.DenseReluDense\.wo\.", "mlp.down_proj."),
)  # fmt: skip
BLOCK = re.compile(r"decoder\.block\.(\d+)\.layer\.(.+)")
CROSS = re.compile(r"1\.EncDecAttention\.([kv])\.weight")
State = dict[str, np.ndarray]
GREEDY = Sampling()


@dataclass(frozen=True)
class Asked:
    """A text that shall be made of another one. more: whether it goes on behind these tokens."""

    ids: Sequence[int]
    limit: int = 256
    sampling: Sampling = GREEDY
    more: Callable[[list[int]], bool] = lambda made: True


class Reader(nn.Module):
    """ids (1, tokens) -> hidden states, of at most `most` tokens."""

    def __init__(self, graph: Graph, config: T5Config, most: int) -> None:
        super().__init__()
        self.t5, self.most = T5Encoder(graph, config), most

    def forward(self, ids: Tensor) -> Tensor:
        return self.t5(ids, self.most)


def recorded_reader(config: T5Config, decoder: DecoderConfig, most: int) -> Recorded:
    """Tokens of a text to the keys and values of each layer of the decoder."""
    graph = Graph()
    tokens = graph.dim("tokens", 1, most, hint=min(64, most))
    ids = graph.tensor((1, tokens), "i64", "ids")
    with nn.uninitialised():
        memory = Memory(graph, decoder, config.d_model, Storage())
        model = Encoding(Reader(graph, config, most), memory)
    encoder_outputs(model(ids))
    return Recorded(graph, model, [])


class T5:
    """A model that makes a text of a text, from a directory as Hugging Face writes it, or a GGUF
    file.

    context: the most tokens of either. batch: texts made side by side. options: of
    `Graph.compile`. Raises WeightsError or Unsupported.
    """

    def __init__(
        self, directory: str | Path, context: int = 512, batch: int = 1, **options: Any
    ) -> None:
        self.directory, self.batch = Path(directory), batch
        given, tensors = _opened(self.directory)
        self.config, self.context = T5Config.read(given), context
        self.decoder = _decoder(given, self.config, context)
        self.start = given.count("decoder_start_token_id", given.count("pad_token_id", 0, 0), 0)
        self.ends = end_tokens(given) or (1,)
        state = _adapted(tensors, self.config, _is_scaled(given))
        arguments = {"config": self.config, "decoder": self.decoder, "most": context}
        made, self._reader = compiled(recorded_reader, arguments, options)
        give(self._reader, made.model, part_of(state, "encoder.", "memory."))
        self._writer = DecoderProgram(self.decoder, state, None, batch, Storage(), **options)

    @property
    def peak_bytes(self) -> int:
        """That its programs take, with the weights."""
        return int(self._reader.peak_bytes) + self._writer.executable.peak_bytes

    def complete(
        self, ids: Sequence[int], max_tokens: int = 256, sampling: Sampling = GREEDY
    ) -> list[int]:
        """The tokens chosen one after the other, without the end token. Raises InputError."""
        return self.complete_all([Asked(ids, max_tokens, sampling)])[0]

    def complete_all(self, asked: Sequence[Asked]) -> list[list[int]]:
        """As `complete` of each, `batch` of them side by side. Raises InputError."""
        for each in asked:
            self.check(each)
        parts = (asked[n : n + self.batch] for n in range(0, len(asked), self.batch))
        return [made for part in parts for made in self._together(part)]

    def check(self, asked: Asked) -> None:
        """Raises InputError for what cannot be completed."""
        asked.sampling.check(self.decoder.vocabulary)
        if not 1 <= len(asked.ids) <= self.context:
            raise InputError(
                f"a text of {len(asked.ids)} tokens; this model takes 1 to {self.context}"
            )
        if not 0 <= min(asked.ids) <= max(asked.ids) < self.config.vocab_size:
            raise InputError(f"token ids go from 0 to {self.config.vocab_size - 1}")

    def _together(self, asked: Sequence[Asked]) -> list[list[int]]:
        """What has ended goes along, unread, until all have."""
        self._read([each.ids for each in asked])
        samplers = [Sampler(each.sampling) for each in asked]
        made: list[list[int]] = [[] for _ in asked]
        fed = np.full((len(asked), 1), self.start)
        limits = [min(each.limit, self.context - 1) for each in asked]
        going = [n for n, limit in enumerate(limits) if limit > 0]
        logits = self._writer.prompt(fed, [0])
        while going:
            for n in list(going):
                token = samplers[n].choose(logits[n, 0])
                if token in self.ends:
                    going.remove(n)
                    continue
                made[n].append(token)
                fed[n] = token
                if len(made[n]) == limits[n] or not asked[n].more(made[n]):
                    going.remove(n)
            logits = self._writer.step(fed) if going else logits
        return made

    def logits(self, ids: Sequence[int], made: Sequence[int]) -> np.ndarray:
        """Logits (1 + made, vocabulary) f32 of the first token made of a text and of each that
        follows those made. Raises InputError."""
        if len(made) >= self.context:
            raise InputError(f"{len(made)} tokens made; this model makes {self.context - 1}")
        self.check(Asked(ids))
        self._read([ids])
        given = np.array([[self.start, *made]])
        return self._writer.prompt(given, range(given.shape[1]))[0]

    def _read(self, texts: Sequence[Sequence[int]]) -> None:
        """One after the other; their keys and values side by side, as long as the longest text."""
        names = [f"{what}{n}" for n in range(self.decoder.layers) for what in ("keys", "values")]
        longest, found = max(map(len, texts)), list[list[np.ndarray]]()
        for ids in texts:
            self._reader["ids"] = np.array([ids], np.int64)
            self._reader.run()
            more = ((0, 0), (0, 0), (0, longest - len(ids)), (0, 0))
            found.append([np.pad(self._reader[name], more) for name in names])
        heard = [len(ids) for ids in texts] if self.batch > 1 else []
        self._writer.listen([np.concatenate(each) for each in zip(*found)], heard=heard)

    def generate(self, text: str, max_tokens: int = 256, sampling: Sampling = GREEDY) -> str:
        """What the model makes of a text, such as "translate English to German: ..."."""
        made = self.complete(self.encode(text), max_tokens, sampling)
        return self.decode(made)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, the end token too. Raises WeightsError."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))

    @cached_property
    def _tokenizer(self) -> Any:
        if (found := gguf_file(self.directory)) is not None:
            return raw_tokenizer(GGUF(found))
        return read_tokenizer(self.directory / "tokenizer.json")


def _opened(directory: Path) -> tuple[Fields, State]:
    """(config.json, tensors) of a directory or a GGUF file."""
    if (found := gguf_file(directory)) is not None:
        return gguf_t5(found)
    return Fields.load(directory / "config.json"), dict(read_tensors(directory))


def _decoder(given: Fields, config: T5Config, context: int) -> DecoderConfig:
    return plain_config(
        family="t5", vocabulary=config.vocab_size, width=config.d_model, heads=config.num_heads,
        head_dim=config.d_kv, hidden=config.d_ff, context=context, norm="rms", eps=config.eps,
        layers=given.count("num_decoder_layers", config.num_layers), gated=config.gated,
        activation=config.act, attention_scale=1.0, relative=(config.buckets, config.distance),
    )  # fmt: skip


def _is_scaled(given: Fields) -> bool:
    """Whether logits are divided by the root of the width: where the head is tied, but never of an
    mT5, as transformers has it."""
    tied = given.flag("tie_word_embeddings", True)
    mt5 = given.values.get("model_type") == "mt5"
    return not mt5 and given.flag("scale_decoder_outputs", tied)


def _adapted(state: State, config: T5Config, scaled: bool) -> State:
    """Of the two programs. T5's scores have no scale: attention over the text, which has one,
    gets larger queries."""
    found: State = {}
    shared = state.get("shared.weight", state.get("encoder.embed_tokens.weight"))
    for name, value in state.items():
        match = BLOCK.match(name)
        if match is None:
            if name.startswith(("encoder.block", "encoder.final")):
                found[f"encoder.t5.{name}"] = value
            continue
        layer, rest = match.groups()
        if (cross := CROSS.fullmatch(rest)) is not None:
            found[f"memory.layers.{layer}.{cross[1]}_proj.weight"] = value
            continue
        if "relative_attention_bias" in rest:
            found["decoder.relative.weight"] = value
            continue
        for theirs, ours in PARTS:
            rest = re.sub(f"^{theirs}", ours, rest)
        if rest == "encoder_attn.q_proj.weight":
            value = np.asarray(value, np.float32) * np.float32(math.sqrt(config.d_kv))
        found[f"decoder.layers.{layer}.{rest}"] = value
    last = state.get("decoder.final_layer_norm.weight")
    if shared is not None and last is not None:
        factor = np.float32(config.d_model**-0.5 if scaled else 1.0)
        found["encoder.t5.shared.weight"] = found["decoder.embed_tokens.weight"] = shared
        found["decoder.lm_head.weight"] = state.get("lm_head.weight", shared)
        found["decoder.norm.weight"] = np.asarray(last, np.float32) * factor
    return found
