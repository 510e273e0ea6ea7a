"""Text to tokens and back: tokenizers, chat templates, streaming without half characters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import InputError, WeightsError
from .checkpoint import read_json

UNFINISHED = "\ufffd"  # what a decoder shows for bytes that are no whole character
Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Tool = Mapping[str, Any]  # {"type": "function", "function": {"name": ..., "parameters": a schema}}


class Tokenizer:
    """A tokenizer with its chat template and special tokens.

    raw: of the tokenizers package. settings: those of tokenizer_config.json that templates use.
    """

    def __init__(
        self, raw: Any, template: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.raw, self.template = raw, template
        self.settings = dict(settings or {})

    @property
    def vocabulary(self) -> int:
        """The number of tokens, added ones too."""
        return int(self.raw.get_vocab_size())

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids; with the tokens that the model wants around every text if `special`. Raises
        InputError for half a surrogate pair, which is no character."""
        try:
            return list(self.raw.encode(text, add_special_tokens=special).ids)
        except TypeError:
            raise InputError(f"no text: {text[:40]!r}") from None

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of token ids; special tokens are shown only if asked for."""
        return str(self.raw.decode(list(ids), skip_special_tokens=not special))

    def token(self, text: str) -> int | None:
        """The id of a token, if there is one."""
        found: int | None = self.raw.token_to_id(text)
        return found

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of a conversation, ready for the assistant's reply. Raises InputError."""
        return self.encode(self.render(messages, tools), special=False)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """The text that the chat template makes of a conversation. tools: functions that the model
        may call. Raises InputError."""
        if self.template is None:
            raise InputError("this model has no chat template: give a text, not messages")
        for message in messages:
            if not isinstance(message, Mapping) or "role" not in message:
                raise InputError(f"no message with 'role' and 'content': {message!r}")
        if tools and "tools" not in self.template:
            raise InputError("the chat template of this model knows no tools")
        return _render(self.template, list(messages), list(tools), self.settings)


def _render(
    template: str, messages: list[Message], tools: list[Tool], settings: Mapping[str, Any]
) -> str:
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InputError("chat templates need jinja2: pip install luminal[text]") from None

    def fail(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
        return compiled.render(
            messages=messages, tools=tools or None, add_generation_prompt=True, **settings
        )
    except TemplateError as error:
        raise InputError(f"the chat template refuses the messages: {error}") from None


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a model's directory. Raises WeightsError."""
    file = directory / "tokenizer.json"
    if not file.exists():
        raise WeightsError(f"{directory}: no tokenizer.json; a fast tokenizer is needed for text")
    try:
        raw = tokenizers().Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise WeightsError(f"{file}: not a tokenizer: {error}") from None
    raw.no_truncation()
    raw.no_padding()
    config = directory / "tokenizer_config.json"
    values = read_json(config) if config.exists() else {}
    return Tokenizer(raw, _template(directory, values), _settings(values))


def tokenizers() -> Any:
    """The tokenizers package. Raises WeightsError where it is not installed."""
    try:
        import tokenizers as package
    except ImportError:
        raise WeightsError("texts need the tokenizers package: pip install luminal[text]") from None
    return package


def _template(directory: Path, values: Mapping[str, Any]) -> str | None:
    """The default chat template: a file of its own, one text, or one of several by name."""
    file = directory / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    found = values.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Texts of special tokens: plain, or as {"content": ...}."""
    found = {}
    for name, value in values.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


class Pieces:
    """Token ids one by one to pieces of text; a character whose bytes are not all there waits."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # what is decoded again, as the text of a token depends on those before
        self._told = 0  # ids whose text was given out

    def push(self, token: int) -> str:
        """The text that is certain now: maybe none."""
        self._ids.append(token)
        return self._advance(held=True)

    def flush(self) -> str:
        """What waited for more bytes, as it is."""
        return self._advance(held=False)

    def _advance(self, held: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._start : self._told])
        whole = self._tokenizer.decode(self._ids[self._start :])
        if len(whole) <= len(before) or (held and whole.endswith(UNFINISHED)):
            return ""
        self._start, self._told = self._told, len(self._ids)
        return whole[len(before) :]


class StopTexts:
    """Cuts a stream of text at the first of some texts; holds back what may be the start of one."""

    def __init__(self, texts: Sequence[str]) -> None:
        if any(not text for text in texts):
            raise InputError("a stop text must not be empty")
        self._texts = tuple(texts)
        self._held = ""
        self.found = False

    def push(self, piece: str) -> str:
        """The text that is certain to lie before any stop text."""
        text = self._held + piece
        ends = [place for stop in self._texts if (place := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)]
        keep = max((overlap(text, stop) for stop in self._texts), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, once the stream has ended."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that begins the stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
