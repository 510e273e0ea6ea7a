"""Chat templates: which one, what they may use, what they may not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from luminal.errors import InputError
from luminal.models.llm.templates import Templates, gguf_templates, read_templates

USER = [{"role": "user", "content": "hi <b> é"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [2]}}}
TALK = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}|{% endfor %}"


def of(template: str, **named: str) -> Templates:
    return Templates({"default": template, **named}, {"bos_token": "<s>"})


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }}{{ messages | tojson }}{{ tools | tojson(indent=2) }}",
        "{{ tools | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}",
        "{% for m in messages %}{% generation %}{% set a = m.content %}{{ a }}{% endgeneration %}"
        "{{ a is defined }}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}{{ tools[0] }}",
        "{% macro say(m) %}{% for c in m.content %}{{ c }}.{% endfor %}{% endmacro %}"
        "{{ say(messages[0]) }}{% for k, v in tools[0].items() %}{{ k }}{% else %}-{% endfor %}",
        "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n\tU {{ m.content }}\n{% endif %}"
        "{% endfor %}{{ add_generation_prompt }}{{ tools is none }}",
    ],
)
def test_templates_see_what_they_see_in_transformers(template: str) -> None:
    (expected,), _ = render_jinja_template(
        [USER], [TOOL], chat_template=template, add_generation_prompt=True, bos_token="<s>"
    )
    assert of(template + "{# tools #}").render(USER, [TOOL]) == expected


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_thoughts_have_the_names_that_they_have_in_transformers(name: str) -> None:
    template = ("{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|"
                "{{ m.reasoning }};{% endfor %}{{ documents is none }}")  # fmt: skip
    said = {"role": "assistant", "content": "4"}
    more = {"thinking": "a", "reasoning_content": None}
    for talk in ([said | {name: "2 + 2"}], [said, said | more | {name: "b"}]):
        (expected,), _ = render_jinja_template([talk], chat_template=template)
        assert of(template).render(talk, prompt=False) == expected


def test_the_template_fits_what_is_asked() -> None:
    made = of("plain", tool_use="tools!", rag="documents!")
    assert made.render(USER) == "plain" and made.render(USER, [TOOL]) == "tools!"
    assert made.render(USER, more={"documents": [{"title": "x"}]}) == "documents!"
    assert made.render(USER, more={"documents": []}) == "plain"
    assert Templates({"rag": "only"}, {}).render(USER) == "only"
    thinking = of("{{ enable_thinking }}{{ messages | length }}")
    assert thinking.render(USER, more={"enable_thinking": False, "messages": "x"}) == "False1"


def test_where_templates_are_found(tmp_path: Path) -> None:
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    for given in (several, {"default": "a", "tool_use": "b"}):
        assert read_templates(tmp_path, {"chat_template": given}).named["tool_use"] == "b"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "c"}))
    assert read_templates(tmp_path, {"chat_template": "a"}).choose() == "c"
    (tmp_path / "chat_template.jinja").write_text("d")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("e")
    made = read_templates(tmp_path, {"chat_template": several, "bos_token": {"content": "<s>"}})
    assert made.named == {"default": "d", "tool_use": "e"} and made.settings["bos_token"] == "<s>"
    metadata = {"tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b"}
    assert gguf_templates(metadata, {}).named == {"default": "a", "tool_use": "b"}
    assert read_templates(tmp_path / "none", {}).choose() is None


@pytest.mark.parametrize("said", ["Sure, ", "  the fox  ", "a|b"])
def test_a_reply_may_continue_the_last_message(said: str) -> None:
    messages = [*USER, {"role": "assistant", "content": said}]
    text = of(TALK + "{% if add_generation_prompt %}[assistant]{% endif %}").render(
        messages, resume=True
    )
    assert text == f"[user]hi <b> é|[assistant]{said.strip()}"
    assert of("{{ messages[-1].content }}|").render(messages, resume=True) == said


@pytest.mark.parametrize("said", ["<", "end", "|>", "assistant", "im_end|>\n"])
def test_what_goes_on_may_occur_behind_it_too(said: str) -> None:
    talk = of("<|im_start|>{{ messages[0].role }}\n{{ messages[0].content }}<|im_end|>\n")
    text = talk.render([{"role": "assistant", "content": said}], resume=True)
    assert text == f"<|im_start|>assistant\n{said}"


FAULTS: list[tuple[str, str]] = [
    ("{{ raise_exception('no system') }}", "no system"),
    ("{{ messages + 1 }}", "concatenate"),
    ("{{ messages[0].content.missing() }}", "missing"),
    ("{{ 1 // 0 }}", "zero"),
    ("{{ [1] | tojson(width=3) }}", "width"),
    ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ("{% for x in 3 %}{% endfor %}", "iterable"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "turns"),
    ("{{ 10 ** (10 ** 8) }}", "more than"), ("{{ 'a' * 10 ** 9 }}", "more than"),
    ("{% for a in range(9999) %}{% for b in range(9999) if 0 %}{% endfor %}{% endfor %}", "turns"),
    ("{% set _budget = 1 %}{% for a in range(99999) %}{% endfor %}", "turns"),
    ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
     "turns"),
    ("{{ 'x'.ljust(10 ** 9) }}", "more than"), ("{{ 'a' | center(10 ** 9) }}", "more than"),
    ("{{ ('a\n' * 10 ** 6) | indent(10 ** 6) }}", "more than"), ("{{ lipsum(10 ** 7) }}", "undef"),
    ("{{ ('a' * 9 ** 6) | replace('a', 'b' * 9 ** 6) }}", "more than"),
    ("{{ '%1000000000d' % 1 }}", "places"), ("{{ '%*d' | format(10 ** 9, 1) }}", "places"),
    ("{{ '{:>1000000000}'.format(1) }}", "places"), ("{{ [1] | batch(10 ** 9) }}", "more than"),
    ("{{ [1] | tojson(indent=10 ** 9) }}", "more than"),
    ("{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
     "makes more"),
    ("{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
     "makes more"),
    ("{% set n = namespace(x='ab') %}{% for a in range(99) %}"
     "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}", "makes more"),
    ("{% set n = namespace(x=9) %}{% for a in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
     "more than"),
    ("{% if %}", "Expected"),
]


@pytest.mark.parametrize(("template", "fault"), FAULTS)
def test_what_goes_wrong_in_a_template_is_told(
    template: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luminal.models.llm.sandbox.MOST_STEPS", 10_000)
    with pytest.raises(InputError, match=f"refuses the messages: .*{fault}"):
        of(template).render(USER)


@pytest.mark.parametrize("messages", [[], USER, [{"role": "assistant", "content": ""}]])
def test_what_cannot_be_continued(messages: list[Any]) -> None:
    with pytest.raises(InputError, match="continued"):
        of("{{ messages | length }}").render(messages, resume=True)


def test_long_messages_are_no_fault() -> None:
    long = "a {b} 100% of 123456 " * 20_000
    talk = "{% macro said(a, b) %}{{ a ~ b }}{% endmacro %}{% for m in messages %}" \
           "{{ said(m.content | trim, m.content.replace('a', '<a>')) }}{% endfor %}"  # fmt: skip
    text = of(talk).render([{"role": "user", "content": long}])
    assert text == long.strip() + long.replace("a", "<a>")
    with_blocks = "{% filter upper %}{% call(x) f() %}{{ x }}{% endcall %}{% endfilter %}"
    head = "{% macro f() %}{{ caller('y') }}{% endmacro %}{% set z | upper %}z{% endset %}{{ z }}"
    assert of(head + with_blocks).render(USER) == "ZY"
