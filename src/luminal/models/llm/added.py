"""What the files beside a tokenizer say of it: names of special tokens, tokens that were added."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...weights.fields import Fields, read_json
from ..tokenizing import tokenizers
from .templates import special_tokens

DECODER, EXTRA = "added_tokens_decoder", "extra_special_tokens"


def read_settings(directory: Path) -> dict[str, Any]:
    """tokenizer_config.json; where that has no list of added tokens, what the older files
    special_tokens_map.json and added_tokens.json say goes before, as in transformers. Raises
    WeightsError."""
    values = _read(directory / "tokenizer_config.json")
    older = DECODER not in values
    values |= _read(directory / "special_tokens_map.json") if older else {}
    values[EXTRA] = values.get(EXTRA) or values.get("additional_special_tokens")
    if isinstance(values[EXTRA], dict):  # tokens with names of their own
        values |= {**values[EXTRA], EXTRA: list(values[EXTRA].values())}
    if older:
        added = _read(directory / "added_tokens.json")
        values[DECODER] = {str(number): {"content": text} for text, number in added.items()}
    return values


def add_tokens(raw: Any, values: Mapping[str, Any], where: str, spaced: bool = False) -> None:
    """Give a tokenizer of the tokenizers package the tokens of the settings, in the order of their
    numbers, and special ones that it has not. spaced: a space comes before every text, so that
    tokens are looked for before that. Raises WeightsError."""
    given, named = Fields(values, where), special_tokens(values)
    if not isinstance(values.get(EXTRA) or [], list):
        raise given.wrong(EXTRA, "a list of tokens")
    extra = [_entry(each) for each in values.get(EXTRA) or ()]
    names = {*named.values(), *(str(each.get("content")) for each in extra)}
    decoder = given.fields(DECODER)
    numbers = sorted(decoder.values, key=lambda text: (len(text), text))
    found = {decoder.fields(n).text("content"): decoder.fields(n) for n in numbers}
    known = {token.content for token in raw.get_added_tokens_decoder().values()} | set(found)
    for entry in (*(_entry(values[name]) for name in named), *extra):
        if entry.get("content") not in known:
            found[str(entry.get("content"))] = Fields(entry, where)
    raw.add_tokens([_token(each, text in names, spaced) for text, each in found.items()])


def _read(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _entry(token: Any) -> Mapping[str, Any]:
    """A text, or an object with one and more about it."""
    return token if isinstance(token, Mapping) else {"content": token}


def _token(entry: Fields, special: bool, spaced: bool) -> Any:
    special = special or entry.flag("special")
    flags = {name: entry.flag(name) for name in ("lstrip", "rstrip", "single_word")}
    normalized = entry.flag("normalized", not special) and not spaced
    text = entry.text("content")
    return tokenizers().AddedToken(text, special=special, normalized=normalized, **flags)
