"""What transformers over images and prompts share: attention, MLP, a block, names of weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import nn, ops
from ...errors import Unsupported, WeightsError
from ...graph import Graph, Tensor
from ...nn.activation import BY_NAME, activation_of
from ...nn.attention import heads as split_heads
from ...nn.attention import merged
from ...weights.fields import Fields, exists

Rotary = Callable[[Tensor], Tensor]  # of (batch, heads, tokens, head_dim)
Renames = Iterable[tuple[str, str]]  # regular expressions and what stands in their place


def attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None = None,
    rotary: Rotary | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """What (batch, tokens, features) projected take from each other, head by head: (batch, tokens,
    features)."""
    q, k, v = (split_heads(part, heads) for part in (query, key, value))
    if rotary is not None:
        q, k = rotary(q), rotary(k)
    return merged(ops.scaled_dot_product_attention(q, k, v, mask, scale=scale))


class MLP(nn.Module):
    """To another width and back, or to a third one."""

    def __init__(
        self, graph: Graph, width: int, inner: int, activation: str, out: int | None = None
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(graph, width, inner)
        self.fc2 = nn.Linear(graph, inner, out or width)
        self.activation = activation_of(activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


class Block(nn.Module):
    """Attention and an MLP, each after a norm, with residuals around both."""

    def __init__(
        self, graph: Graph, width: int, heads: int, inner: int, activation: str,
        eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(graph, width, eps)
        self.self_attn = nn.Attention(graph, width, heads)
        self.layer_norm2 = nn.LayerNorm(graph, width, eps)
        self.mlp = MLP(graph, width, inner, activation)

    def forward(self, x: Tensor, **seen: Any) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), **seen)
        return x + self.mlp(self.layer_norm2(x))


def config_of(directory: Path, kinds: Iterable[str]) -> tuple[Fields, str]:
    """The config.json of a folder, and its model_type, one of these. Raises WeightsError,
    Unsupported."""
    if not exists(directory / "config.json"):
        raise WeightsError(f"{directory}: no config.json in this folder")
    given = Fields.load(directory / "config.json")
    kind = given.text("model_type")
    if kind not in kinds:
        raise Unsupported(f"{directory}: {kind!r}; there are {', '.join(kinds)}")
    return given, kind


def sizes(usual: Any, given: Fields, **others: Any) -> Any:
    """A config like the usual one, a frozen dataclass, with the whole numbers, the activation and
    the epsilon of norms that are given. others: fields that are read otherwise. Raises
    WeightsError."""
    counts = {name: given.count(name, value) for name, value in vars(usual).items()
              if type(value) is int and name not in others}  # fmt: skip
    act = given.text("hidden_act", usual.hidden_act, among=BY_NAME)
    eps = given.number("layer_norm_eps", usual.layer_norm_eps, low=0, high=1)
    return replace(usual, **counts, hidden_act=act, layer_norm_eps=eps, **others)


def renamed(state: Mapping[str, Any], renames: Renames, drop: str = r"$^") -> dict[str, Any]:
    """A state under other names, without the names that `drop` matches in full."""
    found = {}
    for name, value in state.items():
        if not re.fullmatch(drop, name):
            for pattern, new in renames:
                name = re.sub(pattern, new, name)
            found[name] = value
    return found


def names_of(given: Fields, count: int) -> list[str]:
    """Of classes, from id2label."""
    known = given.fields("id2label").values
    return [str(known.get(str(n), f"class {n}")) for n in range(count)]
