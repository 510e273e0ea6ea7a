"""Gemma 1, 2 and 3: scaled embeddings, norms stored minus one; from 2 on sandwich norms and windows
in most layers, soft caps (2), norms of queries and keys (3)."""

from __future__ import annotations

import math
from typing import Any

from ....errors import Unsupported
from ....weights.fields import Fields
from ..config import DecoderConfig, Rope, common, layer_windows, rope
from .family import Family, State, renamed

# "Post attention" is what follows attention for Gemma, what precedes the MLP for Llama.
SANDWICH = {
    "post_attention_layernorm": "attention_output_norm",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "mlp_output_norm",
}


def check_causal(values: Fields) -> None:
    """Raises Unsupported for an encoder (EmbeddingGemma), whose tokens see those that come later.
    Gemma 4's "vision" is about pictures alone."""
    if values.values.get("use_bidirectional_attention") in (True, "all"):
        raise Unsupported(f"{values.where}: use_bidirectional_attention: an encoder, whose tokens "
                          "see later ones too; decoders alone are read")  # fmt: skip


def shared(values: Fields, **more: Any) -> DecoderConfig:
    kind = values.text("hidden_activation", "gelu_pytorch_tanh")
    settings = {
        "norm": "rms1",
        "activation": kind,
        "embedding_scale": math.sqrt(values.count("hidden_size")),
        "tied": values.flag("tie_word_embeddings", True),
        "head_dim": values.count("head_dim", 256),
    }
    return common(values, **settings | more)


def _gemma2(values: Fields) -> DecoderConfig:
    return shared(
        values,
        block="both",
        windows=layer_windows(values, alternating=2),
        attention_scale=values.number("query_pre_attn_scalar", 256, low=1e-6) ** -0.5,
        attention_cap=values.number_if("attn_logit_softcapping", low=1e-6),
        logit_cap=values.number_if("final_logit_softcapping", low=1e-6),
    )


def _gemma3(values: Fields) -> DecoderConfig:
    check_causal(values)
    windows = layer_windows(values, alternating=values.count("sliding_window_pattern", 6))
    return shared(
        values,
        block="both",
        qk_norm="head",
        windows=windows,
        rotary=tuple("global" if window is None else "local" for window in windows),
        ropes=_two_ropes(values),
        attention_scale=values.number("query_pre_attn_scalar", 256, low=1e-6) ** -0.5,
        logit_cap=values.number_if("final_logit_softcapping", low=1e-6),
    )


def _two_ropes(values: Fields) -> dict[str, Rope]:
    """Layers with a window turn with a base of their own."""
    if values.fields("rope_parameters").has("full_attention"):
        local, whole = rope(values, "sliding_attention"), rope(values, "full_attention")
        return {"local": local, "global": whole}
    local = Rope(values.number("rope_local_base_freq", 10000.0, low=1.5))
    return {"local": local, "global": rope(values)}


def _sandwich(state: State, config: DecoderConfig) -> State:
    return renamed(state, SANDWICH)


GEMMA = Family("gemma", shared)
GEMMA2 = Family("gemma2", _gemma2, _sandwich)
GEMMA3_TEXT = Family("gemma3_text", _gemma3, _sandwich)
