"""How models write calls of functions: a table, from the text that opens one to its parser.

Arguments are JSON, which is read as such: a closing tag inside of a string closes nothing.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

Object = dict[str, Any]
Schemas = Mapping[str, Object]  # of the parameters of the functions that may be called, by name
Found = tuple[list[Object], int]  # calls, and where the text behind them begins

TAG, TAG_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END, PARAMETER_END = "<function=", "</function>", "</parameter>"
MISTRAL, MISTRAL_ID, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
PYTHON = "<|python_tag|>"
MARKERS = (TAG, TAG_END, MISTRAL, MISTRAL_ID, MISTRAL_ARGUMENTS, PYTHON)  # tokens, for some models

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
ARGUMENT = re.compile(
    rf"<parameter=([^>\n]+)>(.*?){PARAMETER_END}(?=\s*(?:<parameter=|{FUNCTION_END}|$))", re.DOTALL
)
SPACE = re.compile(r"\s*")
BETWEEN = re.compile(r"[\s;,]*")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


JSON = json.JSONDecoder(parse_constant=_no_number)


class Broken(ValueError):
    """This is no call, or not all of one."""


@dataclass(frozen=True)
class Opening:
    """marker: with it a call begins. end: that it is complete is seen here (None: at the end of the
    reply). read: (text, place behind the marker, whether the reply has ended, schemas) to the calls
    there; raises Broken."""

    marker: str
    end: str | None
    read: Callable[[str, int, bool, Schemas], Found]


def _tagged(text: str, place: int, ended: bool, schemas: Schemas) -> Found:
    """<tool_call>{...}</tool_call> of Hermes and Qwen, or with <function=...> inside (Qwen coder).
    """
    place = _skip(text, place)
    if text.startswith(FUNCTION, place):
        calls, place = _function(text, place + len(FUNCTION), ended, schemas)
    else:
        calls, place = _json_calls(text, place)
    return calls, _closed(text, place, TAG_END, ended)


def _function(text: str, place: int, ended: bool, schemas: Schemas) -> Found:
    """<function=NAME> with a JSON object (Llama) or <parameter=NAME> values (Qwen coder) in it."""
    name = NAME.match(text, place)
    if name is None or not text.startswith(">", name.end()):
        raise Broken
    place = _skip(text, name.end() + 1)
    if text.startswith("{", place):
        given, place = _json(text, place)
    else:
        properties = properties_of(schemas.get(name[0], {}))
        given = {}
        while found := ARGUMENT.match(text, place):
            given[found[1].strip()] = _value(found[2], properties.get(found[1].strip(), {}))
            place = _skip(text, found.end())
    return [_call(name[0], given)], _closed(text, place, FUNCTION_END, ended)


def _value(text: str, schema: Any) -> Any:
    """An argument as its schema wants it; what does not fit stays a text."""
    text = text.removeprefix("\n").removesuffix("\n")
    if is_text(schema):
        return text
    try:
        return JSON.decode(text.lower() if schema.get("type") == "boolean" else text)
    except (ValueError, RecursionError):
        return text


def properties_of(schema: Object) -> Object:
    """The schemas of an object's parts by name."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def listed(schema: Object, key: str) -> list[Any]:
    """What a schema has under a key; one value counts as a list of it."""
    found = schema.get(key, [])
    return found if isinstance(found, list) else [found]


def is_text(schema: Any) -> bool:
    """Whether a value of this schema may be a text; one of no schema may."""
    if not isinstance(schema, dict) or not schema:
        return True
    kinds = [*listed(schema, "anyOf"), *listed(schema, "oneOf")]
    values = [*listed(schema, "enum"), *([schema["const"]] if "const" in schema else [])]
    return (
        "string" in listed(schema, "type")
        or any(is_text(kind) for kind in kinds)
        or any(isinstance(value, str) for value in values)
    )


def _mistral(text: str, place: int, ended: bool, schemas: Schemas) -> Found:
    """[TOOL_CALLS][{...}, {...}], or [TOOL_CALLS]NAME[ARGS]{...}."""
    place = _skip(text, place)
    name = NAME.match(text, place)
    if name is None:
        return _json_calls(text, place)
    place = name.end()
    if text.startswith(MISTRAL_ID, place):
        own = NAME.match(text, place + len(MISTRAL_ID))
        place = place + len(MISTRAL_ID) if own is None else own.end()
    if text.startswith(MISTRAL_ARGUMENTS, place):
        place += len(MISTRAL_ARGUMENTS)
    given, place = _json(text, _skip(text, place))
    return [_call(name[0], given)], place


def _python(text: str, place: int, ended: bool, schemas: Schemas) -> Found:
    """{"name": ..., "parameters": ...} of Llama 3, one after the other."""
    return _several(text, place, None)


def _bare(text: str, place: int, ended: bool, schemas: Schemas) -> Found:
    """The same without a sign before: of known functions, as a reply may be JSON too."""
    return _several(text, place, schemas)


OPENINGS = (
    Opening(TAG, TAG_END, _tagged),
    Opening(FUNCTION, FUNCTION_END, _function),
    Opening(MISTRAL, None, _mistral),
    Opening(PYTHON, None, _python),
)
BARE = Opening("", None, _bare)


# ---- parts of them


def _skip(text: str, place: int, what: re.Pattern[str] = SPACE) -> int:
    found = what.match(text, place)
    return place if found is None else found.end()


def _closed(text: str, place: int, end: str, ended: bool) -> int:
    """The place behind the end of a call; a reply may end without all of it."""
    place = _skip(text, place)
    if text.startswith(end, place):
        return place + len(end)
    if ended and end.startswith(text[place:]):
        return len(text)
    raise Broken


def _json(text: str, place: int) -> tuple[Any, int]:
    try:
        return JSON.raw_decode(text, place)
    except (ValueError, RecursionError):
        raise Broken from None


def _json_calls(text: str, place: int, known: Schemas | None = None) -> Found:
    """The calls in one JSON value: an object, or a list of them. known: others are none."""
    value, end = _json(text, place)
    calls = []
    for call in value if isinstance(value, list) else [value]:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise Broken
        if known is not None and call["name"] not in known:
            raise Broken
        calls.append(_call(call["name"], call.get("arguments", call.get("parameters", {}))))
    if not calls:
        raise Broken
    return calls, end


def _several(text: str, place: int, known: Schemas | None) -> Found:
    calls, end = _json_calls(text, _skip(text, place), known)
    while True:
        try:
            more, end = _json_calls(text, _skip(text, end, BETWEEN), known)
        except Broken:
            return calls, _skip(text, end, BETWEEN)
        calls += more


def _call(name: str, given: Any) -> Object:
    """In OpenAI's form. The id is as short as Mistral's templates want it."""
    if isinstance(given, str):
        given = _json(given, 0)[0]
    if NAME.fullmatch(name) is None or not isinstance(given, dict):
        raise Broken
    try:
        arguments = json.dumps(given, ensure_ascii=False, allow_nan=False)
        arguments.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        arguments = json.dumps(given)
    except (ValueError, RecursionError):
        raise Broken from None
    function = {"name": name, "arguments": arguments}
    return {"id": uuid.uuid4().hex[:9], "type": "function", "function": function}
