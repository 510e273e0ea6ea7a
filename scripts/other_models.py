"""Rows of docs/models.md for encoders of texts and for T5, against transformers on tiny weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tests.models.gguf_encoders import EMBEDDING, MORE, case
from tests.models.test_encoders import TEXTS, given, made
from tests.models.test_seq2seq import SIZES as T5_SIZES
from tests.models.test_seq2seq import tiny

from luminal.models import T5, Reranker, SentenceEncoder, SparseEncoder
from luminal.models.seq2seq import Asked

MODERN = {"local_attention": 6, "classifier_pooling": "mean"}
GEMMA = {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2,
         "use_bidirectional_attention": True}  # fmt: skip
FLAN = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# name -> (config, class of the model, what differs)
ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rerank-bert": ("BertConfig", "BertForSequenceClassification", {}),
    "rerank-xlm-roberta": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification",
                           {"type_vocab_size": 1}),
    "rerank-modernbert": ("ModernBertConfig", "ModernBertForSequenceClassification", MODERN),
    "rerank-gte": ("GteConfig", "GteForSequenceClassification", {}),
    "splade-bert": ("BertConfig", "BertForMaskedLM", {}),
    "splade-xlm-roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM", {}),
    "splade-modernbert": ("ModernBertConfig", "ModernBertForMaskedLM", {"local_attention": 6}),
    "splade-gte": ("GteConfig", "GteForMaskedLM", {}),
    "embed-nomic": ("NomicBertConfig", "NomicBertModel", {}),
    "embed-modernbert": ("ModernBertConfig", "ModernBertModel", {"local_attention": 6}),
    "embed-gte": ("GteConfig", "GteModel", {}),
    "embed-e5": ("BertConfig", "BertModel", {}),
    "embed-e5-multilingual": ("XLMRobertaConfig", "XLMRobertaModel", {"type_vocab_size": 1}),
    "embed-bge": ("BertConfig", "BertModel", {}),
    "embed-bge-m3": ("XLMRobertaConfig", "XLMRobertaModel", {"type_vocab_size": 1}),
    "embed-qwen3": ("Qwen3Config", "Qwen3Model", {"num_key_value_heads": 2, "head_dim": 16}),
    "embed-gte-qwen2": ("Qwen2Config", "Qwen2Model", {"num_key_value_heads": 2}),
    "embed-mistral": ("MistralConfig", "MistralModel", {"num_key_value_heads": 4}),
    "embed-gemma": ("Gemma3TextConfig", "Gemma3TextModel", GEMMA),
}
LAST = ("embed-qwen3", "embed-gte-qwen2", "embed-mistral")  # those whose vector is the last token's
# beginnings of those that have modules: vectors of unit length
UNIT = ("embed-e5", "embed-bge", "embed-gemma", *LAST)
GGUFS = {f"gguf-{name}": name for name in (*EMBEDDING, *MORE)}
T5S: dict[str, dict[str, Any]] = {"t5": {}, "flan-t5": FLAN}
NAMES = [*ENCODERS, *GGUFS, *T5S]


def row(name: str, tokens: int) -> tuple[str, float, str | bool, bool | None]:
    """(model type, largest difference over the largest size, whether tokens are the same, whether
    a text in a padded batch gives what it gives alone)."""
    with tempfile.TemporaryDirectory() as folder:
        if name in T5S:
            return _t5(Path(folder), T5S[name], tokens)
        if name in GGUFS:
            return _gguf(Path(folder), GGUFS[name])
        return _encoder(Path(folder), name)


def _gguf(directory: Path, name: str) -> tuple[str, float, str, bool]:
    file, wanted = case(name, directory)
    encoder, size = SentenceEncoder(file, threads=1), float(np.abs(wanted).max())
    found = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    off = float(np.abs(found - wanted).max()) / size
    return encoder.backbone.kind, off, "none", float(np.abs(found - alone).max()) < 1e-5 * size


def _encoder(directory: Path, name: str) -> tuple[str, float, str, bool]:
    config, model_class, more = ENCODERS[name]
    model = made(directory, config, model_class, **more)
    pairs = [(TEXTS[1], text) for text in TEXTS] if name.startswith("rerank") else TEXTS
    inputs = given(directory, pairs, config == "BertConfig")
    pooled = "cls_token" if name.startswith("embed-bge") else "mean_tokens"
    pooled = "lasttoken" if name in LAST else pooled
    if name.startswith(UNIT):
        _modules(directory, pooled)
    real = inputs["attention_mask"].unsqueeze(-1)
    with torch.no_grad():
        out = model(**inputs)
    if name.startswith("rerank"):
        reranker, wanted = Reranker(directory, threads=1), out.logits[:, 0]
        found = reranker.score(TEXTS[1], TEXTS)
        alone = np.concatenate([reranker.score(TEXTS[1], [text]) for text in TEXTS])
    else:
        sparse = name.startswith("splade")
        kind: Any = SparseEncoder if sparse else SentenceEncoder
        encoder = kind(directory, threads=1)
        found = encoder.encode(TEXTS)
        alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
        if sparse:
            wanted = torch.log1p(torch.relu(out.logits) * real).amax(1)
        else:
            hidden, count = out.last_hidden_state, real.sum(1)
            wanted = {
                "cls_token": hidden[:, 0], "mean_tokens": (hidden * real).sum(1) / count,
                "lasttoken": hidden[range(len(TEXTS)), count[:, 0] - 1],
            }[pooled]  # fmt: skip
            wanted = torch.nn.functional.normalize(wanted) if name.startswith(UNIT) else wanted
    size = float(wanted.abs().max())
    off = float(np.abs(found - wanted.numpy()).max()) / size
    return model.config.model_type, off, "none", float(np.abs(found - alone).max()) < 1e-5 * size


def _modules(directory: Path, pooled: str) -> None:
    """As sentence-transformers writes the models of E5 and BGE."""
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    (directory / "modules.json").write_text(json.dumps([
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(kinds)
    ]))  # fmt: skip
    (directory / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{pooled}": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(modes))


def _t5(directory: Path, more: dict[str, Any], tokens: int) -> tuple[str, float, bool, bool]:
    model = tiny(directory, more)
    t5, ids = T5(directory, context=100, threads=1, batch=2), list(range(3, 40))
    t5.ends = ()
    rest = np.random.default_rng(0).integers(2, T5_SIZES["vocab_size"], 50).tolist()
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), decoder_input_ids=torch.tensor([[0, *rest]])).logits[0]
        greedy = model.generate(
            torch.tensor([ids]), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
            eos_token_id=None,
        )  # fmt: skip
    off = float(np.abs(t5.logits(ids, rest) - wanted.numpy()).max() / wanted.abs().max())
    expected = greedy[0, 1:].tolist()
    alone = t5.complete(ids, tokens) == expected
    batch = t5.complete_all([Asked([5, 9, 2], tokens), Asked(ids, tokens)])[1] == expected
    return "t5", off, alone, batch


transformers.logging.set_verbosity_error()
