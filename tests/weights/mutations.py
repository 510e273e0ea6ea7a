"""Small files of every kind that a model comes in, and ways to damage them."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DEEP = "[" * 100_000
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 0.5, 1e-300, 1e308, float("nan"), float("inf"),
    -float("inf"), 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**30, 10**400, "", "a",
    "a" * 3000, "\x00", "\ud800", "F32", "../../x", [], {}, [[]], [0], [None], [2**63, 0],
    {"a": {}}, ["a", "b"], {"rope_type": "yarn"}, {"rope_type": "linear", "factor": 0}, "gelu",
]  # fmt: skip
NUMBERS = [0, 1, 7, 255, 2**16, 2**28, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
WIDTH, ROWS = 32, 24  # of the models; tokens of their vocabularies

# ---- files as they should be


def weights(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """A safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        raw = np.full(shape, 0.01, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}  # fmt: skip
        data += raw
    return packed(json.dumps(header).encode(), data)


def packed(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


LLAMA = {
    "model_type": "llama", "vocab_size": ROWS, "hidden_size": WIDTH, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu", "eos_token_id": [2],
    "bos_token_id": 1, "tie_word_embeddings": True, "attention_bias": False,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {"sliding_window": 8}, "qwen3": {"use_sliding_window": True,
    "sliding_window": 8, "max_window_layers": 0}, "smollm3": {"no_rope_layers": [1]},
    "phi3": {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor":
    [2.0] * 4}, "original_max_position_embeddings": 32}, "gemma3_text": {"sliding_window": 8,
    "layer_types": ["sliding_attention"], "query_pre_attn_scalar": 8},
}  # fmt: skip
BERT = {
    "model_type": "bert", "vocab_size": ROWS, "hidden_size": WIDTH, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16,
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip
TOKENS = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqr", "▁", "ab", "cd"]
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": 1, "content": "<s>", "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": True}],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": False,
              "vocab": {token: n for n, token in enumerate(TOKENS)},
              "merges": [["a", "b"], ["c", "d"]]},
}  # fmt: skip
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "model_max_length": 16,
            "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}  # fmt: skip


def decoder(family: str) -> dict[str, bytes]:
    """The directory of a language model; its tensors are those that the config asks for."""
    from luminal.models.llm.families import FAMILIES as KNOWN
    from luminal.models.llm.shapes import shapes
    from luminal.weights.fields import Fields

    config = LLAMA | {"model_type": family} | FAMILIES[family]
    wanted = shapes(KNOWN[family].config(Fields(config, "")))
    if family.startswith("gemma"):
        theirs = {"attention_output_norm": "post_attention_layernorm", "mlp_output_norm":
                  "post_feedforward_layernorm",
                  "post_attention_layernorm": "pre_feedforward_layernorm"}  # fmt: skip
        wanted = {".".join(theirs.get(p, p) for p in n.split(".")): s for n, s in wanted.items()}
    index = {"metadata": {}, "weight_map": dict.fromkeys(wanted, "model.safetensors")}
    return _texts(config) | {
        "model.safetensors": weights(wanted), "generation_config.json": b'{"eos_token_id": [2, 3]}',
        "model.safetensors.index.json": json.dumps(index).encode(),
    }  # fmt: skip


def encoder() -> dict[str, bytes]:
    """The directory of a sentence model."""
    from luminal import Graph, nn
    from luminal.models import Bert, BertConfig

    names = {k: v for k, v in BERT.items() if k != "model_type"}
    with nn.uninitialised():
        model = Bert(Graph(), BertConfig(**names))
    shapes = {n: tuple(map(int, p.shape)) for n, p in model.named_parameters()}
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"},
               {"path": "1", "type": "sentence_transformers.models.Pooling"}]  # fmt: skip
    return _texts(BERT) | {
        "model.safetensors": weights(shapes), "modules.json": json.dumps(modules).encode(),
        "1/config.json": b'{"pooling_mode_cls_token": true, "include_prompt": true}',
        "sentence_bert_config.json": b'{"max_seq_length": 12, "do_lower_case": false}',
    }  # fmt: skip


