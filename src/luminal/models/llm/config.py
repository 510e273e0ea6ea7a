"""What tells one decoder-only language model from another, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import WeightsError
from ...weights.fields import Fields

if TYPE_CHECKING:
    from ... import nn
    from ...graph import Graph
    from .storage import Storage

ROPE_DIVISORS = ("factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings", "beta_fast", "beta_slow")  # fmt: skip
ROPE_NUMBERS = ("attention_factor", "attention_share", "mscale", "mscale_all_dim")
ROPE_LISTS = ("factors", "long_factor", "short_factor")


@dataclass(frozen=True)
class Rope:
    """Rotary positions: the base, and how a checkpoint stretches it to longer contexts.

    kind: "default", "linear", "llama3", "yarn", "longrope", "factors"; parameters: their numbers.
    share: the part of the features of a head that turn (the first ones).
    """

    theta: float = 10000.0
    kind: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    width: int | None = None  # features that turn, if not that share of a head's
    interleaved: bool = False  # features 2 i and 2 i + 1 are a pair, not i and i + half
    # of pairs that turn with a token's time, its row and its column in a picture; woven: these
    # alternate as long as there are any
    sections: tuple[int, ...] = ()
    woven: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward part. normalise: weights of those chosen
    sum to 1. layers: which have one (None: all). shared: width inside of an expert that all tokens
    go through besides, gated by a sigmoid if `shared_gate`. bias: router and experts have biases.
    limit, alpha: gate g and up u, cut to limit, make (u + 1) g sigmoid(alpha g), as in gpt-oss.
    scoring: what makes shares of scores, "softmax" or "sigmoid". scale_inputs: weights multiply
    what goes into experts, not what comes out. correction: a number for each expert is added where
    they are chosen, but not in their weights. groups: of experts, of which the `kept` groups with
    the largest sum of their `best` scores may be chosen from. factor: of all weights in the end.
    gated: as of the config; experts without gates have no biases here. beside: a layer has a plain
    feed-forward part too (`MixtureBeside`)."""

    count: int
    chosen: int
    hidden: int
    normalise: bool = True
    layers: frozenset[int] | None = None
    shared: int = 0
    shared_gate: bool = False
    bias: bool = False
    limit: float | None = None
    alpha: float = 1.702
    scoring: str = "softmax"
    correction: bool = False
    groups: int = 1
    kept: int = 1
    best: int = 1
    gated: bool = True
    scale_inputs: bool = False
    factor: float = 1.0
    beside: bool = False


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434): keys and values
    are `rank` numbers of a token, and `turning` ones more of a key that have rotary positions. Each
    head's query and key have `plain` numbers besides, its value `value`. query: the rank of queries
    (None: they are of the whole width)."""

    rank: int
    turning: int
    plain: int
    value: int
    query: int | None


class Mixer(Protocol):
    """What stands in a layer's place of attention and carries states of fixed size: a frozen
    dataclass of its sizes. Its module takes (x (tokens, width), cache): see `mixers`."""

    def states(self, config: DecoderConfig) -> Mapping[str, tuple[int, ...]]:
        """The shapes of one sequence's states, f32, by name."""

    def module(
        self, graph: Graph, config: DecoderConfig, layer: int, storage: Storage
    ) -> nn.Module:
        """Its parameters, and what it does."""


@dataclass(frozen=True)
class Heat:
    """Queries grow with their position p, in some layers: they are multiplied by
    1 + beta log(1 + floor((p + offset) / period))."""

    beta: float
    period: float
    offset: int = 0
    layers: frozenset[int] | None = None

    def table(self, context: int) -> np.ndarray:
        """(context, 1) f32."""
        place = np.floor((np.arange(context) + self.offset) / self.period)
        return (1 + self.beta * np.log1p(place)).astype(np.float32)[:, None]


@dataclass(frozen=True)
class Side:
    """Each layer takes `width` numbers of its own of every token, of a table of `rows` rows and of
    the token's embedding, and adds what it makes of them (Gemma 3n)."""

    width: int
    rows: int


# norms (before attention, after it, before the feed-forward part, after it); whether that part has
# the layer's input too, not what attention made of it
BLOCKS = {
    "input": ((True, False, True, False), False),
    "both": ((True, True, True, True), False),
    "output": ((False, True, False, True), False),
    "parallel": ((True, False, False, False), True),
    "parallel2": ((True, False, True, False), True),
    "alone": ((True, False, False, False), False),
    "post": ((False, True, False, True), False),  # norms of the sums
}


