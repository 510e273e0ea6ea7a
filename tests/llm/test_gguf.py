"""GGUF: blocks equal the gguf package's bit for bit; whole models equal transformers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from luminal import LLM
from luminal.errors import Unsupported, WeightsError
from luminal.graph import Graph
from luminal.models.llm.gguf_source import KINDS, fields_of
from luminal.models.llm.gguf_splits import SPLITS
from luminal.models.llm.gguf_text import gguf_tokenizer
from luminal.models.llm.projection import Blocks
from luminal.models.llm.storage import FORMATS
from luminal.models.llm.text import load_tokenizer
from luminal.weights import GGUF

from .checkpoints import FAMILIES, make_model, save_tokenizer
from .gguf_files import check_logits, finish

gguf = pytest.importorskip("gguf")

HALVES = {  # where a block has its f16 numbers
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
    "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0],
    "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": [], "IQ1_S": [0], "IQ1_M": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
}  # fmt: skip


def blocks(kind: str, rows: int, count: int) -> np.ndarray:
    """Random raw rows with finite scales."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    random = np.random.default_rng(len(kind) + size)
    raw = random.integers(0, 256, (rows, count, size), dtype=np.uint8)
    for place in HALVES[kind]:
        halves = (random.standard_normal((rows, count, 1)) / 500).astype(np.float16)
        raw[..., place : place + 2] = halves.view(np.uint8)
    if kind == "NVFP4":
        raw[..., :4] &= 127  # scales have no sign
    if kind == "IQ1_M":
        raw[..., 55] = 31  # the high bits of the f16 scale, no infinity
    if kind == "MXFP4":
        raw[..., 0] = random.integers(116, 122, (rows, count))
    return raw.reshape(rows, -1)


def write(path: Path, architecture: str, fill: Callable[[object], None]) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    fill(writer)
    finish(writer)
    return path


@pytest.mark.parametrize("kind", HALVES)
def test_blocks_equal_the_package_bit_for_bit(kind: str, tmp_path: Path) -> None:
    code, raw = gguf.GGMLQuantizationType[kind], blocks(kind, 5, 4)
    file = write(tmp_path / "t.gguf", "llama", lambda w: w.add_tensor("t", raw, raw_dtype=code))
    expected = gguf.quants.dequantize(raw, code)
    got = GGUF(file)["t"].array()
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def test_blocks_that_the_package_has_no_values_of(tmp_path: Path) -> None:
    """A bit a weight, and those of activations, whose sums are not needed."""
    random, scales = np.random.default_rng(0), np.array([0.5, -3.0], np.float16)
    bits, wide = random.integers(0, 2, (2, 128)), random.integers(-127, 128, (2, 256))
    bits8, one, eight = np.packbits(bits, 1, "little"), scales[:, None], wide.astype(np.int8)
    raw = {
        "Q1_0": np.hstack([one.view(np.uint8), bits8]),
        "Q8_1": np.hstack([one.view(np.uint8), random.integers(0, 99, (2, 2), np.uint8),
                           eight[:, :32].view(np.uint8)]),
        "Q8_K": np.hstack([one.astype(np.float32).view(np.uint8), eight.view(np.uint8),
                           random.integers(0, 99, (2, 32), np.uint8)]),
    }  # fmt: skip
    expected = {"Q1_0": one * (2.0 * bits - 1), "Q8_1": one * wide[:, :32], "Q8_K": one * wide}

    def fill(writer: object) -> None:
        for name, rows in raw.items():
            code = gguf.GGMLQuantizationType[name]
            writer.add_tensor(name, rows, raw_dtype=code)  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:  # ggml's size; the package has an older one
        patch.setitem(gguf.GGML_QUANT_SIZES, gguf.GGMLQuantizationType.Q8_1, (32, 36))
        file = GGUF(write(tmp_path / "t.gguf", "llama", fill))
    for name, values in expected.items():
        np.testing.assert_array_equal(file[name].array(), values)
        stored, format = fields_of(raw[name], name), FORMATS[KINDS[name]]
        assert stored["scales"].size * format.block == values.size


