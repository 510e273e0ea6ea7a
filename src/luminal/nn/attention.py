"""Multi-head attention, its key and value cache, rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from .. import ops
from ..errors import InputError, ShapeError, Unsupported
from ..graph.graph import Graph
from ..graph.index import Index
from ..graph.tensor import Tensor
from ..ops.base import Size
from . import init
from .linear import Linear
from .module import Module

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles that grow with the position (Su et al. 2021).

    Features i and i + width / 2 are a pair, as in Hugging Face models. `frequencies` replaces the
    usual theta^(-2 i / width) (for scaled variants).

    >>> nn.RotaryEmbedding(cx, 8)(cx.tensor((2, "s", 8)), position=5).shape
    (2, s, 8)
    """

    def __init__(
        self, graph: Graph, width: int, max_positions: int = 4096, theta: float = 10000.0,
        frequencies: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if frequencies is None:
            frequencies = theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
        angles = np.arange(max_positions)[:, None] * frequencies[None]  # (positions, width / 2)
        self.cos = graph.constant(np.cos(angles).astype(np.float32))
        self.sin = graph.constant(np.sin(angles).astype(np.float32))

    def forward(self, x: Tensor, position: Size = 0) -> Tensor:
        """x: (..., tokens, width), the first token at `position`."""
        length = x.shape[-2]
        cos, sin = (table.narrow(0, position, length) for table in (self.cos, self.sin))
        wide = x.cast("f32") if x.dtype.bytes < 4 else x
        return turned(wide, cos, sin).cast(x.dtype)

    def turn(self, x: Tensor, seen: Seen) -> Tensor:
        """As `Attention` asks for it."""
        turned: Tensor = self(x, seen.position)
        return turned


def turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Pairs of features of x (..., tokens, features) rotated by angles (tokens, pairs); features
    beyond stay. Of interleaved pairs the first ones come first then, in queries and keys alike: no
    product changes."""
    half = int(cos.shape[-1])
    if interleaved:
        first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    else:
        first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    parts = [first * cos - second * sin, second * cos + first * sin]
    if x.shape[-1] != 2 * half:
        parts.append(x[..., 2 * half :])
    return ops.cat(parts, -1)


class KVCache:
    """Keys and values of earlier tokens: two states of the graph, kept in place between runs.

    keys and values: (batch, kv heads, capacity, width). Not a module: it holds no weights.

    >>> cache, new = nn.KVCache(cx, 1, 2, 64, 8), cx.tensor((1, 2, "s", 8))
    >>> keys, values = cache.update(new, new, position=0)
    >>> keys.shape
    (1, 2, s, 8)
    """

    def __init__(
        self, graph: Graph, batch: Size, kv_heads: int, capacity: int, width: int,
        dtype: Any = "f32", name: str = "cache",
    ) -> None:  # fmt: skip
        shape = (batch, kv_heads, capacity, width)
        self.keys = graph.tensor(shape, dtype, f"{name}.keys")
        self.values = graph.tensor(shape, dtype, f"{name}.values")
        if all(isinstance(size, int) for size in shape):
            for state in (self.keys, self.values):
                state.set(np.zeros(shape, state.dtype.numpy))

    def update(self, key: Tensor, value: Tensor, position: Size) -> tuple[Tensor, Tensor]:
        """Write new keys and values at position, position + 1, ...; all that are there then."""
        return self._write(self.keys, key, position), self._write(self.values, value, position)

    def _write(self, state: Tensor, new: Tensor, position: Size) -> Tensor:
        graph = state.graph
        start, length = graph.size(position), new.node.shape[2]
        capacity = state.node.shape[2]
        graph.require(capacity - start - length, f"cache: {start} + {length} tokens of {capacity}")
        places = graph.iota(new.shape, Index.of("i2") + start)
        whole = state._scatter(places, new.cast(state.dtype), 2)
        graph.donate(state, whole)
        return whole.narrow(2, 0, start + length)


class Memory(Protocol):
    """Where keys and values are kept, and what queries see of them."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """What each query (..., heads, tokens, head_dim) takes of the values, those of this call
        (..., kv heads, tokens, head_dim) too. sinks: (heads,), scores beside those of keys."""


@dataclass(frozen=True)
class Seen:
    """The keys and values of one call, and those of a cache, whose next place is `position`. mask,
    is_causal, scale: as of `ops.scaled_dot_product_attention`."""

    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    cache: KVCache | None = None
    position: Size = 0

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """See `Memory`. Raises Unsupported for sinks, InputError without keys."""
        if key is None or value is None:
            raise InputError("attention without keys and values of its own needs a memory")
        if sinks is not None:
            raise Unsupported("attention with sinks needs the cache of a language model")
        offset: Size = 0
        if self.cache is not None:
            key, value = self.cache.update(key, value, self.position)
            offset = self.position
        return ops.scaled_dot_product_attention(
            query, key, value, self.mask, is_causal=self.is_causal, scale=self.scale,
            enable_gqa=True, offset=offset,
        )  # fmt: skip


class Attention(Module):
    """Attention of several heads, the one of all models: over (batch, tokens, features), from there
    to a context, or over tokens side by side, which a memory tells apart.

    kv_heads: fewer of keys and values than of queries (grouped or multi query attention). context:
    features of what keys and values are made of. names: of the projections that make queries, keys,
    values, and the result; None or left out: there is none; of two, the first makes all three.
    linear: makes a projection of (graph, inputs, outputs, bias, name). norm: makes the norms of
    queries and keys of (graph, features), of each head or, with whole_norm, of all. rotary:
    turns queries and keys. gate: queries are twice as wide, and gate what is mixed. layer: what a
    memory knows its keys by.

    >>> layer, x = nn.Attention(cx, 16, 4, kv_heads=2), cx.tensor((2, "s", 16))
    >>> layer(x, is_causal=True).shape
    (2, s, 16)
    """

    def __init__(
        self, graph: Graph, width: int, heads: int, *, kv_heads: int | None = None,
        head_dim: int | None = None, context: int | None = None, bias: bool = True,
        out_bias: bool | None = None, names: Sequence[str | None] = PROJECTIONS,
        linear: Callable[..., Module] | None = None,
        norm: Callable[[Graph, int], Module] | None = None, whole_norm: bool = False,
        rotary: Any = None, gate: bool = False, sinks: bool = False, layer: int = 0,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.kv_heads, self.layer = heads, kv_heads or heads, layer
        uneven = (head_dim is None and width % heads) or heads % self.kv_heads
        if uneven or (len(names) == 2 and self.kv_heads != heads):
            raise ShapeError(f"{heads} heads of {width} features, {self.kv_heads} kv heads")
        self.head_dim = head_dim or width // heads
        inner, kv = heads * self.head_dim, self.kv_heads * self.head_dim
        wide = inner * (1 + gate)
        self.names, self.rotary, self.gate, self.whole_norm = names, rotary, gate, whole_norm
        made = linear or partial(_linear, dtype)
        self.out = None if len(names) == 3 else names[-1]
        sizes = [(width, wide), (context or width, kv), (context or width, kv)]
        if len(names) == 2:
            sizes = [(width, inner + 2 * kv)]
        for name, size in zip(names, sizes):
            if name is not None and name not in self._modules:
                setattr(self, name, made(graph, *size, bias, name))
        if self.out is not None:
            shown = bias if out_bias is None else out_bias
            setattr(self, self.out, made(graph, inner, width, shown, self.out))
        self.sinks = init.filled(graph, (heads,), 0) if sinks else None
        self.heat: Tensor | None = None  # (positions, 1), factors of queries
        self.v_norm: Module | None = None
        self.attn_sub_norm: Module | None = None  # of what is mixed
        self.q_norm = self.k_norm = None
        if norm is not None:
            self.q_norm = norm(graph, inner if whole_norm else self.head_dim)
        if norm is not None and (len(names) == 2 or names[1] is not None):
            self.k_norm = norm(graph, kv if whole_norm else self.head_dim)

    def forward(
        self, x: Tensor, memory: Memory | None = None, context: Tensor | None = None, **seen: Any
    ) -> Tensor:
        """x: (batch, tokens, width), or (tokens, width) with a memory. context: (batch, keys,
        features), else x. seen: of `Seen`, where there is no memory."""
        place: Any = Seen(**seen) if memory is None else memory
        query, key, value = self.project(x, context)
        if self.rotary is not None:
            query = self.rotary.turn(query, place)
            key = None if key is None else self.rotary.turn(key, place)
        if self.heat is not None:
            query = query * place.rows(self.heat)
        mixed = place.attend(self.layer, query, key, value, self.sinks)
        if self.gate:
            wide = heads(self._modules[str(self.names[0])](x), self.heads)
            mixed = mixed * ops.sigmoid(wide[..., self.head_dim :])
        return self.result(merged(mixed))

    def project(self, x: Tensor, context: Tensor | None = None) -> tuple[Any, Any, Any]:
        """Queries, keys and values (..., heads, tokens, head_dim), normed; None where the module
        makes none."""
        source = x if context is None else context
        if len(self.names) == 2:
            query, key, value = unpacked(self._modules[str(self.names[0])](x), self.heads)
            return _through(self.q_norm, query), _through(self.k_norm, key), value
        made = [self._part(0, x, self.q_norm), self._part(1, source, self.k_norm),
                self._part(2, source, self.v_norm)]  # fmt: skip
        return made[0], made[1], made[2]

    def _part(self, place: int, x: Tensor, norm: Module | None) -> Tensor | None:
        """Queries, keys or values (0, 1, 2)."""
        name = self.names[place]
        if name is None:
            return None
        made, whole = self._modules[name](x), self.whole_norm and place < 2
        made = _through(norm, made) if whole else made
        made = heads(made, self.kv_heads if place else self.heads)
        made = made.narrow(-1, 0, self.head_dim) if self.gate and place == 0 else made
        return made if whole else _through(norm, made)

    def result(self, mixed: Tensor) -> Tensor:
        """Of what the heads mixed (..., tokens, features of all heads)."""
        mixed = _through(self.attn_sub_norm, mixed)
        return mixed if self.out is None else self._modules[self.out](mixed)


def _linear(dtype: Any, graph: Graph, inside: int, out: int, bias: bool, _: str) -> Linear:
    return Linear(graph, inside, out, bias, dtype)


def _through(norm: Module | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def heads(x: Tensor, count: int) -> Tensor:
    """(..., tokens, features) as (..., heads, tokens, features of a head)."""
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def merged(x: Tensor) -> Tensor:
    """(..., heads, tokens, head_dim) as (..., tokens, features)."""
    return x.transpose(-3, -2).flatten(-2, -1)


def unpacked(x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values (batch, heads, tokens, head_dim) of (batch, tokens, 3 features)."""
    packed = x.unflatten(-1, (3, count, -1)).permute(2, 0, 3, 1, 4)
    return packed.select(0, 0), packed.select(0, 1), packed.select(0, 2)
