"""What files say, checked: JSON and metadata as fields of a type and within bounds.

Every configuration goes through here before anything is made of it. A message names the file, the
field, what was expected and what was found.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np

from ..errors import WeightsError

MOST_JSON = 24 << 20  # bytes; a list of lists takes 24 times as many in memory
MOST = 2**31 - 1
LIMITS = {  # of sizes that configurations name: with more of them, nothing would ever be made
    "num_hidden_layers": 4096, "n_layer": 4096, "head_dim": 4096, "num_local_experts": 4096,
    "num_experts": 4096, "vocab_size": 1 << 24, "hidden_size": 1 << 20, "n_embd": 1 << 20,
    "intermediate_size": 1 << 22, "n_inner": 1 << 22, "moe_intermediate_size": 1 << 22,
    "num_attention_heads": 1 << 16, "num_key_value_heads": 1 << 16, "n_head": 1 << 16,
}  # fmt: skip
Kind = TypeVar("Kind", dict[str, Any], list[Any])


def exists(path: Path) -> bool:
    """Whether there is something at a path; at one that is no path for the system, there is not."""
    return os.path.exists(path)


def regular(file: Path) -> Path:
    """The path of a file that can be read to its end. Raises WeightsError for what is none: a
    directory, a device, a pipe."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise WeightsError(f"{file}: cannot be read: {error}") from None
    if not stat.S_ISREG(mode):
        raise WeightsError(f"{file}: not a regular file")
    return file


def read_json(file: Path, kind: type[Kind] = dict) -> Kind:  # type: ignore[assignment]
    """A JSON object, or a list. Raises WeightsError."""
    size = regular(file).stat().st_size
    if size > MOST_JSON:
        raise WeightsError(f"{file}: {size} bytes; at most {MOST_JSON} of JSON are read")
    try:
        text = file.read_bytes()
    except OSError as error:
        raise WeightsError(f"{file}: cannot be read: {error}") from None
    return parse_json(text, str(file), kind)


def parse_json(text: bytes, where: str, kind: type[Kind] = dict, once: bool = False) -> Kind:  # type: ignore[assignment]
    """A JSON object, or a list. once: a name may not stand twice in an object. Raises
    WeightsError."""
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_unique if once else None)
        if b"\\ud" in text.lower():  # half a surrogate pair is no character
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise WeightsError(f"{where}: JSON that is nested too deeply") from None
    except ValueError as error:
        raise WeightsError(f"{where}: not JSON: {error}") from None
    if not isinstance(found, kind):
        raise WeightsError(f"{where}: not a JSON {'object' if kind is dict else 'list'}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return found


class Fields:
    """Values by name: of a JSON object, or of a file's metadata. where: the file, for messages.

    A value that is null counts as missing. Methods raise WeightsError for what is missing without a
    default, of another type, or out of bounds.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    @staticmethod
    def load(file: Path) -> Fields:
        """Of a JSON file."""
        return Fields(read_json(file), str(file))

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def wrong(self, name: str, expected: str) -> WeightsError:
        """The error of a field."""
        value = self.values.get(name)
        got = "nothing" if value is None else reprlib.repr(value)
        return WeightsError(f"{self.where}: {name} must be {expected}, not {got}")

    def number(
        self, name: str, default: float | None = None, low: float = -1e30, high: float = 1e30
    ) -> float:
        """A number that is finite."""
        value = self.values.get(name)
        value = default if value is None else value
        if not _is_number(value) or not low <= value <= high:
            raise self.wrong(name, f"a number{_range(low, high)}")
        return float(value)

    def count(
        self, name: str, default: int | None = None, low: int = 1, high: int | None = None
    ) -> int:
        """A whole number; high: that of LIMITS if None."""
        value = self.values.get(name)
        value = default if value is None else value
        high = LIMITS.get(name, MOST) if high is None else high
        if not _is_number(value) or not low <= value <= high or value != int(value):
            raise self.wrong(name, f"a whole number{_range(low, high)}")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, (bool, np.bool_)):
            raise self.wrong(name, "true or false")
        return bool(value)

    def text(
        self, name: str, default: str | None = None, among: Iterable[str] | None = None
    ) -> str:
        """A text; among: one of these."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, str) or (among is not None and value not in among):
            known = "a text" if among is None else f"one of {', '.join(among)}"
            raise self.wrong(name, known)
        return value

    def fields(self, name: str) -> Fields:
        """An object within this one; an empty one where it is missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return Fields(value or {}, f"{self.where}: {name}")

    def numbers(self, name: str, length: int | None = None) -> list[float]:
        """A list of finite numbers; length: so many."""
        found = self._list(name, "numbers", length)
        if not all(_is_number(value) and math.isfinite(value) for value in found):
            raise self.wrong(name, "a list of numbers")
        return [float(value) for value in found]

    def counts(self, name: str, length: int | None = None, high: int = MOST) -> list[int]:
        """A list of whole numbers from 0 to `high`; length: so many."""
        found, given = self._list(name, "whole numbers", length), self.values[name]
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu" and len(found):
            known = given.min() >= 0 and given.max() <= high
        else:
            known = all(_is_number(v) and 0 <= v <= high and v == int(v) for v in found)
        if not known:
            raise self.wrong(name, f"a list of whole numbers{_range(0, high)}")
        return list(map(int, found))

    def texts(self, name: str, length: int | None = None) -> list[str]:
        """A list of texts; length: so many."""
        found = self._list(name, "texts", length)
        if not all(isinstance(value, str) for value in found):
            raise self.wrong(name, "a list of texts")
        return found

    def _list(self, name: str, of: str, length: int | None) -> list[Any]:
        value = self.values.get(name)
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(value, list) or length not in (None, len(value)):
            raise self.wrong(name, f"a list of {of if length is None else f'{length} {of}'}")
        return value

    # ---- or None where it is missing

    def number_if(self, name: str, low: float = -1e30, high: float = 1e30) -> float | None:
        return self.number(name, None, low, high) if self.has(name) else None

    def count_if(self, name: str, low: int = 1) -> int | None:
        return self.count(name, None, low) if self.has(name) else None

    def counts_if(self, name: str, length: int | None = None) -> list[int] | None:
        return self.counts(name, length) if self.has(name) else None

    # ---- or what is usual

    def counts_or(self, name: str, usual: list[int], length: int | None = None) -> list[int]:
        return self.counts(name, length) if self.has(name) else usual

    def numbers_or(self, name: str, usual: Sequence[float], length: int) -> Sequence[float]:
        return self.numbers(name, length) if self.has(name) else usual


def _is_number(value: Any) -> TypeGuard[float]:
    """Not a truth value, nor NaN."""
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and value == value


def _range(low: float, high: float) -> str:
    if (low, high) == (-1e30, 1e30):
        return ""
    return f" of at least {low}" if high in (MOST, 1e30) else f" from {low} to {high}"
