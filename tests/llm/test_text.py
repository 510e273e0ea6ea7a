"""Tokenizers, streaming, stop texts, chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders
from transformers import AutoTokenizer

from luminal.errors import InputError, WeightsError
from luminal.models.llm import Grammars, json_grammar
from luminal.models.llm.reply import Known, Piece
from luminal.models.llm.text import Pieces, StopTexts, Tokenizer, load_tokenizer
from luminal.server.forms import TextForm

from .checkpoints import save_tokenizer

TEXTS = ["", "plain", "naïve café 日本語 🙂🙃", "a\n\n b  ", "\u200d👩\u200d👩\u200d👧 Ω≈ç√"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory)
    return load_tokenizer(directory)


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_pieces_are_the_whole_text(tokenizer: Tokenizer, text: str) -> None:
    pieces = Pieces(tokenizer)
    parts = [pieces.push(token) for token in tokenizer.encode(text)]
    assert "".join(parts) + pieces.flush() == text
    assert not any("\ufffd" in part for part in parts)


def test_a_character_waits_for_all_its_bytes(tokenizer: Tokenizer) -> None:
    pieces, ids = Pieces(tokenizer), tokenizer.encode("🙃")
    assert len(ids) > 1
    assert [pieces.push(token) for token in ids] == [""] * (len(ids) - 1) + ["🙃"]


def test_bytes_that_never_become_a_character_come_out_at_the_end(tokenizer: Tokenizer) -> None:
    pieces = Pieces(tokenizer)
    assert pieces.push(tokenizer.encode("🙃")[0]) == ""
    assert pieces.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("stops", "text", "kept"),
    [
        (["END"], "oneENDtwo", "one"),
        (["END"], "oneEN", "oneEN"),
        (["aab"], "aaab", "a"),
        (["b", "ab"], "xxab", "xx"),
        ([], "all", "all"),
    ],
)
def test_stop_texts_cut_whatever_the_pieces(stops: list[str], text: str, kept: str) -> None:
    for size in (1, 2, 3, 100):
        cut, shown = StopTexts(stops), ""
        for start in range(0, len(text), size):
            if not cut.found:
                shown += cut.push(text[start : start + size])
        assert shown + ("" if cut.found else cut.flush()) == kept
        assert cut.found == (kept != text)


def test_chat_template(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.render(messages) == "<|user|>hi<|end|><|assistant|>"
    ids = tokenizer.chat(messages)
    assert ids[0] == tokenizer.token("<|user|>") and ids[-1] == tokenizer.token("<|assistant|>")


def test_chat_errors_are_clear(tokenizer: Tokenizer) -> None:
    plain = Tokenizer(tokenizer.raw)
    with pytest.raises(InputError, match="no chat template"):
        plain.render([{"role": "user", "content": "hi"}])
    with pytest.raises(InputError, match="role"):
        tokenizer.render(["hi"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="without 'content'"):
        tokenizer.render([{"role": "user"}])
    with pytest.raises(InputError, match="no text"):
        tokenizer.encode("half a pair: \ud83d")


def test_pictures_are_refused_where_nothing_sees_them(tokenizer: Tokenizer) -> None:
    said = [{"type": "image", "image": b""}, {"type": "text", "text": "what is this"}]
    with pytest.raises(InputError, match="sees no pictures"):
        tokenizer.chat([{"role": "user", "content": said}])


@pytest.mark.parametrize("files", [
    {"special_tokens_map": {"bos_token": "<s>", "eos_token": {"content": "</s>"}}},
    {"special_tokens_map": {"eos_token": "<x>"}, "tokenizer_config": {"eos_token": "</s>"}},
    {"special_tokens_map": {"eos_token": "<x>"}, "added_tokens": {"<y>": 321, "<x>": 320}},
    {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {
        "320": {"content": "<x>", "lstrip": True}}}, "special_tokens_map": {"eos_token": "<s>"}},
    {"tokenizer_config": {"extra_special_tokens": {"image_token": "<x>"}}},
    {"tokenizer_config": {"additional_special_tokens": [
        "<x>", {"__type": "AddedToken", "content": "<y>", "special": True}]}},
])  # fmt: skip
def test_tokens_that_other_files_name(files: dict[str, Any], tmp_path: Path) -> None:
    """As transformers reads them."""
    save_tokenizer(tmp_path)
    template = "{{ bos_token }}{{ image_token }}|{{ eos_token }}"
    usual = {"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    files = {**files, "tokenizer_config": usual | files.get("tokenizer_config", {})}
    for name, values in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    ids = theirs("the dog <x> sleeps<y>")["input_ids"]
    assert ours.encode("the dog <x> sleeps<y>") == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    said = [{"role": "user", "content": "the"}]
    assert ours.render(said) == theirs.apply_chat_template(said, tokenize=False)


def test_settings_that_are_none(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    for given in ({"extra_special_tokens": 3}, {"additional_special_tokens": [3]},
                  {"added_tokens_decoder": {"3": "<x>"}}):  # fmt: skip
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(given))
        with pytest.raises(WeightsError, match="must be"):
            load_tokenizer(tmp_path)


def test_missing_and_broken_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"tokenizer\.json: no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsError, match="not a tokenizer"):
        load_tokenizer(tmp_path)


def spelled(decoder: Any, *more: str) -> Tokenizer:
    """Of tokens that are characters, and two that are more; those of spaces are "▁"."""
    letters = [*map(chr, range(33, 127)), "▁", '":', "▁tr", "</s>", *more]
    raw = tokenizers.Tokenizer(tokenizers.models.BPE({c: n for n, c in enumerate(letters)}, []))
    raw.add_special_tokens(["</s>"])
    raw.decoder = decoder
    return Tokenizer(raw)


@pytest.mark.parametrize("decoder", [decoders.Metaspace(), decoders.Sequence([
    decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])])  # fmt: skip
def test_tokens_keep_the_spaces_that_they_begin_with(decoder: Any) -> None:
    """Alone, and behind a marker that is told, though a text's own first space is dropped."""
    tokenizer = spelled(decoder)
    ids = [tokenizer.raw.token_to_id(text) for text in ("▁tr", "▁", "a", "</s>", "▁tr")]
    assert [tokenizer.name(token) for token in ids] == [" tr", " ", "a", "</s>", " tr"]
    pieces = Pieces(tokenizer, show=[ids[3]])
    assert "".join(pieces.push(token) for token in ids) == "tr a</s> tr"
    form = TextForm(tokenizer, True, ["tr a"])
    piece = Piece("</s>", ids[3], -1.0, prompt=tuple(Known(token, None) for token in ids[:3]))
    lists = form.choice(0, [piece])["logprobs"]
    assert lists["text_offset"] == [0, 2, 3, 4] and lists["tokens"] == [" tr", " ", "a", "</s>"]


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Fuse(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]),
    ],
)
def test_a_prescribed_form_whatever_decoder_puts_tokens_together(decoder: Any) -> None:
    """Replies are what their tokens are decoded to."""
    tokenizer = spelled(decoder)
    end, random = tokenizer.token("</s>"), np.random.default_rng(0)
    assert end is not None
    schema = {"type": "object", "properties": {"a b": {"type": "boolean"}}, "required": ["a b"],
              "additionalProperties": False}  # fmt: skip
    if isinstance(decoder, decoders.Fuse):  # no token has a space
        schema = json.loads(json.dumps(schema).replace("a b", "a▁b"))
    form, words = Grammars(tokenizer, [end]).form(json_grammar(schema)), set()
    for _ in range(20):
        constraint, made = form(), [0]
        while len(made) == 1 or constraint.push(made[-1]):
            logits = random.standard_normal(tokenizer.vocabulary).astype(np.float32)
            made.append(int(constraint.masked(logits).argmax()))
        words |= set(made)
        found = json.loads(tokenizer.decode(made[1:]))
        assert list(found) == schema["required"] and found.popitem()[1] in (True, False)
    assert tokenizer.token('":') in words


@pytest.mark.parametrize("decoder, more", [(None, ()), (decoders.WordPiece(), ()),
                                           (decoders.Fuse(), ("<0x0A>",))])  # fmt: skip
def test_tokens_that_do_not_just_follow_each_other_have_no_form(decoder: Any, more: Any) -> None:
    with pytest.raises(InputError, match="another decoder"):
        Grammars(spelled(decoder, *more), [1]).form(json_grammar({"type": "boolean"}))


def test_parts_of_characters_have_bytes(tokenizer: Tokenizer) -> None:
    text = "é 🦊\u00ad"
    ids = tokenizer.encode(text, special=False)
    assert None in map(tokenizer.piece, ids)
    assert b"".join(map(tokenizer.bytes, ids)).strip() == text.encode()
    byte = spelled(decoders.ByteFallback(), "<0xF0>")
    assert byte.bytes(byte.vocabulary - 1) == b"\xf0"
