"""What a family is, and the renaming that most of them need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ....errors import WeightsError
from ....weights.fields import Fields
from ....weights.packed import stacked
from ..config import DecoderConfig, Rope, rope

State: TypeAlias = dict[str, np.ndarray]


def unchanged(state: State, config: DecoderConfig) -> State:
    """The checkpoint has our names (those of Llama)."""
    return state


@dataclass(frozen=True)
class Family:
    """name: model_type of config.json. config: reads it. adapt: renames and splits the tensors of a
    checkpoint (views; nothing is read)."""

    name: str
    config: Callable[[Fields], DecoderConfig]
    adapt: Callable[[State, DecoderConfig], State] = unchanged


def renamed(state: State, parts: Mapping[str, str]) -> State:
    """Parts of names between dots replaced: {"wte": "embed_tokens"}."""
    return {
        ".".join(parts.get(part, part) for part in name.split(".")): value
        for name, value in state.items()
    }


def substituted(state: State, patterns: Iterable[tuple[str, str]]) -> State:
    """Patterns in names replaced, one after the other: (what `re.sub` finds, what it puts)."""
    found: State = {}
    for name, value in state.items():
        for theirs, ours in patterns:
            name = re.sub(theirs, ours, name)
        found[name] = value
    return found


def split_rows(state: State, name: str, parts: Mapping[str, int]) -> None:
    """A packed tensor cut along its rows: {new name: rows}, in order."""
    packed, start = state.pop(name, None), 0
    if packed is None or packed.shape[:1] != (sum(parts.values()),):
        got = "missing" if packed is None else f"of shape {packed.shape}"
        raise WeightsError(f"tensor {name!r} is {got}; it needs {sum(parts.values())} rows")
    for part, rows in parts.items():
        state[part] = packed[start : start + rows]
        start += rows


def stack_experts(state: State, prefix: str, count: int, names: Mapping[str, str]) -> None:
    """The matrices of single experts, {name in the checkpoint: ours}, stacked; what is stacked
    already stays."""
    for theirs, ours in names.items():
        pieces = [state.pop(f"{prefix}experts.{n}.{theirs}.weight", None) for n in range(count)]
        found = [piece for piece in pieces if piece is not None]
        if len({piece.shape for piece in found}) > 1:
            raise WeightsError(f"the experts of {prefix}{ours} differ in their shapes")
        if len(found) == count:
            state[f"{prefix}{ours}.weight"] = stacked(found)


def split_groups(state: State, name: str, part: str, config: DecoderConfig) -> None:
    """A packed tensor whose rows are, for each head of keys, its queries, the key, the value."""
    packed, kv = state.pop(name), config.kv_heads
    rows = (config.heads + 2 * kv) * config.head_dim
    if packed.shape[:1] != (rows,):
        raise WeightsError(f"tensor {name!r} is of shape {packed.shape}; it needs {rows} rows")
    groups = packed.reshape(kv, -1, config.head_dim, *packed.shape[1:])
    for letter, found in (("q", groups[:, :-2]), ("k", groups[:, -2]), ("v", groups[:, -1])):
        own = np.ascontiguousarray(found).reshape(-1, *packed.shape[1:])
        state[name.replace(f".{part}.", f".{letter}_proj.")] = own


def defaults(values: Fields, **usual: Any) -> Fields:
    """The fields, with these values where there are none."""
    missing = {name: value for name, value in usual.items() if not values.has(name)}
    return Fields({**values.values, **missing}, values.where)


def interleaved(values: Fields) -> dict[str, Rope]:
    """Rotary positions of features that lie side by side."""
    return {"all": replace(rope(values), interleaved=True)}
