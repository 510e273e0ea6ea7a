"""Encoders of texts as GGUF files: tensors of transformers' models under a converter's names; and
the models that transformers has not, from their published formulas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tests.llm.gguf_files import add_fields, finish
from torch.nn import functional as F

from .test_encoders import TEXTS, WORDS, made
from .test_encoders import given as inputs_of

RENAMES = (  # transformers -> gguf
    (r"^(bert|roberta|model)\.", ""), (r"^(encoder\.)?layers?\.(\d+)\.", r"blk.\2."),
    (r"^embeddings\.(word|tok)_embeddings|^embed_tokens", "token_embd"),
    (r"^embeddings\.token_type_embeddings", "token_types"),
    (r"^embeddings\.position_embeddings", "position_embd"),
    (r"^embeddings\.(LayerNorm|norm)", "token_embd_norm"), (r"^(final_)?norm\.", "output_norm."),
    (r"attention\.self\.(.)\w+", r"attn_\1"), (r"attention\.output\.dense", "attn_output"),
    (r"attention\.output\.LayerNorm", "attn_output_norm"), (r"intermediate\.dense", "ffn_up"),
    (r"(\d)\.output\.dense", r"\1.ffn_down"), (r"output\.LayerNorm", "layer_output_norm"),
    (r"self_attn\.([qkv])_proj", r"attn_\1"), (r"self_attn\.o_proj|attn\.Wo", "attn_output"),
    (r"attn\.Wqkv", "attn_qkv"), (r"attn_norm|input_layernorm", "attn_norm"),
    (r"mlp_norm", "ffn_norm"), (r"mlp\.(fc1|Wi|up_proj)", "ffn_up"),
    (r"mlp\.(fc2|Wo|down_proj)", "ffn_down"), (r"mlp\.gate_proj", "ffn_gate"),
    (r"post_mlp_layernorm", "layer_output_norm"),
    (r"^(pooler|classifier|head)\.dense", "cls"), (r"^head\.norm", "cls.norm"),
    (r"^classifier\.out_proj|^classifier\.(?=weight|bias)", "cls.output."),
)  # fmt: skip
FUSED = ("nomic-bert", "jina-bert-v3")


def tensors(model: Any, architecture: str) -> Iterator[tuple[str, np.ndarray]]:
    """(name in the file, values)."""
    after = "ffn_norm" if architecture == "eurobert" else "attn_output_norm"
    found = {}
    for name, parameter in model.named_parameters():
        for theirs, ours in (*RENAMES, ("post_attention_layernorm", after), (r"\.\.", ".")):
            name = re.sub(theirs, ours, name)
        found[name] = parameter.detach().numpy()
    if model.config.model_type == "xlm-roberta":  # the first place is that of a text
        found["position_embd.weight"] = found["position_embd.weight"][1:]
    for name in [n for n in found if ".attn_q." in n and architecture in FUSED]:
        parts = [found.pop(name.replace("attn_q", f"attn_{letter}")) for letter in "qkv"]
        found[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)
    yield from found.items()


def metadata(config: Any, pooling: int) -> dict[str, Any]:
    """As a converter writes it of a config of transformers."""
    ropes = getattr(config, "rope_parameters", None) or {}
    roberta = config.model_type == "xlm-roberta"
    names = ("layer_norm_eps", "norm_eps", "rms_norm_eps")
    eps = next(getattr(config, name) for name in names if hasattr(config, name))
    rms = "_rms" if config.model_type == "eurobert" else ""
    return {
        "block_count": config.num_hidden_layers, "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None),
        "context_length": config.max_position_embeddings - roberta, "pooling_type": pooling,
        f"attention.layer_norm{rms}_epsilon": float(eps), "attention.causal": False,
        "rope.freq_base": ropes.get("full_attention", ropes).get("rope_theta"),
        "rope.freq_base_swa": ropes.get("sliding_attention", {}).get("rope_theta"),
        "attention.sliding_window": getattr(config, "local_attention", None),
        "attention.sliding_window_pattern": 3 if hasattr(config, "local_attention") else None,
    }  # fmt: skip


SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
VOCABULARY = {
    "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": SPECIAL + [f"▁{word}" for word in WORDS],
    "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * len(WORDS),
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.seperator_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 3, "tokenizer.ggml.padding_token_id": 0,
}  # fmt: skip


def write(
    path: Path, architecture: str, given: Mapping[str, Any], named: Mapping[str, np.ndarray],
    vocabulary: Mapping[str, Any] = VOCABULARY,
) -> Path:  # fmt: skip
    """The file, in f32."""
    writer = gguf.GGUFWriter(path, architecture)
    add_fields(writer, {f"{architecture}.{name}": value for name, value in given.items()})
    add_fields(writer, vocabulary)
    for name, values in named.items():
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    finish(writer)
    return path


MODERN = {"local_attention": 6, "classifier_pooling": "cls"}
EMBEDDING: dict[str, tuple[str, dict[str, Any]]] = {  # architecture: transformers' name, settings
    "bert": ("Bert", {}),
    "nomic-bert": ("NomicBert", {}),
    "jina-bert-v3": ("JinaEmbeddingsV3", {}),
    "modern-bert": ("ModernBert", MODERN),
    "eurobert": ("EuroBert", {"num_key_value_heads": 2}),
}


def case(name: str, directory: Path) -> tuple[Path, np.ndarray]:
    """(a file of one of EMBEDDING or MORE, the vectors of TEXTS: means of their tokens)."""
    if name in MORE:
        made(directory, "BertConfig", "BertModel")  # its tokenizer
        architecture, fields = name.removesuffix("-packed"), OTHERS | MORE[name]
        model: Any = Published(name)
        named = {n: value.numpy() for n, value in model.w.items()}
    else:
        kind, more = EMBEDDING[name]
        model = made(directory, f"{kind}Config", f"{kind}Model", **more)
        architecture, fields = name, metadata(model.config, 1)
        named = {n: v for n, v in tensors(model, name) if not n.startswith("cls")}
    inputs = inputs_of(directory, TEXTS, False)
    with torch.no_grad():
        hidden = model(**inputs)
    hidden = getattr(hidden, "last_hidden_state", hidden)
    shares = inputs["attention_mask"].unsqueeze(-1)
    expected = ((hidden * shares).sum(1) / shares.sum(1)).numpy()
    return write(directory / "m.gguf", architecture, fields, named), expected


def t5_file(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(metadata, tensors) of a T5 of transformers; the package knows the names."""
    config = model.config
    layers = max(config.num_layers, config.num_decoder_layers)
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, layers)
    named = {str(known.get_name(name, try_suffixes=(".weight",))): parameter.detach().numpy()
             for name, parameter in model.named_parameters()}  # fmt: skip
    if not config.scale_decoder_outputs:  # Flan: a head of its own
        named["output.weight"] = model.lm_head.weight.detach().numpy()
    return {
        "context_length": 512, "embedding_length": config.d_model, "block_count": config.num_layers,
        "feed_forward_length": config.d_ff, "decoder_block_count": config.num_decoder_layers,
        "attention.head_count": config.num_heads, "attention.key_length": config.d_kv,
        "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        "attention.relative_buckets_count": config.relative_attention_num_buckets,
        "decoder_start_token_id": config.decoder_start_token_id,
    }, named  # fmt: skip