def test_metadata_and_floats(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)

    def fill(writer: object) -> None:
        writer.add_uint32("a.number", 7)  # type: ignore[attr-defined]
        writer.add_string("a.text", "naïve")  # type: ignore[attr-defined]
        writer.add_array("a.texts", ["x", "yy"])  # type: ignore[attr-defined]
        writer.add_array("a.numbers", [1.5, 2.5])  # type: ignore[attr-defined]
        writer.add_tensor("wide", values)  # type: ignore[attr-defined]
        writer.add_tensor("half", values.astype(np.float16))  # type: ignore[attr-defined]

    file = GGUF(write(tmp_path / "t.gguf", "some", fill))
    with pytest.raises(WeightsError, match="no tokenizer"):
        gguf_tokenizer(file)
    assert file.metadata["a.number"] == 7 and file.metadata["a.text"] == "naïve"
    assert list(file.metadata["a.texts"]) == file.metadata["a.texts"][:] == ["x", "yy"]
    assert file.metadata["a.numbers"].tolist() == [1.5, 2.5]
    np.testing.assert_array_equal(file["wide"].array(), values)
    np.testing.assert_array_equal(file["half"].array(), values.astype(np.float16))


def test_damaged_files(tmp_path: Path) -> None:
    raw = blocks("Q8_0", 4, 4)
    code = gguf.GGMLQuantizationType.Q8_0
    file = write(tmp_path / "t.gguf", "some", lambda w: w.add_tensor("t", raw, raw_dtype=code))
    whole = file.read_bytes()
    for size in (0, 3, 10, 30, 60, len(whole) - 600, len(whole) - 200):
        file.write_bytes(whole[:size])
        with pytest.raises(WeightsError):
            GGUF(file)
    file.write_bytes(b"NOPE" + whole[4:])
    with pytest.raises(WeightsError, match="not a GGUF file"):
        GGUF(file)
    file.write_bytes(whole)
    with pytest.raises(Unsupported, match="unknown architecture 'some'"):
        LLM(file)


@pytest.mark.parametrize(
    "kind, value, message",
    [
        (9, struct.pack("<IQ", 8, 2**63), "a count of 9223372036854775808"),
        (9, struct.pack("<IQQ", 8, 1, 2**64 - 1), "truncated in a list of 1 texts"),
        (8, struct.pack("<Q", 2**63), "a count of 9223372036854775808"),
        (9, struct.pack("<IQ", 9, 1) * 10_000, "lists in lists"),
        (9, struct.pack("<IQ", 9, 2**28), "lists in lists"),
        (99, b"", "metadata of unknown type 99"),
    ],
)
def test_hostile_metadata(kind: int, value: bytes, message: str, tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    (tmp_path / "t.gguf").write_bytes(head + struct.pack("<I", kind) + value)
    with pytest.raises(WeightsError, match=message):
        GGUF(tmp_path / "t.gguf")


# ---- whole models

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "model.layers": "blk",
}  # fmt: skip
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 2}  # fmt: skip


