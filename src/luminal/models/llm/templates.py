"""Chat templates: from a conversation to the text that a model was trained on.

A checkpoint has one, or several by name: "default", "tool_use" where functions may be called, "rag"
where documents are given. Templates come from strangers: they run in a sandbox (`sandbox`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import InputError, WeightsError, to_install
from ...weights.fields import read_json

WORLD = (  # of RWKV
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content | trim }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
BY_NAME = {"rwkv-world": WORLD}  # templates that a file names only
THOUGHTS = ("reasoning_content", "thinking", "reasoning")
MARK = "\ue000resume\ue000"  # of a message that goes on, for as long as it is rendered
DEFAULT, TOOLS, DOCUMENTS = "default", "tool_use", "rag"
Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Tool = Mapping[str, Any]  # {"type": "function", "function": {"name": ..., "parameters": a schema}}


class Templates:
    """The chat templates of a checkpoint by name. settings: what all of them see: special tokens.

    An empty set is of a model that knows no conversations."""

    def __init__(self, named: Mapping[str, str], settings: Mapping[str, Any]) -> None:
        self.named, self.settings = dict(named), dict(settings)

    def choose(self, tools: bool = False, documents: bool = False) -> str | None:
        """The template for a conversation with functions, or with documents; None: there is none.
        """
        wanted = [TOOLS] * tools + [DOCUMENTS] * documents + [DEFAULT]
        found = [self.named[name] for name in wanted if name in self.named]
        return next(iter(found or self.named.values()), None)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), prompt: bool = True,
        resume: bool = False, more: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """The text of a conversation. tools: functions that the model may call. prompt: it ends
        where the assistant's reply begins. resume: it ends inside of the last message, which the
        reply continues. more: what this template knows besides. Raises InputError."""
        given = dict(more or {})
        chosen = self.choose(bool(tools), bool(given.get("documents")))
        if chosen is None:
            raise InputError("this model has no chat template: give a text, not messages")
        for message in messages:
            if not isinstance(message, Mapping) or "role" not in message:
                raise InputError(f"no message with 'role' and 'content': {message!r}")
            if message.get("content") is None and not message.get("tool_calls"):
                raise InputError(f"a message without 'content' (or 'tool_calls'): {message!r}")
        if tools and "tools" not in chosen:
            raise InputError("the chat template of this model knows no tools")
        messages = list(map(_with_thoughts, _marked(messages) if resume else messages))
        seen = {"documents": None, **self.settings, **given, "messages": messages,
                "tools": list(tools) or None,
                "add_generation_prompt": prompt and not resume}  # fmt: skip
        text = _render(chosen, seen)
        return _resumed(text) if resume else text


def _render(template: str, seen: Mapping[str, Any]) -> str:
    try:
        compiled, budget = _compiled(template)
        return str(compiled.render({**seen, budget.NAME: budget()}))
    except InputError:
        raise
    except Exception as error:  # whatever a stranger's template does to its messages
        fault = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"the chat template refuses the messages: {fault}") from None


def _with_thoughts(message: Message) -> Message:
    """What a model thought, under the names that templates know it by, as transformers has it."""
    said = next((message[name] for name in THOUGHTS if message.get(name) is not None), None)
    if said is None:
        return message
    rest = {name: value for name, value in message.items() if value is not None}
    return {**message, "thinking": said, **rest, "reasoning_content": said}


def _marked(messages: Sequence[Message]) -> list[Message]:
    """With a mark at the end of what the last message says: its text may occur elsewhere."""
    said = messages[-1].get("content") if messages else None
    if not isinstance(said, str) or not said.strip():
        raise InputError("the last message has no text to be continued")
    return [*messages[:-1], {**messages[-1], "content": f"{said}{MARK} "}]


def _resumed(text: str) -> str:
    """The text up to the mark; where a template strips what is said, this is stripped too."""
    before, mark, after = text.rpartition(MARK)
    if not mark:
        raise InputError("the chat template changes the last message: it cannot be continued")
    return before if after.startswith(" ") else before.rstrip()


@lru_cache(16)
def _compiled(template: str) -> tuple[Any, Any]:
    """The template, and the class of what a rendering may do. Raises jinja2.TemplateError,
    InputError without that package."""
    try:
        from jinja2 import TemplateError

        from .sandbox import Budget, Sandbox
    except ImportError:
        raise InputError(f"chat templates need jinja2: {to_install('text')}") from None

    def fail(message: str) -> None:
        raise TemplateError(message)

    environment = Sandbox(tojson=_as_json)
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.parsed(template), Budget


def _as_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


# ---- where they are kept


def read_templates(directory: Path, values: Mapping[str, Any]) -> Templates:
    """Files of their own, or what tokenizer_config.json (values) has. Raises WeightsError."""
    files = {DEFAULT: directory / "chat_template.jinja"}
    more = sorted((directory / "additional_chat_templates").glob("*.jinja"))
    files |= {file.stem: file for file in more}
    named = {name: _text(file) for name, file in files.items() if file.exists()}
    single = directory / "chat_template.json"
    if not named and single.exists():
        values = {**values, **read_json(single)}
    return Templates(named or _named(values.get("chat_template")), special_tokens(values))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise WeightsError(f"{file}: not a readable text: {error}") from None


def _named(found: Any) -> dict[str, str]:
    """One text, or several by name: a mapping, or a list of {"name", "template"}."""
    if isinstance(found, list):
        entries = [entry for entry in found if isinstance(entry, dict)]
        found = {str(entry.get("name")): entry.get("template") for entry in entries}
    elif not isinstance(found, dict):
        found = {DEFAULT: found}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def special_tokens(values: Mapping[str, Any]) -> dict[str, Any]:
    """Texts of special tokens: plain, or as {"content": ...}."""
    found = {}
    for name, value in values.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def gguf_templates(given: Mapping[str, Any], settings: Mapping[str, Any]) -> Templates:
    """Of a GGUF file's metadata: tokenizer.chat_template, and others by name."""
    key = "tokenizer.chat_template"
    named = {name.removeprefix(f"{key}."): text for name, text in given.items()
             if name.startswith(f"{key}.") and isinstance(text, str)}  # fmt: skip
    default = BY_NAME.get(str(given.get(key)), given.get(key))
    return Templates(({DEFAULT: default} if isinstance(default, str) else {}) | named, settings)


