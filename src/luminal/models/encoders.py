"""Encoders of texts: which there are, and their tensors under our names.

BERT and RoBERTa have a file of their own; those with rotary positions are layers of the language
models in which every token sees all others. A language model is one whose tokens see those before
them, if it comes with a modules.json (Qwen3-Embedding, E5-Mistral, GTE-Qwen2; EmbeddingGemma, whose
tokens see all).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..errors import Unsupported, WeightsError
from ..graph import Graph, Tensor
from ..weights import Safetensors
from ..weights.fields import Fields, exists
from ..weights.gguf import GGUF, architecture_of, gguf_file
from .bert import KINDS, Bert, BertConfig
from .kinds import T5_FILES
from .llm.config import DecoderConfig, Rope, rope
from .llm.decoder import Body, Layer
from .llm.families import FAMILIES, family_of
from .llm.families.family import State
from .llm.norms import norm, through
from .llm.rope import switch_of
from .llm.rotary import Rotary
from .llm.storage import Storage
from .llm.whole import Whole, plain_config
from .tokenizing import read_tokenizer

LAYERS = r"(?:encoder\.)?layers?\.(\d+)\."
NAMES = (  # of any family: none has two that mean different things
    (r"^embeddings\.(tok|word)_embeddings\.", "embed_tokens."),
    (r"^embeddings\.token_type_embeddings\.", "token_types."),
    (r"^(emb_ln|embeddings\.norm|embeddings\.LayerNorm)\.", "embed_norm."),
    (r"^final_norm\.", "norm."), (rf"^{LAYERS}", r"layers.\1."),
    (r"\.attn_norm\.", ".input_layernorm."), (r"\.mlp_norm\.", ".post_attention_layernorm."),
    (r"\.(norm1|attn_ln)\.", ".attention_output_norm."),
    (r"\.(norm2|mlp_ln)\.", ".mlp_output_norm."),
    (r"\.(attn\.Wqkv|attention\.qkv_proj)\.", ".self_attn.qkv."),
    (r"\.(attn\.Wo|attn\.out_proj|attention\.o_proj)\.", ".self_attn.o_proj."),
    (r"\.mlp\.(Wo|fc2)\.", ".mlp.down_proj."), (r"\.mlp\.fc11\.", ".mlp.up_proj."),
    (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
)  # fmt: skip
PACKED = {  # what is several of ours below each other
    "self_attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.Wi": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
}  # fmt: skip


class TextEncoder(nn.Module):
    """ids (batch, tokens) i64, mask (batch, tokens) bool, kinds (batch, tokens) i64 or None (all 0)
    -> hidden states (batch, tokens, width). kinds: how many types of tokens there are."""

    def __init__(self, graph: Graph, config: DecoderConfig, kinds: int, last: bool) -> None:
        """last: whether a norm is the last step."""
        super().__init__()
        self.config, width = config, config.width
        self.embed_tokens = nn.Embedding(graph, config.vocabulary, width)
        self.token_types = nn.Embedding(graph, kinds, width) if kinds else None
        self.positions: nn.Embedding | None = None
        if config.learned_positions:
            self.positions = nn.Embedding(graph, config.context, width)
        self.embed_norm = None if config.norm == "rms" else norm(graph, config, width)
        rotaries = {name: Rotary(graph, config, name, config.context) for name in config.ropes}
        self.layers = nn.ModuleList(
            Layer(graph, config, n, None if name is None else rotaries[name], Storage())
            for n, name in enumerate(config.rotary)
        )
        self.norm = norm(graph, config, width) if last else None

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        x = self.embed_tokens(ids)
        if self.token_types is not None:
            types = self.token_types
            x = x + (types.weight[0] if kinds is None else types(kinds))
        batch, length = ids.shape
        if self.positions is not None:
            x = x + self.positions.weight.narrow(0, 0, length)
        cache = Whole(self.config, batch, length, mask)
        flat = through(self.embed_norm, x).flatten(0, 1)
        for layer in self.layers:
            flat = layer(flat, cache)
        flat = through(self.norm, flat)
        return flat.unflatten(0, (batch, length))


class WordEncoder(nn.Module):
    """As `TextEncoder`, of a whole decoder without its head. causal: tokens see none that comes
    later."""

    def __init__(self, graph: Graph, config: DecoderConfig, causal: bool) -> None:
        super().__init__()
        self.body, self.causal = Body(graph, config, config.context, Storage()), causal

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        batch, length = ids.shape
        cache: Any = Whole(self.body.config, batch, length, mask, self.causal)
        return self.body.norm(self.body(ids.flatten(), cache)).unflatten(0, (batch, length))


@dataclass(frozen=True)
class Backbone:
    """What a directory holds. make: its module, of a graph. state: the module's tensors. rest: all
    others, those of heads. kinds: types of tokens."""

    kind: str
    width: int
    vocabulary: int
    max_tokens: int
    kinds: int
    make: Callable[[Graph], nn.Module]
    state: Mapping[str, np.ndarray]
    rest: Mapping[str, np.ndarray]
    given: Fields

    def module(self, graph: Graph) -> nn.Module:
        """With its weights. Raises WeightsError."""
        with nn.uninitialised():  # the checkpoint has every weight
            made = self.make(graph)
        wanted = dict(made.named_parameters())
        filled = {name: np.zeros(tuple(map(int, wanted[name].shape)), np.float32)
                  for name in wanted.keys() - self.state.keys() if _no_bias(name)}  # fmt: skip
        made.load_state_dict({**self.state, **filled})
        return made


def _no_bias(name: str) -> bool:
    """Some have one for the last matrix of a feed-forward part only."""
    return name.endswith(("gate_proj.bias", "up_proj.bias"))


def backbone_of(directory: Path) -> Backbone:
    """The encoder of a directory with config.json and *.safetensors, or of a GGUF file. Raises
    WeightsError or Unsupported."""
    if (found := gguf_file(directory)) is not None:
        from .gguf_encoders import gguf_backbone
        from .gguf_t5 import t5_backbone

        t5 = architecture_of(found) in T5_FILES
        return t5_backbone(found) if t5 else gguf_backbone(found)
    given = Fields.load(directory / "config.json")
    decoder = given.values.get("model_type") in tuple(FAMILIES)
    kind = given.text("model_type", among=FAMILIES if decoder else (*KINDS, *ROTARY))
    if decoder and not exists(directory / "modules.json"):
        raise WeightsError(f"{directory}: a language model ({kind}) without a modules.json, which "
                           "says how vectors are made of its tokens")  # fmt: skip
    file = Safetensors(directory)
    tensors = {name: file[name] for name in file}
    if decoder:
        return _words(directory, given, tensors)
    if kind in KINDS:
        return _bert(directory, kind, given, tensors)
    config, kinds, last = ROTARY[kind](given)
    state, rest = _adapted(tensors)
    _check_layers(directory, config.layers, state, r"layers\.(\d+)\.")
    return Backbone(
        kind, config.width, config.vocabulary, config.context, kinds,
        lambda graph: TextEncoder(graph, config, kinds, last), state, rest, given,
    )  # fmt: skip


def encoder_tokenizer(directory: Path) -> Any:
    """The tokenizer of the tokenizers package of a directory or a GGUF file, which puts its tokens
    around texts and pairs. Raises WeightsError or Unsupported."""
    if (found := gguf_file(directory)) is not None:
        from .llm.gguf_text import raw_tokenizer

        return raw_tokenizer(GGUF(found), encoder=True)
    return read_tokenizer(directory / "tokenizer.json")


def _bert(directory: Path, kind: str, given: Fields, tensors: State) -> Backbone:
    config = BertConfig.load(directory / "config.json")
    state: State = {}
    rest: State = {}
    for name, value in tensors.items():
        short = re.sub(r"^(bert|roberta)\.", "", name)
        own = short.startswith(("embeddings.", "encoder.")) and "position_ids" not in short
        (state if own else rest)[short] = value
    _check_layers(directory, config.num_hidden_layers, state, r"encoder\.layer\.(\d+)\.")
    return Backbone(
        kind, config.hidden_size, config.vocab_size, config.max_position_embeddings - config.first,
        config.type_vocab_size, lambda graph: Bert(graph, config), state, rest, given,
    )  # fmt: skip


def _words(directory: Path, given: Fields, tensors: State) -> Backbone:
    """A language model as sentence-transformers keeps one."""
    both = given.flag("use_bidirectional_attention") or not given.flag("is_causal", True)
    own = {n: v for n, v in given.values.items() if n != "use_bidirectional_attention"}
    values = Fields(own, given.where)
    config = (family := family_of(values)).config(values)
    unlike = (config.carries, config.latent, config.side, config.streams > 1, config.sinks,
              config.sources, config.chunked, config.attention_cap,
              switch_of(config, config.context))  # fmt: skip
    if any(unlike):
        raise Unsupported(f"{directory}: vectors of texts of {family.name!r}, whose layers are not "
                          "attention over one sequence alone")  # fmt: skip
    if both:
        config = replace(config, windows=tuple(w and w // 2 for w in config.windows))
    named = {name if name.startswith(("model.", "lm_head.")) else f"model.{name}": value
             for name, value in tensors.items()}  # fmt: skip
    state = {f"body.{name.removeprefix('model.')}": value
             for name, value in family.adapt(named, config).items()
             if name.startswith("model.")}  # fmt: skip
    _check_layers(directory, config.layers, state, r"body\.layers\.(\d+)\.")
    return Backbone(
        family.name, config.width, config.vocabulary, config.context, 0,
        lambda graph: WordEncoder(graph, config, not both), state, {}, given,
    )  # fmt: skip


def _check_layers(directory: Path, wanted: int, state: State, layer: str) -> None:
    """Before any is made: the file has as many layers as the config says."""
    found = {match[1] for name in state if (match := re.match(layer, name))}
    if len(found) != wanted:
        raise WeightsError(
            f"{directory}: the config has {wanted} layers, the file {len(found)}"
        )


def _adapted(tensors: State) -> tuple[State, State]:
    """(the encoder's, under our names; all others)."""
    state: State = {}
    rest: State = {}
    for name, value in tensors.items():
        name = re.sub(r"^(model|gte|new|nomic_bert|bert)\.", "", name)
        short = name
        for theirs, ours in NAMES:
            short = re.sub(theirs, ours, short)
        own = re.match(r"(embed_tokens|token_types|embed_norm|layers|norm)\.", short)
        (state if own else rest)[short if own else name] = value
    for name in list(state):
        for packed, parts in PACKED.items():
            if f".{packed}." in name:
                pieces = np.split(state.pop(name), len(parts))
                state |= {name.replace(packed, part): p for part, p in zip(parts, pieces)}
    return state, rest


# ---- those with rotary positions: (config, types of tokens, whether a norm comes last)

Read = Callable[[Fields], tuple[DecoderConfig, int, bool]]


def _config(given: Fields, **more: object) -> DecoderConfig:
    heads, width = given.count("num_attention_heads"), given.count("hidden_size")
    if width % heads:
        raise WeightsError(f"{given.where}: {heads} heads do not share {width} features")
    layers = given.count("num_hidden_layers")
    settings: dict[str, object] = {
        "family": given.text("model_type"), "vocabulary": given.count("vocab_size"),
        "width": width, "layers": layers, "heads": heads, "rotary": ("all",) * layers,
        "hidden": given.count("intermediate_size"), "ropes": {"all": rope(given)},
        "context": given.count("max_position_embeddings", 2048), "block": "post",
        "eps": given.number("layer_norm_eps", 1e-12, low=0, high=1),
    }  # fmt: skip
    return plain_config(**settings | more)


def _modern(given: Fields) -> tuple[DecoderConfig, int, bool]:
    """ModernBERT (Warner and others 2024): windows in two layers of three."""
    layers, every = given.count("num_hidden_layers"), given.count("global_attn_every_n_layers", 3)
    kinds = ["sliding_attention" if n % every else "full_attention" for n in range(layers)]
    if given.has("layer_types"):
        kinds = given.texts("layer_types", layers)
    near = [kind == "sliding_attention" for kind in kinds]
    window = given.count("local_attention", 128)
    ropes = {
        "all": Rope(given.number("global_rope_theta", 160000.0, low=1.5)),
        "near": Rope(given.number("local_rope_theta", 10000.0, low=1.5)),
    }
    if given.fields("rope_parameters").has("full_attention"):
        both = (("all", "full_attention"), ("near", "sliding_attention"))
        ropes = {name: rope(given, kind) for name, kind in both}
    bias = given.flag("attention_bias")
    return _config(
        given, windows=tuple(window // 2 if n else None for n in near), ropes=ropes,
        rotary=tuple("near" if n else "all" for n in near), bare_first=True, block="input",
        norm="layer" if given.flag("norm_bias") else "scale", attention_bias=bias,
        output_bias=bias, mlp_bias=given.flag("mlp_bias"),
        activation=given.text("hidden_activation", "gelu"),
        eps=given.number("norm_eps", 1e-5, low=0, high=1), context=given.count(
            "max_position_embeddings", 8192
        ),
    ), 0, True  # fmt: skip


def _nomic(given: Fields) -> tuple[DecoderConfig, int, bool]:
    kind, types = given.text("hidden_act", "silu"), given.count("type_vocab_size", 2, low=0)
    return _config(given, activation=kind), types, False


def _gte(given: Fields) -> tuple[DecoderConfig, int, bool]:
    kind, types = given.text("hidden_act", "gelu"), given.count("type_vocab_size", 1, low=0)
    biases = {"attention_bias": True, "output_bias": True, "mlp_bias": True}
    return _config(given, activation=kind, **biases), types, False


ROTARY: Mapping[str, Read] = {"modernbert": _modern, "nomic_bert": _nomic, "gte": _gte, "new": _gte}
