"""What tells one decoder-only language model from another, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import WeightsError


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


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward part. normalise: weights of those chosen
    sum to 1. layers: which have one (None: all)."""

    count: int
    chosen: int
    hidden: int
    normalise: bool = True
    layers: frozenset[int] | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """Everything that `Decoder` needs to know.

    windows: for each layer, how many of the latest positions a token sees (None: all).
    rotary: for each layer, its entry of `ropes` (None: no rotary positions).
    norm: "rms", "rms1" (weights stored minus one, as in Gemma) or "layer".
    sandwich: norms after attention and feed-forward too, before the residual is added.
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
    norm: str = "rms"
    eps: float = 1e-5
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sandwich: bool = False
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float | None = None
    learned_positions: bool = False
    tied: bool = False
    experts: Experts | None = None
    end_tokens: tuple[int, ...] = ()
    begin_token: int | None = None

    def has_experts(self, layer: int) -> bool:
        """Whether this layer's feed-forward part is a mixture of experts."""
        experts = self.experts
        return experts is not None and (experts.layers is None or layer in experts.layers)


class Values:
    """A config.json with messages that say what is wrong. `where` names the file."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or the default where it is missing or null."""
        value = self.values.get(name)
        return default if value is None else value

    def number(self, name: str, default: float | None = None) -> float:
        """A number. Raises WeightsError where it is missing."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WeightsError(f"{self.where}: {name} must be a number, not {value!r}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1. Raises WeightsError."""
        value = self.number(name, default)
        if value != int(value) or value < 1:
            raise WeightsError(f"{self.where}: {name} must be a whole number, not {value!r}")
        return int(value)


def common(values: Values, **more: Any) -> DecoderConfig:
    """A Llama-like config under Hugging Face's names; `more`: what a family does otherwise."""
    heads, width = values.count("num_attention_heads"), values.count("hidden_size")
    layers = values.count("num_hidden_layers")
    settings: dict[str, Any] = {
        "family": values.get("model_type"),
        "vocabulary": values.count("vocab_size"),
        "width": width,
        "layers": layers,
        "heads": heads,
        "kv_heads": values.count("num_key_value_heads", heads),
        "head_dim": values.count("head_dim", max(1, width // heads)),
        "hidden": values.count("intermediate_size"),
        "context": values.count("max_position_embeddings", 2048),
        "windows": (None,) * layers,
        "rotary": ("all",) * layers,
        "ropes": {"all": rope(values)},
        "eps": values.number("rms_norm_eps", 1e-6),
        "activation": values.get("hidden_act", "silu"),
        "attention_bias": bool(values.get("attention_bias", False)),
        "output_bias": bool(values.get("attention_bias", False)),
        "mlp_bias": bool(values.get("mlp_bias", False)),
        "tied": bool(values.get("tie_word_embeddings", False)),
        "end_tokens": end_tokens(values),
        "begin_token": values.get("bos_token_id"),
    }
    settings |= more
    config = DecoderConfig(**settings)
    if config.heads % config.kv_heads:
        raise WeightsError(f"{values.where}: {heads} heads, {config.kv_heads} key and value heads")
    return config


def end_tokens(values: Values) -> tuple[int, ...]:
    """eos_token_id is a number, a list, or missing."""
    found = values.get("eos_token_id", [])
    return tuple(found) if isinstance(found, list) else (int(found),)


def rope(values: Values, kind: str | None = None) -> Rope:
    """Rotary positions from rope_parameters (of a layer type) or the older rope_scaling."""
    given = dict(values.get("rope_parameters", values.get("rope_scaling", {})))
    if kind is not None:
        given = dict(given.get(kind, {}))
    theta = given.get("rope_theta", values.get("rope_theta", 10000.0))
    scaling = str(given.get("rope_type") or given.get("type") or "default")
    share = given.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
    return Rope(float(theta), {"su": "longrope"}.get(scaling, scaling), given, float(share))


def layer_windows(values: Values, alternating: int | None = None) -> tuple[int | None, ...]:
    """The window of each layer: from layer_types where it stands, else every layer has the window,
    or all but every `alternating`-th."""
    layers, window = values.count("num_hidden_layers"), values.get("sliding_window")
    kinds = values.get("layer_types")
    if kinds is None:
        every = alternating or layers + 1
        kinds = ["full" if (n + 1) % every == 0 else "sliding_attention" for n in range(layers)]
    if len(kinds) != layers:
        raise WeightsError(f"{values.where}: {len(kinds)} layer_types for {layers} layers")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
