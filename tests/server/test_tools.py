"""Replies of a prescribed form: JSON that fits a schema, calls of functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest
from llm.checkpoints import TEMPLATE, checkpoint

from luminal import LLM
from luminal.errors import InputError
from luminal.models.llm import Engine
from luminal.models.llm.templates import Templates

from .conftest import NAME, Running

Start = Callable[..., AbstractContextManager[Running]]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]},
                   "days": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["city", "days"],
    "additionalProperties": False,
}  # fmt: skip
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": SCHEMA}}
    for name in ("weather", "travel")
]
FORMS = ["<tool_call>", "", "<tool_call><parameter=", "[TOOL_CALLS]", "[TOOL_CALLS][ARGS]"]


@pytest.fixture
def ask(engine: Engine) -> dict[str, Any]:
    """A random model likes spaces as much as anything: they are made unlikely."""
    assert engine.tokenizer is not None
    spaces = [engine.tokenizer.token(token) for token in ("Ġ", "Ċ")]
    return {"model": NAME, "messages": [{"role": "user", "content": "dog"}], "max_tokens": 150,
            "logit_bias": {str(token): -50 for token in spaces}}  # fmt: skip


def fits(text: str) -> bool:
    """A text is JSON of SCHEMA."""
    found = json.loads(text)
    return found["city"] in ("Paris", "Rome") and 0 <= found["days"] <= 99 and len(found) == 2


def test_replies_fit_a_schema(running: Running, ask: dict[str, Any]) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    for temperature in (0, 2):
        made = running.client().chat.completions.create(
            **ask, n=4, seed=1, temperature=temperature, response_format=wanted
        )
        for choice in made.choices:
            assert choice.finish_reason == "stop" and fits(choice.message.content or "")
    made = running.client().chat.completions.create(
        **ask, temperature=2, seed=0, response_format={"type": "json_object"}
    )
    assert (made.choices[0].message.content or "").lstrip().startswith("{")


def test_generate_with_a_schema() -> None:
    llm = LLM(checkpoint("llama3")[0], context=160, threads=1)
    spaces = {llm.tokenizer.token(token): -50.0 for token in ("Ġ", "Ċ")}
    options: dict[str, Any] = {"temperature": 1.5, "seed": 3, "logit_bias": spaces}
    reply = llm.generate("the fox", 100, schema=SCHEMA, **options)
    assert fits(reply)
    with pytest.raises(InputError, match="no reply can have this form"):
        llm.generate("the fox", 4, schema={"type": "nope"})


def test_a_form_that_grows_too_large_is_told(running: Running, ask: dict[str, Any]) -> None:
    parts = {f"p{n}": {"type": "integer"} for n in range(600)}
    schema = {"name": "x", "schema": {"type": "object", "properties": parts}}
    form: Any = {"type": "json_schema", "json_schema": schema}
    with pytest.raises(openai.BadRequestError, match="max is"):
        running.client().chat.completions.create(**ask, response_format=form)


@pytest.mark.parametrize("text", ["</s>", "a<pad>é<|user|>", "<s>"])
def test_a_text_that_must_come_is_no_special_token(text: str) -> None:
    llm = LLM(checkpoint("llama3")[0], context=160, threads=1)
    assert json.loads(llm.generate("the fox", 40, schema={"const": text})) == text


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_required(
    start: Start, engine: Engine, monkeypatch: pytest.MonkeyPatch, ask: dict[str, Any],
    form: str,
) -> None:  # fmt: skip
    assert engine.tokenizer is not None
    template = f"{TEMPLATE}{{# tools {form} #}}"
    monkeypatch.setattr(engine.tokenizer, "templates", Templates({"default": template}, {}))
    ask |= {"tools": [TOOLS[0]], "temperature": 0}
    one: Any = {"type": "function", "function": {"name": "weather"}}
    with start() as running:
        create = running.client().chat.completions.create
        for choice in ("required", one):
            (made,) = create(**ask, tool_choice=choice).choices
            (call,) = made.message.tool_calls or []
            assert made.finish_reason == "tool_calls" and made.message.content is None
            assert call.function.name == "weather" and fits(call.function.arguments)
        chunks = list(create(**ask, tool_choice="required", stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        calls = [call for delta in deltas for call in delta.tool_calls or []]
        assert [entry.function.arguments for entry in calls] == [call.function.arguments]
        assert not any(delta.content for delta in deltas)
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        plain = create(**{**ask, "max_tokens": 5}, tool_choice="none").choices[0]
        assert plain.message.tool_calls is None and plain.finish_reason == "length"


def test_the_results_of_calls_reach_the_template(
    start: Start, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.tokenizer is not None
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %};{% endfor %}"
        "{{ tools[0].function.name }}"
    )
    monkeypatch.setattr(engine.tokenizer, "templates", Templates({"default": template}, {}))
    call = {"id": "a", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}  # fmt: skip
    messages: Any = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]
    with start() as running:
        made = running.client().chat.completions.create(
            model=NAME, messages=messages, tools=TOOLS, max_tokens=1
        )
    rendered = "user:x;assistant:Rome;tool:sunny;weather"
    assert made.usage is not None
    assert made.usage.prompt_tokens == len(engine.tokenizer.encode(rendered, special=False))