def convert(model: torch.nn.Module, path: Path, kinds: Callable[[str], str]) -> None:
    """Write a model as its converter would; the model gets the weights that the file has."""
    config, llama = model.config, model.config.model_type == "llama"

    def fill(writer: object) -> None:
        add = writer.add_uint32  # type: ignore[attr-defined]
        prefix = config.model_type
        add(f"{prefix}.block_count", config.num_hidden_layers)
        add(f"{prefix}.embedding_length", config.hidden_size)
        add(f"{prefix}.feed_forward_length", config.intermediate_size)
        add(f"{prefix}.context_length", config.max_position_embeddings)
        add(f"{prefix}.attention.head_count", config.num_attention_heads)
        add(f"{prefix}.attention.head_count_kv", config.num_key_value_heads)
        writer.add_float32(f"{prefix}.attention.layer_norm_rms_epsilon", 1e-6)  # type: ignore
        writer.add_float32(f"{prefix}.rope.freq_base", 10000.0)  # type: ignore
        for name, parameter in model.named_parameters():
            values, kind = parameter.detach().numpy(), kinds(name)
            if parameter.ndim == 2:
                code = gguf.GGMLQuantizationType[kind]
                if kind in HALVES and kind not in ("Q8_0", "Q4_0"):  # the package cannot make these
                    raw = blocks(kind, len(values), 256 // gguf.GGML_QUANT_SIZES[code][0])
                else:
                    raw = gguf.quants.quantize(values, code)
                values = gguf.quants.dequantize(raw, code)
                if llama and ("q_proj" in name or "k_proj" in name):
                    heads = config.num_attention_heads
                    raw = permute(raw, heads if "q_proj" in name else config.num_key_value_heads)
                writer.add_tensor(rename(name), raw, raw_dtype=code)  # type: ignore
            else:
                writer.add_tensor(rename(name), values)  # type: ignore
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))

    write(path, config.model_type, fill)


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """The features of a rotary pair side by side."""
    split = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def rename(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("llama2", ["Q8_0"]),
        ("qwen2", ["Q4_0", "F16"]),
        ("llama2", ["Q4_K", "Q6_K", "Q5_0"]),
        ("llama2", ["Q5_K", "Q4_1", "Q5_1"]),
        ("llama2", ["Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4"]),
        ("qwen2", ["IQ2_XS", "IQ3_S", "NVFP4", "TQ1_0"]),
    ],
)
def test_models_equal_transformers(family: str, kinds: list[str], tmp_path: Path) -> None:
    """Blocks stay as they are in the file; activations are f32, so the bound is that of f32."""
    before = FAMILIES[family]
    FAMILIES[family] = (before[0], before[1] | WIDE)
    try:
        model = make_model(family)
    finally:
        FAMILIES[family] = before
    names = [name for name, p in model.named_parameters() if p.ndim == 2]
    chosen = {name: kinds[number % len(kinds)] for number, name in enumerate(names)}
    file = tmp_path / "model.gguf"
    convert(model, file, lambda name: chosen.get(name, ""))
    check_logits(file, model)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_scales_in_units(kind: str, tmp_path: Path) -> None:
    """They stay as narrow as in the file, the weights are exact, and sums are taken in integers,
    within the rounding of activations."""
    raw, code = blocks(kind, 24, 2), gguf.GGMLQuantizationType[kind]
    exact = gguf.quants.dequantize(raw, code)
    format = FORMATS[KINDS[kind]]
    x = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)

    def run(precision: str) -> tuple[np.ndarray, np.ndarray, str]:
        graph = Graph()
        a, index = graph.tensor(x.shape), graph.tensor((24,), "i64")
        matrix = Blocks(graph, 512, 24, False, format)
        for name, value in fields_of(raw, kind).items():
            getattr(matrix, name).set(value)
        assert sum(p.nbytes for p in fields_of(raw, kind).values()) < 24 * 512 * (
            format.bits / 8 + 2.6 / format.block
        )
        y, rows = matrix(a).output(), matrix.rows(index).output()
        rt = graph.compile(threads=1, precision=precision, database=False)
        rt[a], rt[index] = x, np.arange(24)
        rt.run()
        return np.array(rt[y]), np.array(rt[rows]), rt.explain()

    got, rows, plan = run("quantised")
    np.testing.assert_array_equal(rows, exact)
    assert "mul cast" in plan and ": i32" in plan
    steps = np.abs(x).reshape(3, -1, format.unit).max(-1).repeat(format.unit, -1) / 127
    bound = (steps / 2 + 2.0**-20 * np.abs(x)) @ np.abs(exact).T
    # what is taken from quants and added back by a minimum cancels: its rounding stays
    bound += 2.0**-20 * (np.abs(x).sum(-1, keepdims=True) * np.abs(exact).max())
    error = np.abs(got - x.astype(np.float64) @ exact.astype(np.float64).T)
    assert (error <= bound).all()
    assert error.max() > 10 * np.abs(run("f32")[0] - x @ exact.T).max()


# ---- tokenizers

SAMPLES = ["the quick brown fox", "naïve café 日本語 🙂", "  a\n\n b's 123", "x<|user|>y"]


def test_byte_level_tokenizer(tmp_path: Path) -> None:
    """The vocabulary and merges of a tokenizer.json, through a GGUF file, give the same tokens."""
    save_tokenizer(tmp_path)
    known = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = sorted(known["model"]["vocab"], key=lambda t: known["model"]["vocab"][t])
    special = {entry["content"] for entry in known["added_tokens"]}

    def fill(writer: object) -> None:
        writer.add_tokenizer_model("gpt2")  # type: ignore[attr-defined]
        writer.add_tokenizer_pre("gpt-2")  # type: ignore[attr-defined]
        writer.add_token_list(vocabulary)  # type: ignore[attr-defined]
        writer.add_token_types([3 if t in special else 1 for t in vocabulary])  # type: ignore
        merges = [" ".join(pair) for pair in known["model"]["merges"]]
        writer.add_token_merges(merges)  # type: ignore[attr-defined]
        writer.add_bos_token_id(1)  # type: ignore[attr-defined]
        writer.add_chat_template("{{ bos_token }}hi")  # type: ignore[attr-defined]

    got = gguf_tokenizer(GGUF(write(tmp_path / "t.gguf", "qwen2", fill)))
    expected = load_tokenizer(tmp_path)
    for text in SAMPLES:
        assert got.encode(text) == expected.encode(text)
        assert got.decode(got.encode(text), special=True) == text
    assert got.render([]) == "<s>hi"


