"""RWKV's World tokenizer: the longest match in bytes, tokens as GGUF files escape them."""

import random

import gguf
import pytest
from tests.llm.gguf_files import add_fields, finish

from luminal.errors import InputError
from luminal.models.llm.gguf_text import gguf_tokenizer
from luminal.models.llm.grammar import Grammars, json_grammar
from luminal.models.llm.text import Pieces
from luminal.models.world import World, unescaped
from luminal.weights.gguf import GGUF

MORE = [b"\n\n", b" the", b" th", b"User", b"Assistant", b"ab", b"abcab", b"bca", "é".encode(),
        "日本".encode(), b"\xe6\x97", b"\x00\x01", b"'\"", b"\\n", b"<s>x"]  # fmt: skip
TOKENS = [b"<s>", *(bytes([n]) for n in range(256)), *MORE]
TEXTS = ["abcabcab the\n\nUser: é 日本 日x", "\x00\x01'\"\\n", "<s>x<s>", "", "😀 ab" * 40]


def written(path):
    """As the converter does: the text of Python's bytes."""
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([repr(token)[2:-1] for token in TOKENS])
    writer.add_token_types([3] + [1] * (len(TOKENS) - 1))
    writer.add_chat_template("rwkv-world")
    add_fields(writer, {"tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.bos_token_id": 0})
    finish(writer)
    return gguf_tokenizer(GGUF(path))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return written(tmp_path_factory.mktemp("world") / "words.gguf")


def longest(data):
    """The same by trying all tokens."""
    found = []
    while data:
        token = max((t for t in TOKENS if data.startswith(t)), key=len)
        found.append(TOKENS.index(token))
        data = data[len(token) :]
    return found


def test_the_longest_match(text):
    drawn = random.Random(0)
    mixed = ["".join(drawn.choices(["ab", "c", " the", "\n", "é", "日本", "x"], k=50))
             for _ in range(20)]  # fmt: skip
    for each in TEXTS + mixed:
        ids = text.encode(each)
        assert ids == longest(each.encode())
        assert text.decode(ids, special=True) == each
    assert text.decode([0, *text.encode("ab")]) == "ab"
    assert len(text.encode("ab " * 20000)) == 40000
    with pytest.raises(InputError, match="no text"):
        text.encode("\ud800")


def test_escapes():
    every = [bytes([n]) for n in range(256)] + [b"\\x41", b"'\"", b"\\", b"a\\\\b"]
    assert [unescaped(repr(token)[2:-1]) for token in every] == every
    assert World([b"", b"a"], 0).encode("abа").ids == [1, 0, 0, 0]  # unknown, byte by byte


def test_pieces_conversations_and_grammars(text):
    pieces = Pieces(text)
    shown = [pieces.push(token) for token in text.encode("日x")]
    assert shown[0] == "" and "".join(shown) == "日x"
    said = text.render([{"role": "user", "content": " ab "}])
    assert said == "User: ab\n\nAssistant:"
    assert text.token("\n\n") == 257 and text.name(257) == "\n\n"
    pytest.importorskip("llguidance")
    form = Grammars(text, [0]).form(json_grammar({"type": "boolean"}))()
    for token in text.encode("true"):
        form.push(token)
