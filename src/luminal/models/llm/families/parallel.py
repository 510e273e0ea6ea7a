"""Layer norms, and layers whose feed-forward part works beside attention: Phi 1 to 2, Cohere's
Command R, Falcon, GPT-NeoX (Pythia), StableLM; StarCoder 2, one part after the other."""

from __future__ import annotations

from typing import Any

from ....errors import Unsupported
from ....weights.fields import Fields
from ....weights.packed import stacked
from ..config import DecoderConfig, common, layer_windows
from .family import Family, State, defaults, interleaved, renamed, split_groups

DENSE = {"dense": "o_proj", "dense_h_to_4h": "up_proj", "dense_4h_to_h": "down_proj"}
QK_PARTS = {"q_layernorm": "q_norm", "k_layernorm": "k_norm"}
PHI_PARTS = QK_PARTS | {
    "dense": "o_proj", "fc1": "up_proj", "fc2": "down_proj", "final_layernorm": "norm",
}  # fmt: skip
NEOX_PARTS = DENSE | {
    "gpt_neox": "model", "embed_in": "embed_tokens", "embed_out": "lm_head",
    "final_layer_norm": "norm", "attention": "self_attn",
}  # fmt: skip
FALCON_PARTS = DENSE | {
    "transformer": "model", "word_embeddings": "embed_tokens", "h": "layers", "ln_f": "norm",
    "self_attention": "self_attn", "ln_attn": "input_layernorm",
    "ln_mlp": "post_attention_layernorm",
}  # fmt: skip


def _layer_norms(values: Fields, **more: Any) -> DecoderConfig:
    eps = values.number("layer_norm_eps", 1e-5, low=0, high=1)
    return common(values, **{"norm": "layer", "eps": eps} | more)


def _refuse(values: Fields, *flags: str) -> None:
    for name in flags:
        if values.flag(name):
            raise Unsupported(f"{values.where}: {name} in a {values.text('model_type')} model")


def _phi(values: Fields) -> DecoderConfig:
    values = defaults(values, partial_rotary_factor=0.5, hidden_act="gelu_new")
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias", "head_bias"), True)
    normed = "head" if values.flag("qk_layernorm") else None
    return _layer_norms(values, block="parallel", gated=False, qk_norm=normed, **biases)


def _cohere(values: Fields, **more: Any) -> DecoderConfig:
    return _layer_norms(
        values,
        norm="scale",
        qk_norm="heads" if values.flag("use_qk_norm") else None,
        block="parallel",
        ropes=interleaved(values),
        logit_scale=values.number("logit_scale", 0.0625),
        tied=values.flag("tie_word_embeddings", True),
        **more,
    )


def _cohere2(values: Fields) -> DecoderConfig:
    """Three layers with a window and rotary positions, then one with neither."""
    windows = layer_windows(values, alternating=values.count("sliding_window_pattern", 4))
    turning = tuple(None if window is None else "all" for window in windows)
    return _cohere(values, windows=windows, rotary=turning)


def _stablelm(values: Fields) -> DecoderConfig:
    values = defaults(values, partial_rotary_factor=0.25)
    return _layer_norms(
        values,
        qk_norm="heads" if values.flag("qk_layernorm") else None,
        attention_bias=values.flag("use_qkv_bias"),
        output_bias=False,
        block="parallel" if values.flag("use_parallel_residual") else "input",
    )


def _starcoder2(values: Fields) -> DecoderConfig:
    bias, layers = values.flag("use_bias", True), values.count("num_hidden_layers")
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), bias)
    return _layer_norms(
        defaults(values, hidden_act="gelu_pytorch_tanh"),
        eps=values.number("norm_epsilon", 1e-5, low=0, high=1),
        gated=False,
        windows=(values.count_if("sliding_window"),) * layers,
        tied=values.flag("tie_word_embeddings", True),
        **biases,
    )


def _neox(values: Fields) -> DecoderConfig:
    older = {"partial_rotary_factor": values.number("rotary_pct", 0.25, low=0, high=1),
             "rope_theta": values.number("rotary_emb_base", 10000.0, low=1.5)}  # fmt: skip
    values = defaults(values, hidden_act="gelu", **older)
    biases = dict.fromkeys(("attention_bias", "output_bias"), values.flag("attention_bias", True))
    block = "parallel2" if values.flag("use_parallel_residual", True) else "input"
    heads = values.count("num_attention_heads")
    return _layer_norms(
        values, block=block, kv_heads=heads, gated=False, mlp_bias=True, **biases
    )


def _falcon(values: Fields) -> DecoderConfig:
    _refuse(values, "alibi")
    heads, new = values.count("num_attention_heads"), values.flag("new_decoder_architecture")
    kv_heads = values.count("num_kv_heads", heads)
    if not new and values.flag("multi_query", True):
        kv_heads = 1
    width = 4 * values.count("hidden_size")
    values = defaults(
        values, hidden_act=values.text("activation", "gelu"),
        intermediate_size=values.count("ffn_hidden_size", width),
    )  # fmt: skip
    block = "parallel" if values.flag("parallel_attn", True) else "input"
    if new and values.count("num_ln_in_parallel_attn", 2) == 2:
        block = "parallel2"
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), values.flag("bias"))
    return _layer_norms(
        values,
        eps=values.number("layer_norm_epsilon", 1e-5, low=0, high=1),
        kv_heads=kv_heads,
        block=block,
        gated=False,
        tied=values.flag("tie_word_embeddings", True),
        **biases,
    )


def _adapt_phi(state: State, config: DecoderConfig) -> State:
    return renamed(state, PHI_PARTS)


def _adapt_stablelm(state: State, config: DecoderConfig) -> State:
    """Norms of single heads, stacked."""
    state = renamed(state, QK_PARTS)
    for layer in range(config.layers if config.qk_norm else 0):
        for part, count in (("q_norm", config.heads), ("k_norm", config.kv_heads)):
            at = f"model.layers.{layer}.self_attn.{part}"
            found = [state.pop(f"{at}.norms.{n}.weight", None) for n in range(count)]
            pieces = [piece for piece in found if piece is not None]
            if len(pieces) == count:
                state[f"{at}.weight"] = stacked(pieces)
    return state


def _adapt_starcoder2(state: State, config: DecoderConfig) -> State:
    return renamed(state, {"c_fc": "up_proj", "c_proj": "down_proj"})


def _adapt_neox(state: State, config: DecoderConfig) -> State:
    masks = (".self_attn.bias", ".self_attn.masked_bias")  # old checkpoints store causal masks
    return _grouped(renamed(state, NEOX_PARTS), config, masks)


def _adapt_falcon(state: State, config: DecoderConfig) -> State:
    return _grouped(renamed(state, FALCON_PARTS), config)


def _grouped(state: State, config: DecoderConfig, gone: tuple[str, ...] = ("-",)) -> State:
    state = {name: value for name, value in state.items() if not name.endswith(gone)}
    for name in [name for name in state if ".query_key_value." in name]:
        split_groups(state, name, "query_key_value", config)
    return state


PHI = Family("phi", _phi, _adapt_phi)
COHERE = Family("cohere", _cohere)
COHERE2 = Family("cohere2", _cohere2)
STABLELM = Family("stablelm", _stablelm, _adapt_stablelm)
STARCODER2 = Family("starcoder2", _starcoder2, _adapt_starcoder2)
GPT_NEOX = Family("gpt_neox", _neox, _adapt_neox)
FALCON = Family("falcon", _falcon, _adapt_falcon)