@pytest.mark.parametrize("split, given, around", [
    ("llama-bpe", {}, (1, None)), ("tekken", {}, (1, None)), ("chameleon", {}, (1, None)),
    ("llama-bpe", {"bos": False}, (None, None)), ("gpt-2", {"eos": True}, (None, 2)),
    ("qwen2", {}, (None, None)), ("qwen2", {"bos": True, "eos": True}, (1, 2)),
])  # fmt: skip
def test_tokens_around_texts(
    split: str, given: dict[str, bool], around: tuple[int | None, int | None], tmp_path: Path
) -> None:
    """As llama.cpp: what a file does not say, the name of its pre-tokenizer does."""

    def fill(writer: object) -> None:
        writer.add_tokenizer_model("gpt2")  # type: ignore[attr-defined]
        writer.add_tokenizer_pre(split)  # type: ignore[attr-defined]
        writer.add_token_list(["a", "<s>", "</s>"])  # type: ignore[attr-defined]
        writer.add_bos_token_id(1)  # type: ignore[attr-defined]
        writer.add_eos_token_id(2)  # type: ignore[attr-defined]
        for name, value in given.items():
            writer.add_bool(f"tokenizer.ggml.add_{name}_token", value)  # type: ignore[attr-defined]

    got = gguf_tokenizer(GGUF(write(tmp_path / "t.gguf", "llama", fill)))
    begin, end = around
    assert got.encode("a") == [n for n in (begin, 0, end) if n is not None]


def test_words_alone(tmp_path: Path) -> None:
    """The pre-tokenizer "whitespace": what lies between spaces, these not being kept."""

    def fill(writer: object) -> None:
        writer.add_tokenizer_model("gpt2")  # type: ignore[attr-defined]
        writer.add_tokenizer_pre("whitespace")  # type: ignore[attr-defined]
        writer.add_token_list(["a", "b", "ab", "Ġ", "!"])  # type: ignore[attr-defined]
        writer.add_token_merges(["a b"])  # type: ignore[attr-defined]

    got = gguf_tokenizer(GGUF(write(tmp_path / "t.gguf", "qwen2", fill)))
    assert got.encode("ab! \n b a") == [2, 4, 1, 0]


def test_sentencepiece_tokenizer(tmp_path: Path) -> None:
    """Pairs merge in the order of their scores; what has no token goes byte by byte."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    words = ["▁", "t", "h", "e", "▁t", "he", "▁the", "q"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(words)]

    def fill(writer: object) -> None:
        writer.add_tokenizer_model("llama")  # type: ignore[attr-defined]
        writer.add_token_list(pieces + words)  # type: ignore[attr-defined]
        scores = [0.0] * len(pieces) + [-9.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0, -9.0]
        writer.add_token_scores(scores)  # type: ignore[attr-defined]
        writer.add_token_types(kinds)  # type: ignore[attr-defined]
        writer.add_bos_token_id(1)  # type: ignore[attr-defined]

    got = gguf_tokenizer(GGUF(write(tmp_path / "t.gguf", "llama", fill)))
    first = len(pieces)
    assert got.encode("the") == [1, first + 6]
    assert got.encode("qé") == [1, first, first + 7, 3 + 0xC3, 3 + 0xA9]
    for text in ("the the", "qé 日 ht"):
        assert got.decode(got.encode(text)) == text


CUTS = {  # what tells one way to cut from another
    "gpt-2": "Hello| World|'s| 12345| naïve|", "llama3": "Hello| World|'s| |123|45|",
    "qwen2": "Hello| World|'s| |1|2|3|4|5|", "gpt-4o": "Hello| World's| |123|45|",
    "tekken": "Hello| World|'s| |1|2|3|4|5|", "viking": "Hello| World's| |1|2|",
    "deepseek-v3": "Hello| World|'s| |123|45| naïve| |日本語|",
    "deepseek-llm": "Hello| World|'|s| |12345| na|ï|ve| |日本語|",
    "afmoe": "Hello| World|'s| |12|345|", "kimi-k2": "Hello| World's| |123|45| naïve| |日本語|",
    "ufakzeka": "Hello| World|'s| |1|2|", "falcon": "Hello| World|'|s| |123|45|",
}  # fmt: skip


@pytest.mark.parametrize("name", SPLITS)
def test_every_way_to_cut(name: str) -> None:
    """No character is lost, and kinds of characters are cut as each model's own tokenizer does."""
    from tokenizers import Regex, pre_tokenizers

    text = "Hello World's 12345 naïve 日本語 🙂  a\n\n b's  DON'T CamelCase\tz! (1,000) ไทย 가나 "
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[name]]
    pieces = [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]
    assert "".join(pieces) == text and len(pieces) > 3
    assert "|".join(pieces).startswith(CUTS.get(name, "Hello"))
    assert (" Camel" in pieces) == any(r"\p{Lu}" in pattern for pattern in SPLITS[name])