def _texts(config: dict[str, Any]) -> dict[str, bytes]:
    named = {"config.json": config, "tokenizer.json": TOKENIZER, "tokenizer_config.json": SETTINGS}
    return {name: json.dumps(value).encode() for name, value in named.items()}


Entry = tuple[str, int, Any]  # key, type, value
FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
         11: "<q", 12: "<d"}  # fmt: skip


def gguf_entries(kind: str) -> list[Entry]:
    """Metadata of a small Llama with a tokenizer of this kind: "gpt2" or "llama"."""
    sizes = {"block_count": 1, "embedding_length": WIDTH, "feed_forward_length": 64,
             "context_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
             "attention.key_length": 8}  # fmt: skip
    return [
        ("general.architecture", 8, b"llama"), ("general.alignment", 4, 32),
        *((f"llama.{name}", 4, size) for name, size in sizes.items()),
        ("llama.rope.freq_base", 6, 1e4), ("llama.attention.layer_norm_rms_epsilon", 6, 1e-6),
        ("tokenizer.ggml.model", 8, kind.encode()),
        ("tokenizer.ggml.tokens", 9, (8, [token.encode() for token in TOKENS])),
        ("tokenizer.ggml.scores", 9, (6, [-float(n) for n in range(ROWS)])),
        ("tokenizer.ggml.token_type", 9, (5, [2, 3, 3] + [1] * (ROWS - 3))),
        ("tokenizer.ggml.merges", 9, (8, [b"a b", b"c d"])), ("tokenizer.ggml.bos_token_id", 4, 1),
        ("tokenizer.ggml.eos_token_id", 4, 2), ("tokenizer.ggml.add_bos_token", 7, True),
        ("tokenizer.chat_template", 8, b"{{ messages }}"), ("nested", 9, (9, [(4, [1]), (4, [2])])),
    ]  # fmt: skip


def gguf_tensors() -> dict[str, tuple[tuple[int, ...], int]]:
    """(shape, type) by name."""
    f32, q8 = 0, 8
    return {
        "token_embd.weight": ((ROWS, WIDTH), q8), "output_norm.weight": ((WIDTH,), f32),
        "blk.0.attn_norm.weight": ((WIDTH,), f32), "blk.0.ffn_norm.weight": ((WIDTH,), f32),
        "blk.0.attn_q.weight": ((32, WIDTH), q8), "blk.0.attn_k.weight": ((16, WIDTH), q8),
        "blk.0.attn_v.weight": ((16, WIDTH), f32), "blk.0.attn_output.weight": ((WIDTH, 32), q8),
        "blk.0.ffn_gate.weight": ((64, WIDTH), q8), "blk.0.ffn_up.weight": ((64, WIDTH), q8),
        "blk.0.ffn_down.weight": ((WIDTH, 64), q8),
    }  # fmt: skip


