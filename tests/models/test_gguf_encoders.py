"""Encoders of texts from GGUF files, end to end: against transformers, or published formulas."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

from luminal.cli import main
from luminal.errors import Unsupported
from luminal.models import T5, Reranker, SentenceEncoder
from luminal.models.kinds import is_t5
from luminal.models.llm.gguf_text import raw_tokenizer
from luminal.models.sentence import default_directory
from luminal.weights import GGUF, Safetensors

from .gguf_encoders import (
    EMBEDDING,
    MODERN,
    MORE,
    OTHERS,
    Published,
    case,
    metadata,
    t5_file,
    tensors,
    write,
)
from .test_encoders import TEXTS, given, made
from .test_seq2seq import tiny

pytest.importorskip("gguf")
BERT = "BertForSequenceClassification"


@pytest.mark.parametrize("name", [*EMBEDDING, *MORE])
def test_vectors(name: str, tmp_path: Path) -> None:
    file, expected = case(name, tmp_path)
    found = SentenceEncoder(file, threads=1).encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("architecture", "kind", "more"),
    [
        ("bert", "Bert", {}), ("bert", "XLMRoberta", {"type_vocab_size": 1}),
        ("modern-bert", "ModernBert", MODERN),
    ],
)  # fmt: skip
def test_scores_are_those_of_transformers(
    architecture: str, kind: str, more: dict[str, Any], tmp_path: Path
) -> None:
    model = made(tmp_path, f"{kind}Config", f"{kind}ForSequenceClassification", **more)
    named = dict(tensors(model, architecture))
    file = write(tmp_path / "m.gguf", architecture, metadata(model.config, 4), named)
    pairs = [(TEXTS[1], text) for text in TEXTS]
    with torch.no_grad():
        expected = model(**given(tmp_path, pairs, kind == "Bert")).logits[:, 0]
    found = Reranker(file, threads=1).score(TEXTS[1], TEXTS)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_the_packaged_model_as_a_file(tmp_path: Path) -> None:
    """Its real words and weights, through the command line."""
    directory = default_directory()
    weights = {name: np.asarray(value) for name, value in Safetensors(directory).items()}
    config = transformers.BertConfig.from_json_file(directory / "config.json")
    model = SimpleNamespace(config=config, named_parameters=lambda: [
        (n, torch.from_numpy(v)) for n, v in weights.items() if n[:6] not in ("pooler", "embedd")
        or (n.startswith("embeddings.") and "ids" not in n)])  # fmt: skip
    words = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    texts = sorted(words, key=lambda word: words[word])
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.unknown_token_id": words["[UNK]"],
        "tokenizer.ggml.tokens": [t if t in special else t[2:] if t.startswith("##") else f"▁{t}"
                                  for t in texts],
        "tokenizer.ggml.token_type": [3 if t in special else 1 for t in texts],
        "tokenizer.ggml.cls_token_id": words["[CLS]"],
        "tokenizer.ggml.seperator_token_id": words["[SEP]"],
    }  # fmt: skip
    named = {n: v for n, v in tensors(model, "bert") if not n.startswith("cls")}
    file = write(tmp_path / "m.gguf", "bert", metadata(config, 1), named, vocabulary)
    said = ["The weather is lovely today.", "Ångström naïve 日本 unaffable!", "lower UPPER ##x"]
    made = CliRunner().invoke(main, ["embed", "--model", str(file), "--json", *said])
    assert made.exit_code == 0, made.output
    expected = SentenceEncoder().encode(said, normalise=True)
    np.testing.assert_allclose(json.loads(made.output)["embeddings"], expected, atol=1e-5)


def test_scores_on_the_command_line(tmp_path: Path) -> None:
    model = made(tmp_path, "BertConfig", BERT)
    named = dict(tensors(model, "bert"))
    file = write(tmp_path / "m.gguf", "bert", metadata(model.config, 4), named)
    found = CliRunner().invoke(main, ["rerank", str(file), TEXTS[1], *TEXTS, "--json"])
    scores = Reranker(file).score(TEXTS[1], TEXTS)  # with as many threads: sums are split alike
    rows = json.loads(found.output)
    assert [row["index"] for row in rows] == np.argsort(-scores).tolist()
    assert [row["score"] for row in rows] == sorted(scores.tolist())[::-1]


UNIGRAM = {
    "tokenizer.ggml.model": "t5", "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": ["<s>", "<pad>", "</s>", "<unk>", "▁the", "▁", "t", "he", "▁he"],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -2.0, -3.0, -4.0, -3.0, -2.5],
    "tokenizer.ggml.token_type": [3, 3, 3, 2, 1, 1, 1, 1, 1], "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 3,
    "tokenizer.ggml.remove_extra_whitespaces": True,
}  # fmt: skip
PAIRS = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "modern-bert",
    "tokenizer.ggml.tokens": ["[CLS]", "[SEP]", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1], "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
}  # fmt: skip


def test_tokens_around_texts_and_pairs(tmp_path: Path) -> None:
    """XLM-RoBERTa's unigrams, ModernBERT's bytes; a T5 has an end token only."""
    file = write(tmp_path / "u.gguf", "bert", {}, {}, UNIGRAM)
    raw = raw_tokenizer(GGUF(file), encoder=True)
    assert raw.encode(" the  hex ").ids == [0, 4, 8, 3, 2]
    assert raw.encode("the", "he").ids == [0, 4, 2, 2, 8, 2]
    assert raw_tokenizer(GGUF(file)).encode("the").ids == [4, 2]
    raw = raw_tokenizer(GGUF(write(tmp_path / "b.gguf", "bert", {}, {}, PAIRS)), encoder=True)
    assert raw.encode("ab", "b").ids == [0, 4, 1, 3, 1]
    assert raw.encode("ab", "b").type_ids == [0, 0, 0, 1, 1]


FAR = {"relative_attention_max_distance": 128}  # of all T5s: files do not say it


@pytest.mark.parametrize("gated", [True, False], ids=["flan", "first"])
def test_a_t5(gated: bool, tmp_path: Path) -> None:
    """Tokens after a text, its words, and vectors of its encoder alone."""
    more = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if gated else {}
    model = tiny(tmp_path, more | {"num_decoder_layers": 3, **FAR})
    given, named = t5_file(model)
    words = [f"▁w{n}" for n in range(78)] + ["</s>", "<unk>"]
    vocabulary = {
        "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.scores": [-1.0] * 80, "tokenizer.ggml.token_type": [1] * 78 + [3, 2],
        "tokenizer.ggml.eos_token_id": 78, "tokenizer.ggml.unknown_token_id": 79,
    }  # fmt: skip
    file = write(tmp_path / "m.gguf", "t5", given, named, vocabulary)
    t5, ids = T5(file, context=64, threads=1), [5, 9, 2, 78]
    assert t5.encode("w5 w9 w2") == ids and t5.ends == (78,) and t5.decode([5, 9]) == "w5 w9"
    made = np.random.default_rng(0).integers(2, 80, 30).tolist()
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), decoder_input_ids=torch.tensor([[0, *made]])).logits
        hidden = model.encoder(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()
    bound = 1e-4 * float(wanted.abs().max())
    np.testing.assert_allclose(t5.logits(ids, made), wanted[0].numpy(), atol=bound, rtol=0)
    assert is_t5(file)
    encoder = {n: v for n, v in named.items() if not n.startswith(("dec.", "output."))}
    file = write(tmp_path / "e.gguf", "t5encoder", given, encoder, vocabulary)
    found = SentenceEncoder(file, threads=1).encode(["w1 w2 w3 w4 w5 w6", "w5 w9 w2"])
    np.testing.assert_allclose(found[1], hidden, rtol=1e-4, atol=1e-5)


def test_files_that_are_no_encoders(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", "llama", {"block_count": 1}, {"token_embd.weight": np.eye(4)})
    with pytest.raises(Unsupported, match="'llama' is no encoder of texts"):
        SentenceEncoder(file)
    given = OTHERS | {"pooling_type": 0}
    model = {n: value.numpy() for n, value in Published("jina-bert-v2").w.items()}
    with pytest.raises(Unsupported, match="pooling 0"):
        SentenceEncoder(write(tmp_path / "n.gguf", "jina-bert-v2", given, model))
