"""The first real job: all-MiniLM-L6-v2 with its real weights, against transformers."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from transformers import BertConfig as TorchConfig
from transformers import BertModel

from luminal.cli import main
from luminal.errors import InputError, WeightsError
from luminal.models import SentenceEncoder
from luminal.models.sentence import default_directory
from luminal.weights import Safetensors

SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
TEXT = "the quick brown fox jumps over a lazy dog while seven compilers wait in silence"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder()


@pytest.fixture(scope="module")
def reference():
    directory = default_directory()
    model = BertModel(TorchConfig.from_json_file(directory / "config.json")).eval()
    state = {name: torch.from_numpy(a.copy()) for name, a in Safetensors(directory).items()}
    model.load_state_dict(state, strict=False)

    def encode(ids, mask):
        tokens, kept = torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))
        with torch.inference_mode():
            hidden = model(input_ids=tokens, attention_mask=kept).last_hidden_state
            weight = kept.unsqueeze(-1).float()
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=-1).numpy()

    return encode


def texts_of_all_lengths(count=50):
    """Sentences of 1 to more than 256 tokens."""
    rng = np.random.default_rng(0)
    lengths = np.unique(np.geomspace(1, 254, count).astype(int))
    lengths = np.concatenate([lengths, rng.integers(1, 254, count - len(lengths))])
    return [" ".join(rng.choice(WORDS, n)) for n in lengths]


def test_published_similarities(encoder):
    vectors = encoder.encode(SENTENCES)
    similar = vectors @ vectors.T
    got = [similar[0, 1], similar[0, 2], similar[1, 2]]
    np.testing.assert_allclose(got, [0.6660, 0.1046, 0.1411], atol=1e-3)


def test_fifty_sentences_one_by_one(encoder, reference):
    for text in texts_of_all_lengths():
        ids, mask = encoder.tokenize([text])
        np.testing.assert_allclose(encoder.run(ids, mask), reference(ids, mask), atol=1e-4)


def test_batches(encoder, reference):
    texts = texts_of_all_lengths()
    got = encoder.encode(texts, batch_size=16)
    for text, vector in list(zip(texts, got))[::7]:
        np.testing.assert_allclose(vector, reference(*encoder.tokenize([text]))[0], atol=1e-4)
    ids, mask = encoder.tokenize(texts[:9])
    np.testing.assert_allclose(encoder.run(ids, mask), reference(ids, mask), atol=1e-4)


def test_empty_text_and_no_text(encoder, reference):
    ids, mask = encoder.tokenize([""])
    np.testing.assert_allclose(encoder.run(ids, mask), reference(ids, mask), atol=1e-4)
    assert encoder.encode([]).shape == (0, 384)
    with pytest.raises(InputError, match="a list of texts"):
        encoder.encode("one text")


def test_bad_directories(tmp_path):
    with pytest.raises(WeightsError, match="no such directory"):
        SentenceEncoder(tmp_path / "nothing")
    with pytest.raises(WeightsError, match=r"config\.json"):
        SentenceEncoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(WeightsError, match=r"llama. without a modules"):
        SentenceEncoder(tmp_path)


def test_command_line(tmp_path):
    runner = CliRunner()
    result = runner.invoke(main, ["embed", *SENTENCES])
    assert result.exit_code == 0 and "0.6660" in result.output and "0.1046" in result.output
    file = tmp_path / "lines.txt"
    file.write_text("a recipe for soup\n\nthe engine needs oil\nhow to bake bread\n")
    result = runner.invoke(main, ["search", str(file), "car repair", "--top", "1"])
    assert result.exit_code == 0 and ":3: the engine needs oil" in result.output
    result = runner.invoke(main, ["embed", "x", "--model", str(tmp_path)])
    assert result.exit_code == 1 and "config.json" in result.output