# ---- models that transformers has not: sizes, tensors by the file's names, hidden states

WIDTH, HIDDEN, HEADS, LAYERS, ROWS = 32, 48, 4, 3, 54
OTHERS = {
    "block_count": LAYERS, "embedding_length": WIDTH, "feed_forward_length": HIDDEN,
    "attention.head_count": HEADS, "context_length": 40, "pooling_type": 1,
    "attention.causal": False, "attention.layer_norm_epsilon": 1e-12,
    "attention.layer_norm_rms_epsilon": 1e-6,
}  # fmt: skip
MORE: Mapping[str, dict[str, Any]] = {
    "jina-bert-v2": {}, "jina-bert-v2-packed": {}, "neo-bert": {"rope.freq_base": 10000.0},
    "nomic-bert-moe": {"rope.freq_base": 10000.0, "moe_every_n_layers": 2, "expert_count": 4,
                       "expert_used_count": 2},
}  # fmt: skip


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Of all tensors."""
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (ROWS, WIDTH)}
    neo, jina, packed = name == "neo-bert", "jina" in name, name.endswith("packed")
    norms = ["enc.output_norm"] if neo else ["token_embd_norm"]
    if not neo:
        found["token_types.weight"] = (2 if jina else 1, WIDTH)
    for n in range(LAYERS):
        at, mixed = f"blk.{n}.", name == "nomic-bert-moe" and n % 2 == 1
        own = ("attn_norm", "ffn_norm") if neo else ("attn_output_norm", "layer_output_norm")
        norms += [at + norm for norm in own]
        matrices = {"attn_output": (WIDTH, WIDTH)}
        if jina:
            matrices |= {f"attn_{letter}": (WIDTH, WIDTH) for letter in "qkv"}
        else:
            matrices["attn_qkv"] = (3 * WIDTH, WIDTH)
        up = 2 * HIDDEN if neo or packed else HIDDEN
        if mixed:
            found |= {f"{at}ffn_gate_inp.weight": (4, WIDTH),
                      f"{at}ffn_up_exps.weight": (4, HIDDEN, WIDTH),
                      f"{at}ffn_down_exps.weight": (4, WIDTH, HIDDEN)}  # fmt: skip
        else:
            matrices |= {"ffn_up": (up, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
        if jina and not packed:
            matrices["ffn_gate"] = (HIDDEN, WIDTH)
        for part, shape in matrices.items():
            found[f"{at}{part}.weight"] = shape
            if not neo and not (jina and part in ("ffn_up", "ffn_gate")):
                found[f"{at}{part}.bias"] = shape[:1]
    for norm in norms:
        found |= {f"{norm}.{end}": (WIDTH,) for end in ("weight", "bias")[: 2 - neo]}
    return found


class Published:
    """Random weights; what the papers and the authors' code compute of them."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.name = name
        self.w = {n: 0.3 * torch.randn(shape) + (0.9 if n.endswith("norm.weight") else 0)
                  for n, shape in shapes(name).items()}  # fmt: skip

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        x, mask = self.w["token_embd.weight"][input_ids], attention_mask
        if self.name == "neo-bert":
            for n in range(LAYERS):
                x = x + self._attend(n, self._norm(f"blk.{n}.attn_norm", x), mask)
                x = x + self._wide(n, self._norm(f"blk.{n}.ffn_norm", x))
            return self._norm("enc.output_norm", x)
        x = self._norm("token_embd_norm", x + self.w["token_types.weight"][0])
        for n in range(LAYERS):
            x = self._norm(f"blk.{n}.attn_output_norm", x + self._attend(n, x, mask))
            x = self._norm(f"blk.{n}.layer_output_norm", x + self._wide(n, x))
        return x

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self.w[f"{name}.weight"]
        if self.name == "neo-bert":
            return F.rms_norm(x, (WIDTH,), weight, 1e-6)
        return F.layer_norm(x, (WIDTH,), weight, self.w[f"{name}.bias"], 1e-12)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def _attend(self, n: int, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """NeoBERT's packed rows are those of one head after the other."""
        at, size = f"blk.{n}.attn_", WIDTH // HEADS
        if f"{at}qkv.weight" not in self.w:
            parts = [self._linear(at + letter, x).unflatten(-1, (HEADS, size)) for letter in "qkv"]
        elif self.name == "neo-bert":
            parts = list(self._linear(f"{at}qkv", x).unflatten(-1, (HEADS, 3 * size)).chunk(3, -1))
        else:
            packed = self._linear(f"{at}qkv", x).chunk(3, -1)
            parts = [part.unflatten(-1, (HEADS, size)) for part in packed]
        places = torch.arange(x.shape[1])
        if "jina" not in self.name:
            speeds = 10000.0 ** -(torch.arange(0, size, 2) / size)
            parts[:2] = [self._turned(part, places[:, None] * speeds) for part in parts[:2]]
        q, k, v = (part.transpose(1, 2) for part in parts)
        scores = q @ k.mT / size**0.5
        if "jina" in self.name:  # a slope of 1/4, 1/16 ... for each of four heads
            far = (places[:, None] - places).abs()
            scores = scores - torch.tensor([0.25**h for h in range(1, 5)])[:, None, None] * far
        scores = scores.masked_fill(mask[:, None, None] == 0, -torch.inf)
        return self._linear(f"{at}output", (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def _turned(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """NeoBERT's pairs lie side by side, Nomic's half a head apart."""
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        side = self.name == "neo-bert"
        a, b = (x[..., ::2], x[..., 1::2]) if side else x.chunk(2, -1)
        parts = [a * cos - b * sin, b * cos + a * sin]
        return torch.stack(parts, -1).flatten(-2) if side else torch.cat(parts, -1)

    def _wide(self, n: int, x: torch.Tensor) -> torch.Tensor:
        at = f"blk.{n}.ffn_"
        if f"{at}gate_inp.weight" in self.w:  # two experts of four, by their shares of all
            shares, chosen = self._linear(f"{at}gate_inp", x).softmax(-1).topk(2, -1)
            up = F.gelu(torch.einsum("bskhw,bsw->bskh", self.w[f"{at}up_exps.weight"][chosen], x))
            down = self.w[f"{at}down_exps.weight"][chosen]
            return torch.einsum("bskwh,bskh,bsk->bsw", down, up, shares)
        up = self._linear(f"{at}up", x)
        if self.name == "nomic-bert-moe":
            return self._linear(f"{at}down", F.gelu(up))
        act = F.silu if self.name == "neo-bert" else F.gelu
        gate, up = (self._linear(f"{at}gate", x), up) if f"{at}gate.weight" in self.w else (
            up.chunk(2, -1))  # fmt: skip
        return self._linear(f"{at}down", act(gate) * up)
