"""The language parts of Gemma 3n and Gemma 4: layers that share keys and values, and have numbers
of each token for themselves; in Gemma 3n streams, sparse gates and residuals of low rank too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, Rope, Side, layer_windows, rope
from .family import Family, State, defaults, renamed, substituted
from .gemma import SANDWICH, check_causal, shared

SIDES = ("embed_tokens_per_layer.", "per_layer_model_projection.", "per_layer_projection_norm.")
MIXTURE = (  # what experts beside the feed-forward part have
    (r"\.router\.proj\.", ".mixture.experts.gate."), (r"\.router\.scale$", ".mixture.scale"),
    (r"\.router\.per_expert_scale$", ".mixture.experts.factors"),
    (r"(?<!mixture)\.experts\.", ".mixture.experts."),
    (r"\.post_feedforward_layernorm_1\.", ".mixture.plain."),
    (r"\.post_feedforward_layernorm_2\.", ".mixture.after."),
    (r"\.pre_feedforward_layernorm_2\.", ".mixture.before."),
)  # fmt: skip
STREAMS = ("altup_projections.", "altup_unembed_projections.")


def _sources(values: Fields, kinds: list[str]) -> tuple[int, ...]:
    """The last layers see what the last one of their kind before them keeps."""
    layers = len(kinds)
    first = layers - values.count("num_kv_shared_layers", 0, low=0)
    found = list(range(layers))
    for n in range(first, layers):
        same = [m for m in range(first) if kinds[m] == kinds[n]]
        if not same:
            raise values.wrong("num_kv_shared_layers", f"so that a layer before has {kinds[n]}")
        found[n] = same[-1]
    return tuple(found)


def _side(values: Fields) -> Side | None:
    width = values.count("hidden_size_per_layer_input", 256, low=0)
    rows = values.count("vocab_size_per_layer_input", 262144)
    return Side(width, rows) if width else None


def _common(values: Fields, every: int, **more: object) -> DecoderConfig:
    layers = values.count("num_hidden_layers")
    usual = ["sliding_attention"] * layers
    usual[every - 1 :: every] = ["full_attention"] * (layers // every)
    values = defaults(values, layer_types=usual, sliding_window=512)
    kinds = values.texts("layer_types", layers)
    return shared(
        values, norm="rms", block="both", qk_norm="head", value_norm=True, attention_scale=1.0,
        windows=layer_windows(values), sources=_sources(values, kinds),
        rotary=tuple("local" if kind == "sliding_attention" else "global" for kind in kinds),
        logit_cap=values.number_if("final_logit_softcapping", low=1e-6), **more,
    )  # fmt: skip


def _gemma3n(values: Fields) -> DecoderConfig:
    layers = values.count("num_hidden_layers")
    hiddens = [values.values.get("intermediate_size", 16384)] * layers
    if isinstance(hiddens[0], list):
        hiddens = values.counts("intermediate_size", layers)
    shares = [0.95] * (10 if layers > 10 else 0)
    shares += [0.0] * (layers - len(shares))
    if values.has("activation_sparsity_pattern"):
        shares = values.numbers("activation_sparsity_pattern", layers)
    if values.count("altup_active_idx", 0, low=0) or not values.flag("altup_correct_scale", True):
        raise Unsupported(f"{values.where}: another active stream than the first, or no scale")
    return _common(
        defaults(values, final_logit_softcapping=30.0), 5, ropes=_ropes(values),
        hidden=hiddens[0], hiddens=tuple(hiddens),
        sparsity=tuple(NormalDist().inv_cdf(share) if share > 0 else None for share in shares),
        laurel=values.count("laurel_rank", 64), streams=values.count("altup_num_inputs", 4),
        side=_side(values),
    )  # fmt: skip


def _ropes(values: Fields) -> dict[str, Rope]:
    if values.fields("rope_parameters").has("full_attention"):
        local, whole = rope(values, "sliding_attention"), rope(values, "full_attention")
        return {"local": local, "global": whole}
    local = Rope(values.number("rope_local_base_freq", 10000.0, low=1.5))
    return {"local": local, "global": Rope(values.number("rope_theta", 1e6, low=1.5))}


def _gemma4(values: Fields) -> DecoderConfig:
    """Layers without a window have wider heads, fewer of whose numbers turn."""
    check_causal(values)
    layers, hidden = values.count("num_hidden_layers"), values.count("intermediate_size")
    values = _with_global(values)
    wide = values.count("global_head_dim", 512)
    found = _common(
        values, 6, side=_side(values), hidden=hidden, ropes=_ropes4(values, wide),
        layer_scale=True, experts=_experts(values) if values.flag("enable_moe_block") else None,
    )
    narrow = (found.kv_heads, found.head_dim)
    same = values.flag("attention_k_eq_v")
    heads = values.count("num_global_key_value_heads", found.kv_heads) if same else found.kv_heads
    whole = frozenset(n for n in range(layers) if found.rotary[n] == "global")
    double = values.flag("use_double_wide_mlp")
    return replace(
        found, shapes=tuple((heads, wide) if n in whole else narrow for n in range(layers)),
        keys_as_values=whole if same else frozenset(),
        hiddens=tuple(hidden * (1 + (double and found.source(n) != n)) for n in range(layers)),
    )  # fmt: skip


def _experts(values: Fields) -> Experts:
    """Beside the feed-forward part of every layer."""
    return Experts(
        count=values.count("num_experts"), chosen=values.count("top_k_experts"),
        hidden=values.count("moe_intermediate_size"), beside=True,
    )  # fmt: skip


def _with_global(values: Fields) -> Fields:
    """Newer files tell the heads of layers without a window layer by layer."""
    several = values.fields("per_layer_config")
    for name in several.values:
        own = several.fields(name)
        values = defaults(
            values, global_head_dim=own.count_if("head_dim"),
            num_global_key_value_heads=own.count_if("num_key_value_heads"),
        )  # fmt: skip
    return values


def _ropes4(values: Fields, wide: int) -> dict[str, Rope]:
    given = values.fields("rope_parameters").fields("full_attention")
    share = given.number("partial_rotary_factor", 0.25, low=0, high=1)
    theta = given.number("rope_theta", 1e6, low=1.5)
    whole = Rope(theta, "proportional", {"turning": share}, width=wide)
    return {"local": rope(values, "sliding_attention"), "global": whole}


def _adapt(state: State, config: DecoderConfig) -> State:
    found: State = {}
    if config.experts is not None:
        state = _adapt_experts(substituted(state, MIXTURE), config.experts.hidden)
    lost = [f"model.layers.{n}.self_attn.{part}"
            for n in range(config.layers) if config.source(n) != n
            for part in ("k_proj.", "v_proj.", "k_norm.", "v_norm.")]  # fmt: skip
    for name, value in renamed(state, SANDWICH).items():
        name = name.replace("model.language_model.", "model.")
        if not name.startswith(("model.", "lm_head.")) or name.startswith(tuple(lost)):
            continue
        for inner, parts in (("sides", SIDES), ("streams", STREAMS)):
            if name.removeprefix("model.").startswith(parts):
                name = f"model.{inner}.{name.removeprefix('model.')}"
        if not name.startswith(("model.vision", "model.audio", "model.embed_vision",
                                "model.embed_audio")):  # fmt: skip
            found[name] = value
    return found


def _adapt_experts(state: State, hidden: int) -> State:
    """gate_up_proj (experts, 2 hidden, width) --> gate_proj and up_proj"""
    found: State = {}
    for name, value in state.items():
        at, _, part = name.partition(".experts.")
        if part == "gate_up_proj":
            found[f"{at}.experts.gate_proj.weight"] = value[:, :hidden]
            found[f"{at}.experts.up_proj.weight"] = value[:, hidden:]
        else:
            found[f"{name}.weight" if part == "down_proj" else name] = value
    return found


def _inner(read: Callable[[Fields], DecoderConfig]) -> Callable[[Fields], DecoderConfig]:
    """Of a model that also sees and hears."""
    return lambda values: read(Fields(dict(values.fields("text_config").values), values.where))


GEMMA3N_TEXT, GEMMA3N = (
    Family("gemma3n_text", _gemma3n, _adapt), Family("gemma3n", _inner(_gemma3n), _adapt)
)  # fmt: skip
GEMMA4_TEXT, GEMMA4 = (
    Family("gemma4_text", _gemma4, _adapt), Family("gemma4", _inner(_gemma4), _adapt)
)  # fmt: skip
