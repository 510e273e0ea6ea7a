"""Encoders and their heads against transformers, on tiny random weights and padded texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from luminal.errors import Unsupported, WeightsError
from luminal.models import MultiVectorEncoder, Reranker, SentenceEncoder, SparseEncoder
from luminal.models.ranking import max_similarity

SIZES: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 40, "num_labels": 1, "pad_token_id": 0,
}  # fmt: skip
WORDS = [f"w{n}" for n in range(50)]
TEXTS = ["w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13", "w3 w9", "w20 w21 w22 w30 w31"]


def made(directory: Path, config: str, model: str, **more: Any) -> Any:
    """A model of transformers with its files, and a tokenizer that knows pairs."""
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**(SIZES | more), attn_implementation="eager")
    found = getattr(transformers, model)(settings).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    found.save_pretrained(directory)
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    words = {word: n for n, word in enumerate(special + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )  # fmt: skip
    tokenizer.save(str(directory / "tokenizer.json"))
    return found


def given(directory: Path, texts: list[Any], kinds: bool) -> dict[str, torch.Tensor]:
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(texts)
    names = {"input_ids": "ids", "attention_mask": "attention_mask"}
    names |= {"token_type_ids": "type_ids"} if kinds else {}
    return {name: torch.tensor([getattr(row, own) for row in rows]) for name, own in names.items()}


def test_a_classifier_is_no_reranker(tmp_path: Path) -> None:
    made(tmp_path, "BertConfig", "BertForSequenceClassification", num_labels=3)
    with pytest.raises(Unsupported, match="3 labels, not of one"):
        Reranker(tmp_path, device="reference")


@pytest.mark.parametrize(
    ("config", "model", "more"),
    [
        ("BertConfig", "BertForSequenceClassification", {}),
        ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", {"type_vocab_size": 1}),
        ("ModernBertConfig", "ModernBertForSequenceClassification",
         {"local_attention": 6, "classifier_pooling": "mean"}),
        pytest.param("GteConfig", "GteForSequenceClassification", {}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_rerankers(tmp_path: Path, config: str, model: str, more: dict[str, Any]) -> None:
    torch_model = made(tmp_path, config, model, **more)
    pairs = [(TEXTS[1], text) for text in TEXTS]
    with torch.no_grad():
        expected = torch_model(**given(tmp_path, pairs, config == "BertConfig")).logits[:, 0]
    found = Reranker(tmp_path, threads=1).score(TEXTS[1], TEXTS)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "model"),
    [
        pytest.param("BertConfig", "BertForMaskedLM", marks=pytest.mark.slow),
        ("ModernBertConfig", "ModernBertForMaskedLM"),
    ],
)
def test_sparse_vectors(tmp_path: Path, config: str, model: str) -> None:
    more = {"local_attention": 4} if config == "ModernBertConfig" else {}
    torch_model = made(tmp_path, config, model, **more)
    inputs = given(tmp_path, TEXTS, False)
    with torch.no_grad():
        logits = torch_model(**inputs).logits
    real = inputs["attention_mask"].unsqueeze(-1)
    expected = torch.log1p(torch.relu(logits) * real).amax(1).numpy()
    encoder = SparseEncoder(tmp_path, threads=1)
    found = encoder.encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    heaviest = encoder.words(found[0], 3)
    assert [weight for _, weight in heaviest] == sorted(found[0].tolist())[::-1][:3]
    with pytest.raises(WeightsError, match="linear"):
        MultiVectorEncoder(tmp_path)


def test_a_vector_for_every_token(tmp_path: Path) -> None:
    torch_model = made(tmp_path, "BertConfig", "BertModel")
    matrix = np.random.default_rng(0).normal(0, 1, (16, 32)).astype(np.float32)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "linear.weight": matrix}, tmp_path / "model.safetensors")
    inputs = given(tmp_path, TEXTS, False)
    with torch.no_grad():
        hidden = torch_model(**inputs).last_hidden_state @ torch.tensor(matrix).T
    unit = torch.nn.functional.normalize(hidden, dim=-1).numpy()
    found = MultiVectorEncoder(tmp_path, threads=1).encode(TEXTS)
    for row, text, mask in zip(found, unit, inputs["attention_mask"].numpy()):
        np.testing.assert_allclose(row, text[mask > 0], atol=1e-5)
    assert max_similarity(found[1], found[1]) == pytest.approx(len(found[1]), abs=1e-4)


def test_nomic_vectors_of_sentences(tmp_path: Path) -> None:
    torch_model = made(tmp_path, "NomicBertConfig", "NomicBertModel")
    inputs = given(tmp_path, TEXTS, False)
    with torch.no_grad():
        hidden = torch_model(**inputs).last_hidden_state.numpy()
    real = inputs["attention_mask"].numpy()[..., None]
    expected = (hidden * real).sum(1) / real.sum(1)
    found = SentenceEncoder(tmp_path, threads=1).encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(WeightsError, match="4 layers, the file 3"):
        SentenceEncoder(tmp_path)


@pytest.mark.parametrize(
    ("config", "model", "more"),
    [
        ("Qwen3Config", "Qwen3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16}),
        ("Qwen2Config", "Qwen2Model", {"num_key_value_heads": 2}),
        ("MistralConfig", "MistralModel", {"num_key_value_heads": 4, "sliding_window": 5}),
        ("Gemma3TextConfig", "Gemma3TextModel",
         {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2,
          "use_bidirectional_attention": True}),
    ],
)  # fmt: skip
def test_vectors_of_language_models(
    tmp_path: Path, config: str, model: str, more: dict[str, Any]
) -> None:
    torch_model = made(tmp_path, config, model, **more)
    with pytest.raises(WeightsError, match="without a modules"):
        SentenceEncoder(tmp_path)
    parts = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [{"type": f"sentence_transformers.models.{t}", "path": place} for t, place in parts]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    inputs = given(tmp_path, TEXTS, False)
    last = inputs["attention_mask"].sum(1) - 1
    with torch.no_grad():
        hidden = getattr(torch_model, "model", torch_model)(**inputs).last_hidden_state
    expected = torch.nn.functional.normalize(hidden[range(len(TEXTS)), last], dim=-1)
    encoder = SentenceEncoder(tmp_path, threads=1)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-4, atol=1e-5)
    alone = encoder.encode(TEXTS[1:2])
    np.testing.assert_allclose(alone, expected[1:2], rtol=1e-4, atol=1e-5)


def test_language_models_whose_layers_know_more_than_one_sequence(tmp_path: Path) -> None:
    long = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
            "rope_theta": 1e4}  # fmt: skip
    made(tmp_path, "Phi3Config", "Phi3Model", original_max_position_embeddings=20,
         rope_parameters=long)  # fmt: skip
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(Unsupported, match="vectors of texts of 'phi3'"):
        SentenceEncoder(tmp_path)