@dataclass(frozen=True)
class DecoderConfig:
    """Everything that `Decoder` needs to know.

    windows: for each layer, how many of the latest positions a token sees (None: all).
    rotary: for each layer, its entry of `ropes` (None: no rotary positions).
    norm: "rms", "rms1" (weights stored minus one, as in Gemma), "layer", "scale" (a layer norm
    without bias) or "plain" (without weights too).
    mixers: for each layer, what it has in place of attention (None: nothing; (): none has any).
    hidden: 0 where layers have no feed-forward part; then block is "alone". hiddens: by layer.
    shapes: for each layer, its heads of keys and values and their numbers, if they differ.
    chunked: a token sees none before its chunk, of which `windows` says the size. sources: for each
    layer, that whose keys and values it takes. keys_as_values: layers whose values are their keys.
    sparsity: for each layer, how many times the deviation over the mean what passes through the
    feed-forward part's gate must be. laurel: rank of what is added to attention besides. streams:
    of numbers that are carried up the layers; each layer computes the first (AltUp).
    block: where a layer has norms: see `BLOCKS`. attention_gate: queries come with numbers whose
    sigmoid each head's output is multiplied by. qk_norm: of queries and keys, "head" by head,
    "heads", with weights for each, "whole", before they are divided into heads, or "turned",
    without weights, at their positions.
    """

    family: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    context: int
    windows: tuple[int | None, ...]
    rotary: tuple[str | None, ...]
    ropes: Mapping[str, Rope]
    mixers: tuple[Mixer | None, ...] = ()
    hiddens: tuple[int, ...] = ()
    shapes: tuple[tuple[int, int], ...] = ()
    chunked: bool = False
    sources: tuple[int, ...] = ()
    keys_as_values: frozenset[int] = frozenset()
    value_norm: bool = False
    heat: Heat | None = None
    sparsity: tuple[float | None, ...] = ()
    laurel: int | None = None
    streams: int = 1
    side: Side | None = None
    layer_scale: bool = False  # a layer's result is multiplied by a number of its own
    norm: str = "rms"
    eps: float = 1e-5
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    attention_gate: bool = False
    qk_norm: str | None = None
    block: str = "input"
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    attention_cap: float | None = None
    latent: Latent | None = None  # then kv_heads is 1, head_dim that of what is kept of a token
    sub_norms: bool = False  # before the last matrix of attention and of the feed-forward part
    sinks: bool = False  # each head has a score more, of which nothing is taken
    alibi: float | None = None  # scores lose by distance; how steeply at most (`slopes`)
    relative: tuple[int, int] | None = None  # buckets of distances, the largest distance (T5)
    bare_first: bool = False  # the first layer has no norm before attention
    logit_cap: float | None = None
    embedding_scale: float | None = None
    residual_scale: float | None = None
    logit_scale: float | None = None
    learned_positions: bool = False
    tied: bool = False
    pictures: bool = False  # rows are given for tokens beyond the vocabulary
    together: int = 0  # tokens of a picture, if these see each other, also those that come later
    deep: int = 0  # of the first layers, after which more of a picture's rows is added
    experts: Experts | None = None
    end_tokens: tuple[int, ...] = ()
    begin_token: int | None = None

    def mixer(self, layer: int) -> Mixer | None:
        """What a layer has in place of attention."""
        return self.mixers[layer] if self.mixers else None

    def shape(self, layer: int) -> tuple[int, int]:
        """(heads of keys and values, numbers of a head) of a layer."""
        return self.shapes[layer] if self.shapes else (self.kv_heads, self.head_dim)

    def source(self, layer: int) -> int:
        """The layer whose keys and values a layer sees: mostly its own."""
        return self.sources[layer] if self.sources else layer

    @property
    def keeping(self) -> list[int]:
        """The layers that have keys and values of their own."""
        return [layer for layer in self.attending if self.source(layer) == layer]

    @property
    def carries(self) -> bool:
        """Whether some layer has states, of which no earlier ones are kept."""
        return any(mixer is not None for mixer in self.mixers)

    @property
    def attending(self) -> list[int]:
        """The layers that have attention."""
        return [layer for layer in range(self.layers) if self.mixer(layer) is None]

    @property
    def placed(self) -> bool:
        """Whether tokens of pictures have a row and a column besides a position."""
        return self.pictures and any(rope.sections for rope in self.ropes.values())

    def has_experts(self, layer: int) -> bool:
        """Whether this layer's feed-forward part is a mixture of experts."""
        experts = self.experts
        return experts is not None and (experts.layers is None or layer in experts.layers)