def gguf(entries: list[Entry], tensors: dict[str, tuple[tuple[int, ...], int]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, kind, value in entries:
        head += _text(key.encode()) + struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, (shape, kind) in tensors.items():
        head += _text(name.encode()) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        count = int(np.prod(shape))
        raw = np.full(count, 0.01, np.float32).tobytes() if kind == 0 else bytes(count // 32 * 34)
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def _text(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == 8:
        return _text(value)
    if kind == 9:
        inner, values = value
        made = b"".join(_value(inner, each) for each in values)
        return struct.pack("<IQ", inner, len(values)) + made
    return struct.pack(FORMS[kind], value)


# ---- damage


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """Some bytes otherwise: flipped, cut, doubled, or a hostile number in their place."""
    place = draw.randrange(min(len(raw), 4096) if draw.random() < 0.8 else len(raw))
    number = struct.pack("<Q", draw.choice(NUMBERS))
    return draw.choice([
        lambda: raw[:place], lambda: raw[:place] + raw[place + draw.randrange(1, 9) :],
        lambda: raw[:place] + bytes([raw[place] ^ (1 << draw.randrange(8))]) + raw[place + 1 :],
        lambda: raw[:place] + number + raw[place + 8 :],
        lambda: raw[:place] + number[:4] + raw[place + 4 :],
        lambda: raw[:place] + draw.randbytes(draw.randrange(1, 9)) + raw[place:],
        lambda: raw[:place] + raw[place // 2 : place] + raw[place:], lambda: raw + bytes(7),
    ])()  # fmt: skip


def damaged_json(raw: bytes, draw: random.Random) -> bytes:
    """A value of a JSON text otherwise, missing, moved, doubled or nested deeply."""
    value = json.loads(raw)
    places = list(_places(value))
    container, key = draw.choice(places)
    how = draw.randrange(6)
    if how == 0:
        del container[key]
    elif how == 1:
        container[key] = "DEEP"
        return json.dumps(value).encode().replace(b'"DEEP"', DEEP.encode())
    elif how == 2:
        other, name = draw.choice(places)
        container[key] = copy.deepcopy(other[name])
    elif how == 3:
        text, again = json.dumps(value), json.dumps(container)
        return text.replace(again, again[:-1] + ", " + again[1:], 1).encode()
    else:
        container[key] = draw.choice(HOSTILE)
    return json.dumps(value).encode()


def _places(value: Any) -> Any:
    """(container, key) of everything within."""
    keys = range(len(value)) if isinstance(value, list) else list(value)
    for key in keys:
        yield value, key
        if isinstance(value[key], (list, dict)) and value[key]:
            yield from _places(value[key])


def damaged_weights(raw: bytes, draw: random.Random) -> bytes:
    """The header of a safetensors file otherwise."""
    length = struct.unpack("<Q", raw[:8])[0]
    return packed(damaged_json(raw[8 : 8 + length], draw), raw[8 + length :])


def damaged_gguf(kind: str, draw: random.Random) -> bytes:
    """Metadata of other types and values, tensors of other shapes, types and names."""
    entries, tensors = gguf_entries(kind), gguf_tensors()
    if draw.random() < 0.7:
        place = draw.randrange(len(entries))
        key, _, _ = entries[place]
        entries[place] = draw.choice([
            (key, 9, (9, [(9, [(9, [(9, [(9, [(9, [])])])])])])), (key, 8, b"\xff\xfe"),
            (key, 8, b"x"), (key, 10, draw.choice(NUMBERS)), (key, 12, draw.choice(
                [float("nan"), float("inf"), -1.0, 0.0, 1e300])), (key, 7, True), (key, 11, -1),
            (key, 9, (8, [b"\xff", b"a"])), (key, 9, (4, [])), (key, 9, (6, [float("nan")] * ROWS)),
            (key, 9, (8, [b"a"] * ROWS)), (key, 9, (5, [3] * ROWS)), entries[0],
        ])  # fmt: skip
        if draw.random() < 0.2:
            del entries[place]
    else:
        name = draw.choice(list(tensors))
        shape, number = tensors.pop(name)
        other = draw.choice([(), (0,), (32,), (64, 32), (32, 64), shape[::-1], (1, *shape)])
        new = draw.choice(
            [name, "x", "blk.0", "blk.0.x.y", "blk.9999999.attn_q.weight", "blk.0.attn_qkv.weight"]
        )
        tensors[new] = draw.choice([(other, number), (shape, draw.choice([0, 8])), (shape, number)])
    return gguf(entries, tensors)


def damage(files: dict[str, bytes], draw: random.Random) -> tuple[str, bytes]:
    """(name, content) of one of the files, damaged."""
    name = draw.choice(list(files))
    raw, how = files[name], damaged
    if draw.random() < 0.75:
        how = damaged_weights if name.endswith(".safetensors") else damaged_json
    return name, how(raw, draw)


def write(directory: Path, files: dict[str, bytes]) -> None:
    for name, raw in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(raw)


Case = Callable[[Path, random.Random], None]
