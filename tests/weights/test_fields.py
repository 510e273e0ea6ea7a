"""What a configuration says is checked before anything is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mutations as m
import pytest

from luminal.errors import LuminalError, WeightsError
from luminal.models import SentenceEncoder
from luminal.models.llm.loading import load
from luminal.weights.fields import Fields

NAN, INF = float("nan"), float("inf")
WRONG: list[tuple[str, Any, str]] = [
    ("num_hidden_layers", 10**29, "a whole number from 1 to 4096"),
    ("num_hidden_layers", 300_000_000, "a whole number from 1 to 4096"),
    ("num_hidden_layers", 10**400, "a whole number from 1 to 4096"),
    ("hidden_size", INF, "a whole number"),
    ("hidden_size", "32", "a whole number"),
    ("hidden_size", True, "a whole number"),
    ("vocab_size", NAN, "a whole number"),
    ("vocab_size", 2.5, "a whole number"),
    ("vocab_size", None, "not nothing"),
    ("num_attention_heads", 0, "a whole number"),
    ("intermediate_size", [48], "a whole number"),
    ("hidden_act", ["gelu"], "hidden_act must be"),
    ("model_type", ["llama"], "model_type must be"),
]
LLAMA = [
    ("rms_norm_eps", NAN, "a number from 0 to 1, not nan"),
    ("rope_theta", INF, "a number of at least 1.5"),
    ("rope_scaling", {"rope_type": "llama3", "factor": 0}, "rope_scaling: factor must be"),
    ("rope_scaling", [1], "rope_scaling must be an object"),
    ("eos_token_id", [2, -1], "a list of whole numbers of at least 0"),
    ("tie_word_embeddings", "yes", "true or false"),
    ("num_hidden_layers", 2, "9 missing: model.layers.1"),
    ("vocab_size", 25, r"embed_tokens.weight: expected shape \(25, 32\), got \(24, 32\)"),
]
BERT = [
    ("layer_norm_eps", NAN, "a number from 0 to 1, not nan"),
    ("num_hidden_layers", 2, "the config has 2 layers, the file 1"),
    ("num_attention_heads", 5, "5 heads do not share 32 features"),
    ("max_position_embeddings", 17, r"expected shape \(17, 32\), got \(16, 32\)"),
]


def refused(path: Path, files: dict[str, bytes], field: str, value: Any) -> Any:
    config = json.loads(files["config.json"]) | {field: value}
    m.write(path, files | {"config.json": json.dumps(config).encode()})
    return pytest.raises(LuminalError)


@pytest.mark.parametrize("field, value, message", [*WRONG, *LLAMA])
def test_configs_of_language_models(field: str, value: Any, message: str, tmp_path: Path) -> None:
    with refused(tmp_path, m.decoder("llama"), field, value) as caught:
        load(tmp_path)
    caught.match(message)
    caught.match(str(tmp_path))


@pytest.mark.parametrize("field, value, message", [row for row in WRONG if row[1]] + BERT)
def test_configs_of_sentence_models(field: str, value: Any, message: str, tmp_path: Path) -> None:
    with refused(tmp_path, m.encoder(), field, value) as caught:
        SentenceEncoder(tmp_path, device="reference")
    caught.match(message)


GGUF: list[tuple[str, int, Any, str]] = [
    ("tokenizer.ggml.bos_token_id", 4, 24, "bos_token_id must be a whole number from 0 to 23"),
    ("tokenizer.ggml.tokens", 9, (8, [b"\xff"] * 24), "text 1 of a list is not UTF-8"),
    ("tokenizer.ggml.tokens", 9, (4, [1] * 24), "tokens must be a list of at most"),
    ("tokenizer.ggml.token_type", 9, (5, [1]), "token_type must be a list of 24 whole numbers"),
    ("tokenizer.ggml.merges", 9, (8, [b"ab"]), "merges must be pairs of tokens"),
    ("tokenizer.ggml.model", 4, 1, "model must be a text, not 1"),
    ("llama.block_count", 8, b"one", "num_hidden_layers must be a whole number"),
    ("llama.block_count", 10, 2**63, "num_hidden_layers must be a whole number from 1 to 4096"),
    ("llama.block_count", 4, 2, "9 missing: model.layers.1"),
    ("llama.rope.freq_base", 6, NAN, "rope_theta must be a number"),
    ("general.alignment", 4, 0, "general.alignment must be a whole number"),
    ("general.architecture", 9, (4, []), "general.architecture must be a text"),
]


@pytest.mark.parametrize("key, kind, value, message", GGUF)
def test_metadata_of_gguf_files(
    key: str, kind: int, value: Any, message: str, tmp_path: Path
) -> None:
    entries = [e if e[0] != key else (key, kind, value) for e in m.gguf_entries("gpt2")]
    file = tmp_path / "m.gguf"
    file.write_bytes(m.gguf(entries, m.gguf_tensors()))
    with pytest.raises(LuminalError, match=message) as caught:
        found = load(file)
        assert isinstance(found.text, LuminalError)  # a model is of use without a tokenizer
        raise found.text
    caught.match(str(file))


def test_tensors_that_overlap_in_a_gguf_file(tmp_path: Path) -> None:
    raw = m.gguf(m.gguf_entries("gpt2"), m.gguf_tensors())
    place = raw.index(b"blk.0.ffn_down.weight") + len(b"blk.0.ffn_down.weight") + 4 + 16 + 4
    (tmp_path / "m.gguf").write_bytes(raw[:place] + bytes(8) + raw[place + 8 :])
    with pytest.raises(WeightsError, match=r"tensors .* and .* overlap"):
        load(tmp_path / "m.gguf")


def test_fields() -> None:
    given = Fields({"a": 2.0, "b": None, "c": {"d": [1, 2]}, "e": "x"}, "file")
    assert given.count("a") == 2 and given.number("b", 0.5) == 0.5 and not given.has("b")
    assert given.fields("c").counts("d", 2) == [1, 2] and given.fields("b").values == {}
    assert given.count_if("b") is None and given.text("e", among=("x", "y")) == "x"
    with pytest.raises(WeightsError, match="file: c: d must be a list of 3 numbers, not"):
        given.fields("c").numbers("d", 3)
    with pytest.raises(WeightsError, match="file: e must be one of y, not 'x'"):
        given.text("e", among=("y",))
