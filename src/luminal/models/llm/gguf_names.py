"""What is told of an architecture of GGUF files: its family, how it calls metadata and tensors.

What a converter writes is in gguf-py's constants and in llama.cpp's conversion; what a file leaves
out is in llama.cpp's own code for the architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...weights.fields import Fields
from ...weights.gguf import GGUF, GGUFTensor
from .config import DecoderConfig

Values = dict[str, Any]
More = Callable[[GGUF, Fields, Values], Values]  # (file, its metadata without prefix, found so far)
Change = Callable[[np.ndarray, DecoderConfig], np.ndarray]
Cut = Callable[[GGUFTensor, DecoderConfig], dict[str, GGUFTensor]]
FIELDS = {  # config.json's name -> the metadata's, after "<architecture>."
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
PARTS = {  # of blk.N.
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "attention_output_norm", "post_ffw_norm": "mlp_output_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.gate_proj", "ffn_up_exps": "mlp.up_proj",
    "ffn_down_exps": "mlp.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj", "shortconv.conv": "mixer.conv",
    "shortconv.in_proj": "mixer.in_proj", "shortconv.out_proj": "mixer.out_proj",
}  # fmt: skip
BARE = {  # of blk.N., whole names: ours end otherwise
    "attn_sinks.weight": "self_attn.sinks", "exp_probs_b.bias": "mlp.correction",
    "ffn_gate_exps.bias": "mlp.gate_bias", "ffn_up_exps.bias": "mlp.up_bias",
    "ffn_down_exps.bias": "mlp.down_bias",
}  # fmt: skip
OUTSIDE = {"token_embd": "model.embed_tokens", "position_embd": "model.embed_positions",
           "output_norm": "model.norm", "token_embd_norm": "model.norm",
           "output": "lm_head"}  # fmt: skip
CHANGES: dict[str, Change] = {  # the dimensions of 1 that files leave out
    "mlp.shared_expert_gate.weight": lambda x, config: x.reshape(1, -1),
    "mixer.conv.weight": lambda x, config: x.reshape(len(x), 1, -1),
}
SECTIONS = "rope.dimension_sections"  # pairs that turn with a time, a row, a column
BEFORE_MLP = {"post_attention_norm": "post_attention_layernorm"}

GRANITE = {
    "embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
    "shared_intermediate_size": "expert_shared_feed_forward_length",
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """family: of FAMILIES. fields, parts: beside FIELDS and PARTS. fixed: fields of which a file
    says nothing. second: parts of files with an `attn_norm_2`. turned: queries and keys have the
    features of a pair side by side where the family has the second half of a head after the first.
    more: what else follows from the file; its "model_type" is another family. outside, bare: beside
    OUTSIDE and BARE. cuts: tensors, without layer and ending, that are several of ours, under names
    below the layer. changes: what becomes of the numbers of ours, by the ends of names. lost: which
    of ours the model has not. upper: parts of the second of the two layers that one of the file is;
    none: it is one. normed: tokens have a norm of their own. woven: pairs that turn with a time, a
    row and a column stand in turns."""

    family: str
    fields: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    second: Mapping[str, str] = field(default_factory=dict)
    turned: bool = False
    more: More | None = None
    outside: Mapping[str, str] = field(default_factory=dict)
    bare: Mapping[str, str] = field(default_factory=dict)
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    lost: Callable[[str, DecoderConfig], bool] = lambda name, config: False
    upper: tuple[str, ...] = ()
    normed: bool = False
    woven: bool = False

    def fitting(self, file: GGUF) -> Architecture:
        """As it is in this file."""
        if "attn_norm_2.weight" not in partial_names(file):
            return self
        return replace(self, parts={**self.parts, **self.second})

    def values(self, file: GGUF, given: Fields) -> Values:
        """The fields of a config.json, and "model_type". given: metadata without the prefix."""
        found: Values = {"model_type": self.family, "norm_topk_prob": True}
        for ours, theirs in {**FIELDS, **self.fields}.items():
            if given.has(theirs):
                found[ours] = given.values[theirs]
        later = given.count("nextn_predict_layers", 0, low=0)  # layers that predict further tokens
        if later:
            found["num_hidden_layers"] = given.count("block_count", low=later + 1) - later
        has = partial_names(file)
        found |= {"attention_bias": "attn_q.bias" in has or "attn_qkv.bias" in has}
        found |= {"qk_layernorm": "attn_q_norm.weight" in has} | self._kinds(given)
        width = given.count_if("rope.dimension_count")
        if width is not None:
            usual = given.count("embedding_length") // given.count("attention.head_count")
            size = given.count("attention.key_length", max(1, usual))
            found |= {"partial_rotary_factor": width / size} if width < size else {}
        found |= self.fixed
        return found if self.more is None else found | self.more(file, given, found)

    def place(self, name: str) -> str:
        """What our names of a tensor begin with: blk.3.attn_q.weight --> model.layers.3."""
        if not name.startswith("blk."):
            return "model."
        _, layer, inner = (*name.split(".", 2), "")[:3]
        if self.upper and layer.isdecimal():
            layer = str(2 * int(layer) + inner.startswith(self.upper))
        return f"model.layers.{layer}."

    def change(self, name: str) -> Change | None:
        """Of one of our tensors."""
        known = {**CHANGES, **self.changes}
        return next((known[end] for end in known if name.endswith(f".{end}")), None)

    def sections(self, counts: Any) -> Values | None:
        """The scaling of positions with a time, a row and a column, if there are any."""
        if not isinstance(counts, np.ndarray):
            return None
        return {"rope_type": "default", "mrope_section": counts[:3].tolist(),
                "mrope_interleaved": self.woven}  # fmt: skip

    def _kinds(self, given: Fields) -> Values:
        """Which layers have a window."""
        name = "attention.sliding_window_pattern"
        if not isinstance(given.values.get(name), np.ndarray):  # a number: every so many-th
            return {}
        near = [bool(each) for each in given.values[name]]
        return {"layer_types": ["sliding_attention" if n else "full_attention" for n in near]}


def partial_names(file: GGUF) -> set[str]:
    """The names of tensors within layers: of any."""
    return {name.split(".", 2)[-1] for name in file if name.startswith("blk.")}
