"""`tokenizer.model` files: the same tokens as the sentencepiece package makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from luminal.errors import Unsupported, WeightsError
from luminal.models.llm.text import load_tokenizer
from luminal.models.sentencepiece import read_model

from .checkpoints import TEXT

package = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
SAMPLES = ["the quick brown fox", "naïve café 日本語 🙂", "  the  dog ", "ﬁve", "x<|x|>", ""]


def train(directory: Path, kind: str, **more: object) -> Path:
    stem = directory / "tokenizer"
    package.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT, "the dog the fox the day " * 3] * 20), model_prefix=str(stem),
        model_type=kind, vocab_size=320, byte_fallback=True, user_defined_symbols=["<|x|>"],
        hard_vocab_limit=False, minloglevel=2, **more,
    )  # fmt: skip
    return stem.with_suffix(".model")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("llama", [True, False])
def test_tokens_equal_those_of_the_package(kind: str, llama: bool, tmp_path: Path) -> None:
    """As Llama's models are made (texts stay as they are), and as usual (NFKC, spaces squeezed)."""
    more = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    file = train(tmp_path, kind, **(more if llama else {}))
    theirs, ours = package.SentencePieceProcessor(model_file=str(file)), read_model(file)
    assert ours.get_vocab_size() == theirs.get_piece_size()
    for text in SAMPLES:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text), text


def test_only_spaces_are_squeezed(tmp_path: Path) -> None:
    file = train(tmp_path, "bpe", normalization_rule_name="identity")
    theirs, ours = package.SentencePieceProcessor(model_file=str(file)), read_model(file)
    for text in ("\u3000the  dog\t", "  \nfox \u3000 "):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text), text


def test_spaces_behind_pieces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="treat_whitespace_as_suffix"):
        read_model(train(tmp_path, "unigram", treat_whitespace_as_suffix=True))


def test_a_directory_with_its_settings(tmp_path: Path) -> None:
    train(tmp_path, "bpe", normalization_rule_name="identity", remove_extra_whitespaces=False)
    added = {"400": {"content": "<|new|>", "special": True}}
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_eos_token": True,
                "added_tokens_decoder": added}  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokens = load_tokenizer(tmp_path)
    ids = tokens.encode("the dog<|new|>")
    assert ids[0] == tokens.token("<s>") and ids[-1] == tokens.token("</s>")
    assert tokens.token("<|new|>") in ids and tokens.decode(ids) == "the dog"


@pytest.mark.parametrize("prefix", [True, False, None])
def test_settings_may_leave_out_the_first_space(prefix: bool | None, tmp_path: Path) -> None:
    """As Llama's tokenizer in transformers does."""
    train(tmp_path, "bpe", normalization_rule_name="identity", remove_extra_whitespaces=False)
    settings = {"add_prefix_space": prefix, "add_bos_token": False, "legacy": False,
                "tokenizer_class": "LlamaTokenizer"}  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the dog", "dog the fox"):
        assert load_tokenizer(tmp_path).encode(text) == theirs.encode(text)


def test_damaged_models(tmp_path: Path) -> None:
    file = train(tmp_path, "bpe")
    whole = file.read_bytes()
    for damaged in (b"\xff" * 40, whole[:-7], b"\x0a\xff\x01"):
        file.write_bytes(damaged)
        with pytest.raises(WeightsError, match="not a sentencepiece model"):
            read_model(file)
    file.write_bytes(b"")
    with pytest.raises(Unsupported, match="neither unigram nor BPE"):
        read_model(file)
