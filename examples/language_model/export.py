"""A trained decoder as a GGUF file of Llama's kind, its matrices in Q8_0."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers

from luminal.models.llm import Decoder

CONTROL, NORMAL = 3, 1  # kinds of tokens
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
WHOLE = {"embed_tokens": "token_embd", "norm": "output_norm"}


def write(
    path: Path, name: str, model: Decoder, value_of: Callable[..., np.ndarray],
    raw: tokenizers.Tokenizer, end: str,
) -> None:  # fmt: skip
    """value_of: the array of a parameter. end: the token before and behind each text."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_license("Apache-2.0 OR MIT")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    config = model.config
    describe(writer, config, config.context, config.eps, config.ropes["all"].theta)
    _add_tokenizer(writer, raw, end)
    for tensor, values in _tensors(model, value_of):
        if values.ndim == 1:
            writer.add_tensor(tensor, values)
        else:
            code = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor, gguf.quants.quantize(values, code), raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe(writer: gguf.GGUFWriter, shape: Any, context: int, eps: float, theta: float) -> None:
    """The metadata that a file of Llama's kind must have. shape: with the numbers of a
    `DecoderConfig` that are read here."""
    writer.add_context_length(context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(eps)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(theta)
    writer.add_vocab_size(shape.vocabulary)


def _add_tokenizer(writer: gguf.GGUFWriter, raw: tokenizers.Tokenizer, end: str) -> None:
    model = json.loads(raw.to_str())["model"]
    ordered = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(ordered)
    writer.add_token_types([CONTROL if token == end else NORMAL for token in ordered])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    for number in (writer.add_bos_token_id, writer.add_eos_token_id):
        number(model["vocab"][end])
    writer.add_add_bos_token(True)


def _tensors(
    model: Decoder, value_of: Callable[..., np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Under the file's names; the halves of a query's or key's features interleaved, as Llama's
    files have them."""
    heads = {"q_proj": model.config.heads, "k_proj": model.config.kv_heads}
    for name, parameter in model.named_parameters():
        values, pieces = np.array(value_of(parameter), np.float32), name.split(".")
        if pieces[-2] in heads:
            split = values.reshape(heads[pieces[-2]], 2, -1, values.shape[1])
            values = np.ascontiguousarray(split.swapaxes(1, 2)).reshape(values.shape)
        if pieces[1] == "layers":
            yield f"blk.{pieces[2]}.{NAMES['.'.join(pieces[3:-1])]}.weight", values
        else:
            yield f"{WHOLE[pieces[1]]}.weight", values
