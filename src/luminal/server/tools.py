"""Functions that a model may call: in the prompt, as a form of the reply, found in a reply.

Two forms are read: <tool_call>{"name": ..., "arguments": ...}</tool_call>, as Qwen and Hermes write
it, where the chat template has that tag; else a reply that is JSON, {"name": ..., "parameters":
...}, as Llama 3.1 writes it, or a list of those.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..models.llm import json_grammar
from ..models.llm.grammar import spaced
from ..models.llm.text import overlap

OPEN, CLOSE = "<tool_call>", "</tool_call>"
Object = dict[str, Any]


@dataclass(frozen=True)
class CallForm:
    """How a model writes calls. tagged: in <tool_call>."""

    tagged: bool

    @staticmethod
    def of(template: str | None) -> CallForm:
        return CallForm(OPEN in (template or ""))

    def grammar(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Of one call of one of these functions, and nothing else."""
        given = "arguments" if self.tagged else "parameters"
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": function["name"]},
                    given: function.get("parameters") or {"type": "object"},
                },
                "required": ["name", given],
                "additionalProperties": False,
            }
            for function in functions
        ]
        schema: Object = calls[0] if len(calls) == 1 else {"anyOf": calls}
        if not self.tagged:
            return json_grammar(schema)
        return f'start: "{OPEN}\\n" call "\\n{CLOSE}"\ncall: %json {spaced(schema)}\n'

    def held_from(self, text: str) -> int:
        """Where a call begins, or may begin, in the text of a reply."""
        if self.tagged:
            start = text.find(OPEN)
            return start if start >= 0 else len(text) - overlap(text, OPEN)
        begin = text.lstrip()[:1]
        return 0 if begin in ("", "{", "[") else len(text)

    def calls(self, text: str) -> list[Object]:
        """The calls in the end of a reply; none where it is something else."""
        pattern = rf"{OPEN}\s*(.*?)\s*(?:{CLOSE}|$)"
        texts = re.findall(pattern, text, re.DOTALL) if self.tagged else [text]
        try:
            found = [call for part in texts for call in _listed(json.loads(part))]
            return [_call(call) for call in found]
        except (ValueError, TypeError, KeyError, RecursionError):
            return []


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _call(call: Mapping[str, Any]) -> Object:
    given = call["arguments"] if "arguments" in call else call["parameters"]
    function = {"name": str(call["name"]), "arguments": json.dumps(given, ensure_ascii=False)}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


@dataclass
class CallReader:
    """The text of a reply as it comes: what may be shown, and the calls at its end."""

    form: CallForm
    _text: str = field(default="", init=False)
    _shown: int = field(default=0, init=False)

    def push(self, piece: str) -> str:
        """The text that is certainly no call."""
        self._text += piece
        start, self._shown = self._shown, max(self._shown, self.form.held_from(self._text))
        return self._text[start : self._shown]

    def finish(self) -> tuple[str, list[Object]]:
        """(what was held back and is no call, the calls)."""
        held = self._text[self._shown :]
        calls = self.form.calls(held)
        return ("" if calls else held), calls
