"""How one model writes calls, told by its chat template; and the grammar of a call that must come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import InputError
from ...models.llm import Tokenizer
from ...models.llm.grammar import spaced
from .parsers import (
    FUNCTION,
    MARKERS,
    MISTRAL,
    MISTRAL_ARGUMENTS,
    TAG,
    TAG_END,
    Object,
    is_text,
    listed,
    properties_of,
)  # fmt: skip
from .reader import CallReader

SIGNS = {  # what is in a template --> how calls are written; the first one that is there
    "<parameter=": "coder", TAG: "tagged", MISTRAL_ARGUMENTS: "mistral", MISTRAL: "mistral list"
}  # fmt: skip
PLAIN = "plain"  # JSON and nothing else, as Llama 3.1 does
CALL, BREAK, NEWLINE = "CALL", r'"\n"', "\n"  # in _WRITTEN: the call, a new line
END = r'"\n</parameter>\n"'  # of an argument of Qwen coder's
UNREAD = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "minProperties")  # there
Function = Mapping[str, Any]  # name, perhaps parameters: a JSON schema


@dataclass(frozen=True)
class CallForm:
    """kind: a value of SIGNS, or PLAIN. tokens: the markers that are one token each."""

    kind: str
    tokens: Mapping[str, int]

    @staticmethod
    def of(tokenizer: Tokenizer) -> CallForm:
        """As the template for conversations with functions says."""
        template = tokenizer.templates.choose(tools=True) or ""
        kind = next((kind for sign, kind in SIGNS.items() if sign in template), PLAIN)
        found = {marker: tokenizer.token(marker) for marker in MARKERS}
        return CallForm(kind, {marker: n for marker, n in found.items() if n is not None})

    def reader(self, functions: Sequence[Function]) -> CallReader:
        """Of a reply that may call these functions."""
        schemas = {str(f["name"]): f.get("parameters") or {} for f in functions}
        return CallReader(schemas, self.kind == PLAIN)

    def grammar(self, functions: Sequence[Function]) -> str:
        """Of one call of one of these functions, and nothing else."""
        around, write = _WRITTEN[self.kind]
        calls, rules = [], []
        for number, function in enumerate(functions):
            call, more = write(self, function, number)
            calls.append(call)
            rules += more
        parts = [self.marker(part) if part in MARKERS else part for part in around]
        start = " ".join(f"({' | '.join(calls)})" if part == CALL else part for part in parts)
        return "\n".join([f"start: {start}", *rules, ""])

    def marker(self, text: str) -> str:
        """In a grammar: the token, where there is one."""
        return f"<[{self.tokens[text]}]>" if text in self.tokens else json.dumps(text)


Written = tuple[str, list[str]]  # a call in a grammar, and the rules that it needs


def _object(given: str, form: CallForm, function: Function, number: int) -> Written:
    """{"name": ..., given: {...}}; the schema is a whole of its own: it may have definitions."""
    name = json.dumps(function["name"])
    begin = json.dumps(f'{{"name": {name}, "{given}": ')
    return f'{begin} given_{number} "}}"', [f"given_{number}: %json {spaced(_arguments(function))}"]


def _named(form: CallForm, function: Function, number: int) -> Written:
    """NAME[ARGS]{...}"""
    schema = spaced(_arguments(function))
    begin = f"{json.dumps(function['name'])} {form.marker(MISTRAL_ARGUMENTS)}"
    return f"{begin} given_{number}", [f"given_{number}: %json {schema}"]


def _arguments(function: Function) -> Object:
    """Their schema: of an object, whatever it says besides. Raises InputError."""
    schema: Object = function.get("parameters") or {}
    if "type" in schema and "object" not in listed(schema, "type"):
        raise InputError(f"the parameters of {function['name']} are of type {schema['type']!r}: "
                         "they must be an object")  # fmt: skip
    return {**schema, "type": "object"}


def _elements(form: CallForm, function: Function, number: int) -> Written:
    """<function=NAME> with <parameter=NAME> in it."""
    schema = _arguments(function)
    if unread := [key for key in UNREAD if key in schema]:
        raise InputError(f"{unread[0]} beside the parameters of {function['name']}: not in calls "
                         "as this model writes them")  # fmt: skip
    parts, rules = [json.dumps(f"{FUNCTION}{function['name']}>\n")], []
    shared = {key: part for key, part in schema.items() if key in ("$defs", "definitions")}
    needed = [name for name in listed(schema, "required") if isinstance(name, str)]
    known = properties_of(schema)
    kinds = {**known, **{name: known.get(name, {}) for name in needed}}
    for place, (name, kind) in enumerate(kinds.items()):
        value = f"value_{number}_{place}"
        rules.append(f"{value}{_element(kind, shared)}")
        part = f"{json.dumps(f'<parameter={name}>{NEWLINE}')} {value}"
        parts.append(part if name in needed else f"({part})?")
    return " ".join([*parts, '"</function>"']), rules


def _element(schema: Any, shared: Object) -> str:
    """The rule of a value and of the end behind it: a text stands as it is, all else as JSON.
    shared: definitions. Raises InputError."""
    given: Object = schema if isinstance(schema, dict) else {}
    chosen = listed(given, "enum") or ([given["const"]] if "const" in given else [])
    if chosen and all(isinstance(value, str) for value in chosen):
        return f": ({' | '.join(json.dumps(value) for value in chosen)}) {END}"
    if not is_text(given):
        return f": %json {spaced({**given, **shared})} {END}"
    least, most = given.get("minLength", 0), given.get("maxLength")
    if "pattern" in given or not (isinstance(least, int) and isinstance(most, int | None)):
        raise InputError("a text with a pattern, or a length that is no integer: not in calls as "
                         "this model writes them")  # fmt: skip
    return f"[suffix={END}]: /(?s:.{{{least},{'' if most is None else most}}})/"  # the first end


Writer = Callable[[CallForm, Function, int], Written]
_WRITTEN: Mapping[str, tuple[tuple[str, ...], Writer]] = {  # what is around a call, and the call
    "plain": ((CALL,), partial(_object, "parameters")),
    "tagged": ((TAG, BREAK, CALL, BREAK, TAG_END), partial(_object, "arguments")),
    "coder": ((TAG, BREAK, CALL, BREAK, TAG_END), _elements),
    "mistral": ((MISTRAL, CALL), _named),
    "mistral list": ((MISTRAL, '"["', CALL, '"]"'), partial(_object, "arguments")),
}