def common(values: Fields, **more: Any) -> DecoderConfig:
    """A Llama-like config under Hugging Face's names; `more`: what a family does otherwise."""
    heads, width = values.count("num_attention_heads"), values.count("hidden_size")
    layers = values.count("num_hidden_layers")
    bias = values.flag("attention_bias")
    settings: dict[str, Any] = {
        "family": values.text("model_type"),
        "vocabulary": values.count("vocab_size"),
        "width": width,
        "layers": layers,
        "heads": heads,
        "kv_heads": values.count("num_key_value_heads", heads),
        "head_dim": values.count("head_dim", max(1, width // heads)),
        "hidden": more["hidden"] if "hidden" in more else values.count("intermediate_size"),
        "context": values.count("max_position_embeddings", 2048),
        "windows": (None,) * layers,
        "rotary": ("all",) * layers,
        "ropes": {"all": rope(values)},
        "eps": values.number("rms_norm_eps", 1e-6, low=0, high=1),
        "activation": values.text("hidden_act", "silu"),
        "attention_bias": bias,
        "output_bias": bias,
        "mlp_bias": values.flag("mlp_bias"),
        "tied": values.flag("tie_word_embeddings"),
        "end_tokens": end_tokens(values),
        "begin_token": values.count_if("bos_token_id", low=0),
    }
    settings |= more
    config = DecoderConfig(**settings)
    if config.heads % config.kv_heads:
        raise WeightsError(f"{values.where}: {heads} heads, {config.kv_heads} key and value heads")
    if config.experts is not None and config.experts.chosen > config.experts.count:
        raise WeightsError(f"{values.where}: {config.experts.chosen} chosen of "
                           f"{config.experts.count} experts")  # fmt: skip
    return config


def end_tokens(values: Fields) -> tuple[int, ...]:
    """eos_token_id is a number, a list, or missing."""
    if isinstance(values.values.get("eos_token_id"), list):
        return tuple(values.counts("eos_token_id"))
    found = values.count_if("eos_token_id", low=0)
    return () if found is None else (found,)


def rope(values: Fields, kind: str | None = None) -> Rope:
    """Rotary positions from rope_parameters (of a layer type) or the older rope_scaling."""
    given = stretching(values)
    if kind is not None:
        given = given.fields(kind)
    theta, share = (
        (given if given.has(field) else values).number(field, usual, low=low, high=high)
        for field, usual, low, high in (
            ("rope_theta", 10000.0, 1.5, 1e30), ("partial_rotary_factor", 1.0, 0.0, 1.0)
        )
    )  # fmt: skip
    scaling = given.text("rope_type", given.text("type", "default"))
    scaling = {"su": "longrope", "mrope": "default"}.get(scaling, scaling)
    sections = tuple(given.counts_if("mrope_section", 3) or ())
    return Rope(theta, scaling, _rope_parameters(given), share, sections=sections,
                woven=given.flag("mrope_interleaved"))  # fmt: skip


def stretching(values: Fields) -> Fields:
    """The fields about rotary positions."""
    return values.fields("rope_parameters" if values.has("rope_parameters") else "rope_scaling")


def _rope_parameters(given: Fields) -> dict[str, Any]:
    """The numbers of a way to stretch positions that are there; lists of numbers as arrays."""
    found: dict[str, Any] = {n: given.number(n, low=0) for n in ROPE_NUMBERS if given.has(n)}
    found |= {n: given.number(n, low=1e-6) for n in ROPE_DIVISORS if given.has(n)}
    found |= {n: np.array(given.numbers(n)) for n in ROPE_LISTS if given.has(n)}
    if given.has("truncate"):
        found["truncate"] = given.flag("truncate")
    for name in ROPE_LISTS:
        if name in found and not (found[name] > 0).all():
            raise given.wrong(name, "a list of numbers above 0")
    return found


def layer_windows(values: Fields, alternating: int | None = None) -> tuple[int | None, ...]:
    """The window of each layer: from layer_types where it stands, else every layer has the window,
    or all but every `alternating`-th."""
    layers, window = values.count("num_hidden_layers"), values.count_if("sliding_window")
    if values.has("layer_types"):
        kinds = values.texts("layer_types", layers)
    else:
        every = alternating or layers + 1
        kinds = ["full" if (n + 1) % every == 0 else "sliding_attention" for n in range(layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
