"""gpt-oss (https://huggingface.co/openai/gpt-oss-20b): a mixture with biases and a cut gate, sinks,
windows in every other layer."""

from __future__ import annotations

from ....weights.fields import Fields
from ....weights.packed import Packed
from ..config import DecoderConfig, Experts, common, layer_windows
from .family import Family, State


def _config(values: Fields) -> DecoderConfig:
    bias = values.flag("attention_bias", True)
    experts = Experts(
        count=values.count("num_local_experts"),
        chosen=values.count("num_experts_per_tok"),
        hidden=values.count("intermediate_size"),
        bias=True,
        limit=values.number("swiglu_limit", 7.0, low=1e-6),
        alpha=values.number("swiglu_alpha", 1.702),
    )
    return common(
        values, windows=layer_windows(values, alternating=2), attention_bias=bias,
        output_bias=bias, sinks=True, experts=experts,
    )  # fmt: skip


def _adapt(state: State, config: DecoderConfig) -> State:
    """experts.gate_up_proj (experts, width, 2 hidden), gates and ups in turns --> gate_proj and
    up_proj (experts, hidden, width); in mxfp4 they lie that way round"""
    found: State = {}
    for name, value in state.items():
        name = name.replace(".mlp.router.", ".mlp.gate.")
        at, _, part = name.partition(".mlp.experts.")
        if part == "gate_up_proj" and value.ndim == 3:
            turned = value if isinstance(value, Packed) else value.swapaxes(1, 2)
            found[f"{at}.mlp.gate_proj.weight"] = turned[:, ::2]
            found[f"{at}.mlp.up_proj.weight"] = turned[:, 1::2]
        elif part == "gate_up_proj_bias" and value.ndim == 2:
            found[f"{at}.mlp.gate_bias"], found[f"{at}.mlp.up_bias"] = value[:, ::2], value[:, 1::2]
        elif part == "down_proj" and value.ndim == 3:
            turned = value if isinstance(value, Packed) else value.swapaxes(1, 2)
            found[f"{at}.mlp.down_proj.weight"] = turned
        else:
            found[f"{at}.mlp.down_bias" if part == "down_proj_bias" else name] = value
    return found


GPT_OSS = Family("gpt_oss", _config, _adapt)
