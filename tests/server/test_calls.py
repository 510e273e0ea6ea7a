"""Calls of functions and thoughts in the text of a reply, whole and in pieces."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from llm.checkpoints import save_tokenizer

from luminal.errors import InputError
from luminal.models.llm.grammar import Grammars
from luminal.models.llm.templates import Templates
from luminal.models.llm.text import Pieces, Tokenizer, load_tokenizer
from luminal.server.forms import Parting
from luminal.server.thinking import ThinkingForm
from luminal.server.tools import CallForm, CallReader

TYPES = {"city": {"type": "string"}, "days": {"type": "integer"}, "sun": {"type": "boolean"},
         "more": {"anyOf": [{"type": "object"}, {"type": "null"}]}}  # fmt: skip
SCHEMAS = {"weather": {"type": "object", "properties": TYPES}, "travel": {}}
ROME = '{"city": "Rome"}'
CALL, LLAMA = (f'{{"name": "weather", "{given}": {ROME}}}' for given in ("arguments", "parameters"))
TAGS = '{"name": "weather", "arguments": {"city": "a </tool_call> b <tool_call> [ARGS]"}}'
GOOD, BROKEN = f"<tool_call>\n{CALL}\n</tool_call>", "<tool_call>{'name': 1}</tool_call>"
CODER = ("<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n{}</function>\n"
         "</tool_call>")  # fmt: skip
DEEP = '{"name": "travel", "arguments": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}"
ROMES = {"city": "Rome"}

# (a reply, what is shown of it, the calls: names and arguments)
REPLIES: list[tuple[str, str, list[tuple[str, Any]]]] = [
    # Hermes, Qwen
    (f"Well. {GOOD}", "Well. ", [("weather", ROMES)]),
    (f"{GOOD}\n{GOOD}\n", "", [("weather", ROMES)] * 2),
    (f"<tool_call>{CALL}", "", [("weather", ROMES)]),
    (f"<tool_call>{CALL}\n</tool_", "", [("weather", ROMES)]),
    (f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", [("weather", ROMES)] * 2),
    (f"<tool_call>{TAGS}</tool_call>", "", [("weather", json.loads(TAGS)["arguments"])]),
    (f"{GOOD}\n{BROKEN}\n{GOOD} so", f"{BROKEN}\nso", [("weather", ROMES)] * 2),
    ("1 <tool and <tool_call>no JSON", "1 <tool and <tool_call>no JSON", []),
    (f"<tool_call>{CALL[:-1]}", f"<tool_call>{CALL[:-1]}", []),
    ('<tool_call>{"name": "travel"}</tool_call>', "", [("travel", {})]),
    ('<tool_call>{"name": "travel", "arguments": "{}"}</tool_call>', "", [("travel", {})]),
    (f"<tool_call>{DEEP}</tool_call>", f"<tool_call>{DEEP}</tool_call>", []),
    *[(f"<tool_call>{bad}</tool_call>", f"<tool_call>{bad}</tool_call>", []) for bad in (
        '{"name": "travel", "arguments": [1]}', '{"name": "a b", "arguments": {}}', "[]", "",
        '{"name": "travel", "arguments": {"x": NaN}}',
        '{"name": "travel", "arguments": {"x": 1e999}}',
    )],
    ('<tool_call>{"name": "travel", "arguments": {"x": "\\ud800"}}</tool_call>', "",
     [("travel", {"x": "\ud800"})]),
    # Qwen coder; Llama's own
    (CODER.format(""), "", [("weather", ROMES)]),
    (f"Now: {CODER.format('')}\n{GOOD}", "Now: ", [("weather", ROMES)] * 2),
    (CODER.format("<parameter=days>3</parameter><parameter=sun>True</parameter>"
                  "<parameter=more>null</parameter><parameter=new>7</parameter>"), "",
     [("weather", {**ROMES, "days": 3, "sun": True, "more": None, "new": "7"})]),
    (CODER.format("<parameter=more>\na </parameter> b </function>\n\nc\n</parameter>"), "",
     [("weather", {**ROMES, "more": "a </parameter> b </function>\n\nc"})]),
    ("<function=travel>\n</function>", "", [("travel", {})]),
    (f"<function=weather>{ROME}</function> then <function=travel>{{}}</function>", "then ",
     [("weather", ROMES), ("travel", {})]),
    ("<function=weather>{</function>", "<function=weather>{</function>", []),
    # Mistral
    (f"[TOOL_CALLS][{CALL}, {CALL}]", "", [("weather", ROMES)] * 2),
    (f"[TOOL_CALLS] {CALL}", "", [("weather", ROMES)]),
    (f"So [TOOL_CALLS]weather[ARGS]{ROME}[TOOL_CALLS]travel[CALL_ID]123[ARGS]{{}}", "So ",
     [("weather", ROMES), ("travel", {})]),
    ("[TOOL_CALLS]no", "[TOOL_CALLS]no", []),
    # Llama
    (LLAMA, "", [("weather", ROMES)]),
    (f" \n[{CALL}, {LLAMA}]", "", [("weather", ROMES)] * 2),
    (f"{LLAMA}; {LLAMA}\n{LLAMA}", "", [("weather", ROMES)] * 3),
    (f"{LLAMA}; {{broken", "{broken", [("weather", ROMES)]),
    (f"<|python_tag|>{LLAMA}; {LLAMA}", "", [("weather", ROMES)] * 2),
    ("<|python_tag|>1 + 1", "<|python_tag|>1 + 1", []),
    (f"As JSON: {LLAMA}", f"As JSON: {LLAMA}", []),
    ('{"name": "Ann", "parameters": {}}', '{"name": "Ann", "parameters": {}}', []),
    ("", "", []),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "text", "expected"), REPLIES)
def test_calls_are_found_however_the_reply_comes(
    reply: str, text: str, expected: list[tuple[str, Any]]
) -> None:
    chance = random.Random(0)
    sizes: list[Any] = [lambda: len(reply) + 1]
    if len(reply) < 1000:
        sizes += [lambda: 1, lambda: 3, lambda: chance.randint(1, 20)]
    for size in sizes:
        reader, shown, calls, start = CallReader(SCHEMAS, bare=True), "", [], 0
        while start < len(reply):
            step = size()
            said, more = reader.push(reply[start : start + step])
            shown, calls, start = shown + said, calls + more, start + step
            assert text.startswith(shown)
        said, more = reader.finish()
        assert shown + said == text
        found = [call["function"] for call in calls + more]
        assert [(f["name"], json.loads(f["arguments"])) for f in found] == expected
        assert all(f["arguments"].encode() for f in found)
        assert len({call["id"] for call in calls + more}) == len(expected)


def fits(tokenizer: Tokenizer, kind: str, parameters: Any, text: str) -> bool:
    """A text is a whole call of `weather`, as it may be forced."""
    grammar = CallForm(kind, {}).grammar([{"name": "weather", "parameters": parameters}])
    constraint = Grammars(tokenizer, [2]).form(grammar)()
    zeros = np.zeros(tokenizer.vocabulary, np.float32)
    for token in tokenizer.encode(text, special=False):
        if constraint.masked(zeros)[token] != 0:
            return False
        constraint.push(token)
    return bool(constraint.masked(zeros)[2] == 0)


def test_a_forced_call_has_texts_as_they_stand(tokenizer: Tokenizer) -> None:
    """Qwen coder's: a text ends at the first end that there is."""
    lengths = {"type": "string", "minLength": 1, "maxLength": 3}
    parameters = {"properties": {"a": {"type": "string"}, "b": lengths}, "required": ["a", "c"]}

    def call(**given: str) -> str:
        parts = (f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in given.items())
        inside = f"<function=weather>\n{''.join(parts)}</function>"
        return f"<tool_call>\n{inside}\n</tool_call>"

    for text in ("Rome", "", "a < b\n</p> <<", "é\n\n"):
        assert fits(tokenizer, "coder", parameters, call(a=text, c="1"))
        assert fits(tokenizer, "coder", parameters, call(a=text, b="<é", c=text))
    assert not fits(tokenizer, "coder", parameters, call(a="Rome"))
    assert not fits(tokenizer, "coder", parameters, call(a="Rome", b="four", c=""))
    for unread in ({"allOf": [{}]}, {"properties": {"a": {"type": "string", "pattern": "x"}}}):
        with pytest.raises(InputError, match="as this model writes them"):
            fits(tokenizer, "coder", unread, "")


