"""What a sentence model makes of its tokens: modules.json, against PyTorch."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from luminal.errors import InputError, Unsupported, WeightsError
from luminal.models import SentenceEncoder
from luminal.models.pooling import POOLINGS, Pooling

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c", "d"]
TEXTS = ["A b", "c d a b c", "d"]


def write(file, value):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value))


def modules(directory, *kinds):
    write(directory / "modules.json", [
        {"idx": n, "path": "" if kind == "Transformer" else f"{n}_{kind}",
         "type": f"sentence_transformers.models.{kind}"} for n, kind in enumerate(kinds)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """(directory, its model of transformers): every pooling, a dense layer, then length 1."""
    directory = tmp_path_factory.mktemp("sentence")
    torch.manual_seed(0)
    sizes = {"vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 16, "max_position_embeddings": 24}  # fmt: skip
    model = BertModel(BertConfig(**sizes), add_pooling_layer=False).eval()
    model.save_pretrained(directory)
    raw = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    raw.save(str(directory / "tokenizer.json"))
    modules(directory, "Transformer", "Pooling", "Dense", "Normalize")
    write(directory / "1_Pooling/config.json", {key: True for key, _ in POOLINGS.values()})
    write(directory / "2_Dense/config.json", {"activation_function": "torch.nn.Tanh"})
    weights = {"linear.weight": torch.randn(8, 16 * len(POOLINGS)), "linear.bias": torch.randn(8)}
    save_file({n: w.numpy() for n, w in weights.items()}, directory / "2_Dense/model.safetensors")
    write(directory / "sentence_bert_config.json", {"max_seq_length": 6, "do_lower_case": True})
    return directory, model, weights


def pooled(model, ids, mask):
    """Every pooling of one batch, by its name."""
    with torch.inference_mode():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    real, count = mask.unsqueeze(-1).float(), mask.sum(1, keepdim=True)
    steps = real * torch.arange(1, ids.shape[1] + 1)[:, None]
    return {
        "cls": hidden[:, 0],
        "max": torch.where(real > 0, hidden, -1e9).amax(1),
        "mean": (hidden * real).sum(1) / count,
        "mean_sqrt_len_tokens": (hidden * real).sum(1) / count.sqrt(),
        "weightedmean": (hidden * steps).sum(1) / steps.sum(1),
        "lasttoken": hidden[torch.arange(len(ids)), count[:, 0] - 1],
    }


def test_every_pooling_dense_layers_and_length_one(tiny):
    directory, model, weights = tiny
    encoder = SentenceEncoder(directory, threads=1)
    assert encoder.max_tokens == 6
    ids, mask = (torch.from_numpy(a.astype(np.int64)) for a in encoder.tokenize(TEXTS))
    assert ids.shape == (3, 6) and 3 not in ids  # cut, and lower case
    parts = torch.cat([pooled(model, ids, mask)[name] for name in POOLINGS], -1)
    dense = torch.tanh(parts @ weights["linear.weight"].T + weights["linear.bias"])
    expected = torch.nn.functional.normalize(dense, dim=-1).numpy()
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    for size in (-1, 0, 1025):
        with pytest.raises(InputError, match=f"from 1 to 1024, not {size}"):
            encoder.encode(TEXTS, batch_size=size)


def test_lengths_of_texts_that_are_cut(tiny, tmp_path):
    """However many tokens stand around a text."""
    directory = tiny[0]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(directory / name)
    raw = Tokenizer.from_file(str(directory / "tokenizer.json"))
    for around, single in enumerate(["$A", "$A [SEP]", "[CLS] $A [SEP]"]):
        raw.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
        raw.save(str(tmp_path / "tokenizer.json"))
        encoder = SentenceEncoder(tmp_path, max_tokens=4, device="reference")
        assert encoder.lengths(["a b c d a b c d", "a"]) == [8 + around, 1 + around]


def test_without_modules_it_is_the_mean_as_it_is(tiny, tmp_path):
    directory, model, _ = tiny
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(directory / name)
    encoder = SentenceEncoder(tmp_path, threads=1)
    assert encoder.max_tokens == 24
    ids, mask = (torch.from_numpy(a.astype(np.int64)) for a in encoder.tokenize(["a b"]))
    mean = pooled(model, ids, mask)["mean"].numpy()
    np.testing.assert_allclose(encoder.encode(["a b"]), mean, atol=1e-5)
    unit = encoder.encode(["a b"], normalise=True)
    np.testing.assert_allclose(unit, mean / np.linalg.norm(mean), atol=1e-5)


def test_what_is_not_known_is_refused(tmp_path):
    modules(tmp_path, "Transformer", "Pooling", "CNN")
    write(tmp_path / "1_Pooling/config.json", {"pooling_mode": "lasttoken"})
    with pytest.raises(Unsupported, match="module 'CNN'"):
        Pooling.load(tmp_path)
    modules(tmp_path, "Transformer", "Pooling")
    assert Pooling.load(tmp_path).modes == ("lasttoken",)
    write(tmp_path / "config_sentence_transformers.json",
          {"default_prompt_name": "query", "prompts": {"query": "find: "}})  # fmt: skip
    assert Pooling.load(tmp_path).prompt == "find: "
    write(tmp_path / "1_Pooling/config.json", {"pooling_mode": "median"})
    with pytest.raises(Unsupported, match="'median'"):
        Pooling.load(tmp_path)
    write(tmp_path / "modules.json", [{"type": "x.Pooling", "path": "../other"}])
    with pytest.raises(WeightsError, match="outside the directory"):
        Pooling.load(tmp_path)
