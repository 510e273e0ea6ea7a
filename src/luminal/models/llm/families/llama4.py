"""Llama 4: chunks in most layers, no positions and hotter queries in the others; experts whose
inputs are scaled, beside one for all tokens."""

from __future__ import annotations

from ....weights.fields import Fields
from ..config import DecoderConfig, Experts, Heat, common
from .family import Family, State, interleaved


def _llama4(values: Fields) -> DecoderConfig:
    layers, every = values.count("num_hidden_layers"), values.count("no_rope_layer_interval", 4)
    turning = [bool((n + 1) % every) for n in range(layers)]
    if values.values.get("no_rope_layers"):
        turning = [bool(turns) for turns in values.counts("no_rope_layers", layers)]
    step = values.count("interleave_moe_layer_step", 1)
    mixed = values.counts_if("moe_layers")
    hidden, chunk = values.count("intermediate_size"), values.count_if("attention_chunk_size")
    still = frozenset(n for n in range(layers) if not turning[n])
    heat = Heat(
        values.number("attn_scale", 0.1), values.number("floor_scale", 8192, low=1), 1, still
    )
    return common(
        values, ropes=interleaved(values), rotary=tuple("all" if t else None for t in turning),
        windows=tuple(chunk if t else None for t in turning), chunked=True,
        heat=heat if values.flag("attn_temperature_tuning", True) else None,
        qk_norm="turned" if values.flag("use_qk_norm", True) else None, mlp_bias=False,
        hidden=values.count("intermediate_size_mlp", hidden),
        experts=Experts(
            values.count("num_local_experts", 16), values.count("num_experts_per_tok", 1), hidden,
            normalise=False, shared=hidden, scoring="sigmoid", scale_inputs=True,
            layers=frozenset(range(step - 1, layers, step) if mixed is None else mixed),
        ),
    )  # fmt: skip


def _inside(values: Fields) -> DecoderConfig:
    """The language part of the model that also sees images."""
    return _llama4(Fields(dict(values.fields("text_config").values), values.where))


def _adapt(state: State, config: DecoderConfig) -> State:
    """experts.gate_up_proj (experts, width, 2 hidden) --> gate_proj, up_proj (experts, hidden,
    width)"""
    found: State = {}
    for name, value in state.items():
        if name.startswith(("vision_model.", "multi_modal_projector.")):
            continue
        name = name.removeprefix("language_model.").replace(".feed_forward.", ".mlp.")
        found[name.replace(".mlp.router.", ".mlp.gate.")] = value
    for layer in range(config.layers):
        at = f"model.layers.{layer}.mlp."
        wide, down = (found.pop(f"{at}experts.{n}", None) for n in ("gate_up_proj", "down_proj"))
        if wide is not None and down is not None:
            half = wide.shape[-1] // 2
            found[f"{at}gate_proj.weight"] = wide[..., :half].swapaxes(1, 2)
            found[f"{at}up_proj.weight"] = wide[..., half:].swapaxes(1, 2)
            found[f"{at}down_proj.weight"] = down.swapaxes(1, 2)
    return found


LLAMA4_TEXT = Family("llama4_text", _llama4, _adapt)
LLAMA4 = Family("llama4", _inside, _adapt)