@pytest.mark.parametrize("kind", ["plain", "tagged", "coder", "mistral", "mistral list"])
def test_what_a_forced_call_gives_is_an_object(tokenizer: Tokenizer, kind: str) -> None:
    for wrong in ("null", ["string", "null"], 5):
        with pytest.raises(InputError, match="of type"):
            fits(tokenizer, kind, {"type": wrong}, "")
    assert not fits(tokenizer, kind, {"properties": {}}, "[TOOL_CALLS]weather[ARGS]5")
    assert not fits(tokenizer, kind, {"properties": {}}, '{"name": "weather", "parameters": 5}')


@pytest.mark.parametrize("schema", [{"type": 5}, {"enum": 5}, {"anyOf": 5, "oneOf": None}])
def test_what_is_no_schema_breaks_no_reply(schema: Any) -> None:
    reader = CallReader({"weather": {"properties": {"city": schema}}}, bare=False)
    (call,) = reader.push(CODER.format(""))[1]
    assert json.loads(call["function"]["arguments"]) == ROMES


def test_a_complete_call_does_not_wait_for_the_end() -> None:
    reader = CallReader(SCHEMAS, bare=False)
    assert len(reader.push(f"{GOOD}\n<tool")[1]) == 1
    assert reader.push(CALL) == (f"<tool{CALL}", []) and reader.push(" x") == (" x", [])
    assert CallReader(SCHEMAS, bare=False).push(LLAMA) == (LLAMA, [])  # not this model's form


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """With a special token for calls and one for thoughts."""
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory)
    made = load_tokenizer(directory)
    made.raw.add_special_tokens(["[TOOL_CALLS]", "<think>"])
    made.templates = Templates({"default": "<think>", "tool_use": "tools [TOOL_CALLS]"}, {})
    return made


def test_special_tokens_that_mark_calls_are_seen(tokenizer: Tokenizer) -> None:
    form = CallForm.of(tokenizer)
    assert form.kind == "mistral list" and list(form.tokens) == ["[TOOL_CALLS]"]
    ids = tokenizer.encode(f"é</s>[TOOL_CALLS][{CALL}]")
    hidden, shown = Pieces(tokenizer), Pieces(tokenizer, form.tokens.values())
    assert "".join(map(hidden.push, ids)) == f"é[{CALL}]"
    assert "".join(map(shown.push, ids)) == f"é[TOOL_CALLS][{CALL}]"


@pytest.mark.parametrize(
    ("prompt", "reply", "thoughts", "text"),
    [
        ("", "<think>\nHm.\n\n</think>\n\nYes </think> no", "Hm.", "Yes </think> no"),
        ("<|assistant|><think>\n", "Hm </thi.</think>Yes", "Hm </thi.", "Yes"),
        ("", "<think></think>Yes", "", "Yes"),
        ("", " <thin Yes", "", " <thin Yes"),
        ("", "Yes <think>no</think>", "", "Yes <think>no</think>"),
        ("<think>", "Hm, cut </th", "Hm, cut </th", ""),
        ("<think>", f"Hm</think> So {GOOD}", "Hm", "So "),
        ("", "", "", ""),
    ],
)
def test_thoughts_are_parted_from_the_answer(
    tokenizer: Tokenizer, prompt: str, reply: str, thoughts: str, text: str
) -> None:
    form = ThinkingForm.of(tokenizer)
    assert form is not None and len(form.tokens) == 1
    for size in (1, 4, 100):
        parting = Parting(CallReader(SCHEMAS, False), form.reader(prompt), most=1)
        pieces = [reply[start : start + size] for start in range(0, len(reply), size)]
        said = [parting.push(piece, False) for piece in pieces] + [parting.push("", True)]
        assert "".join(part.thoughts for part in said) == thoughts
        assert "".join(part.text for part in said) == text
        assert parting.count == reply.count("</tool_call>")
    assert ThinkingForm.of(Tokenizer(tokenizer.raw)) is None
