"""Keys and values of earlier tokens, and where the tokens of a run stand among them.

A decoder asks its cache for two things only: rows of a table at its tokens' positions (rotary
angles, learned positions), and attention over all that each token may see. `ContiguousCache` holds
one sequence; `PagedCache` many, in pages of a pool that each sequence lists in a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ... import ops
from ...errors import Unsupported
from ...graph import Graph, Tensor
from ...graph.dtype import u8
from ...graph.index import Index
from ...nn.attention import Memory
from ...ops.base import Size
from .carry import Layout, OneCarry, SeatCarry, state_bytes
from .config import DecoderConfig
from .e4m3 import decoded, encoded

KINDS = ("f32", "f16", "int8", "fp8")


def cache_bytes(config: DecoderConfig, positions: int, kind: str = "f32") -> int:
    """Of keys and values of all layers, and states of one sequence. Raises Unsupported."""
    each = sum(layer_bytes(config, kind, layer) for layer in config.keeping)
    return positions * each + state_bytes(config)


def layer_bytes(config: DecoderConfig, kind: str, layer: int) -> int:
    """Of the keys and values of one position in a layer. Raises Unsupported."""
    kv_heads, size = config.shape(layer)
    if kind not in KINDS:
        raise Unsupported(f"kv={kind!r}; there are {', '.join(KINDS)}")
    rows = {"f32": 4 * size, "f16": 2 * size, "int8": size + 4, "fp8": size}
    return (1 if config.latent is not None else 2) * kv_heads * rows[kind]


class Cache(Memory, Protocol):
    """What a decoder needs. states: the inputs that a run updates in place. places: see
    `given_places`; left: `given_left`."""

    states: list[Tensor]
    places: Tensor | None
    left: Tensor | None

    def rows(self, table: Tensor) -> Tensor:
        """The rows of a table (positions, features) at the tokens' positions."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Causal attention (heads, tokens, head_dim) of the query over the keys and values of the
        layer, these new ones (kv heads, tokens, head_dim) too, which are kept. key: None where
        another layer has those that are seen. value: None there, and where
        the first numbers of keys are the values (`Latent`). sinks: (heads,), scores that take part
        in each softmax besides."""


@dataclass(frozen=True)
class Rows:
    """Keys or values of a layer: rows of head_dim numbers, of f32 ("f32") or rounded to f16
    ("f16"); or i8 with a scale for each row ("int8"): a row is q * s with whole q, s = its largest
    size / 127, so that a number is off by s / 2 at most; a row of zeros stays so; or bytes of E4M3
    ("fp8"), off by a sixteenth of themselves at most, where they are below 448.
    """

    numbers: Tensor
    scales: Tensor | None

    @staticmethod
    def of(graph: Graph, shape: tuple[int, ...], kind: str, name: str) -> Rows:
        if kind != "int8":
            return Rows(graph.tensor(shape, "u8" if kind == "fp8" else kind, name), None)
        scales = graph.tensor((*shape[:-1], 1), name=f"{name}.scales")
        return Rows(graph.tensor(shape, "i8", name), scales)

    @property
    def states(self) -> list[Tensor]:
        return [self.numbers] if self.scales is None else [self.numbers, self.scales]

    def keep(self, new: Tensor, write: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Write new rows, f32. write: (state, new numbers of it) -> what is to be read of it."""
        if self.numbers.dtype is u8:
            return decoded(write(self.numbers, encoded(new)))
        if self.scales is None:
            return write(self.numbers, new.cast(self.numbers.dtype)).cast("f32")
        scale = ops.amax(ops.abs(new), -1, True) * (1 / 127)
        whole = ops.round(new / ops.where(scale > 0, scale, 1.0)).cast("i8")
        return write(self.numbers, whole).cast("f32") * write(self.scales, scale)


Written = Callable[[Tensor, Tensor], Tensor]  # (state, new numbers of it) -> what is read of it


class _Layers:
    """The keys and the values of each layer that has its own; no values where they are part of the
    keys. shape: of a state, of heads of keys and values and their numbers."""

    def __init__(
        self, graph: Graph, config: DecoderConfig, kind: str,
        shape: Callable[[int, int], tuple[int, ...]],
    ) -> None:  # fmt: skip
        self.config, layers = config, config.keeping
        self.keys, self.values = (
            {n: Rows.of(graph, shape(*config.shape(n)), kind, f"{name}{n}") for n in layers}
            if name == "keys" or config.latent is None
            else {}
            for name in ("keys", "values")
        )
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def states(self) -> list[Tensor]:
        rows = [*self.keys.values(), *self.values.values()]
        return [state for each in rows for state in each.states]

    def seen(
        self, layer: int, key: Tensor | None, value: Tensor | None, write: Written
    ) -> tuple[Tensor, Tensor]:
        """What a layer sees, the new keys and values too."""
        source = self.config.source(layer)
        if key is not None:
            keys = self.keys[layer].keep(key, write)
            if value is not None:
                values = self.values[layer].keep(value, write)
            else:
                assert self.config.latent is not None
                values = keys.narrow(-1, 0, self.config.latent.rank)
            self._seen[layer] = keys, values
        return self._seen[source]


class ContiguousCache:
    """One sequence: keys and values (kv heads, context, head_dim) of each layer.

    tokens: how many a run has. position: of the first of them. kind: see `Rows`.
    """

    places: Tensor | None = None
    left: Tensor | None = None

    def __init__(
        self, graph: Graph, config: DecoderConfig, context: int, tokens: Size, position: Size,
        kind: str = "f32",
    ) -> None:  # fmt: skip
        self.config, self.tokens, self.position = config, tokens, graph.size(position)
        self.layers = _Layers(graph, config, kind, lambda heads, size: (heads, context, size))
        self.carry = OneCarry(graph, config, tokens, self.position)
        self.states = self.layers.states + self.carry.states

    def rows(self, table: Tensor) -> Tensor:
        return table.narrow(0, self.position, self.tokens)

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        config, graph = self.config, query.graph
        keys, values = self.layers.seen(layer, key, value, self._write)
        query = query.unflatten(0, (keys.shape[0], -1))  # (kv heads, group, tokens, head_dim)
        scores = ops.matmul(query, keys.unsqueeze(1).mT)  # (kv heads, group, tokens, keys)
        token, place = Index.of("i2") + self.position, Index.of("i3")
        ahead = graph.iota(scores.shape, place - token)
        early = None
        if config.chunked and (size := config.windows[layer]) is not None:
            early = graph.iota(scores.shape, place - token // size * size) < 0
        sunk = None if sinks is None else sinks.reshape(keys.shape[0], -1, 1, 1)
        left = None if self.left is None else self.left.reshape(-1, 1)
        shares = _shares(config, scores, _seen(config, layer, ahead, early, left), sunk)
        return ops.matmul(shares, values.unsqueeze(1)).flatten(0, 1)

    def _write(self, state: Tensor, new: Tensor) -> Tensor:
        """state with the new rows written at their positions; up to the last of them."""
        graph, length = state.graph, new.node.shape[1]
        room = state.node.shape[1] - self.position - length
        graph.require(room, "the context is full")
        whole = state._scatter(graph.iota(new.shape, Index.of("i1") + self.position), new, 1)
        graph.donate(state, whole)
        return whole.narrow(1, 0, self.position + length)


class PagedCache:
    """Tokens of any sequences side by side: keys and values (slots, kv heads, head_dim) of each
    layer, a page being `page` slots in a row.

    positions: (tokens,) i64, of each token in its sequence. slots: (tokens,) i64, where its key and
    value are kept. table: (tokens, pages) i64, the pages of its sequence in order; how those are
    filled up that have fewer does not matter. kind: see `Rows`. layout: of the sequences, and for
    how many there are seats, where layers have states.
    """

    places: Tensor | None = None
    left: Tensor | None = None

    def __init__(
        self, graph: Graph, config: DecoderConfig, pool: int, page: int,
        positions: Tensor, slots: Tensor, table: Tensor, kind: str = "f32",
        layout: tuple[Layout, int] | None = None,
    ) -> None:  # fmt: skip
        """pool: how many pages there are."""
        self.config, self.pool, self.page = config, pool, page
        self.positions, self.slots, self.table = positions, slots, table
        self.bias: Tensor | None = None  # (positions, heads): of scores, by the distance of a key
        self.layers = _Layers(graph, config, kind, lambda heads, size: (pool * page, heads, size))
        self.states = self.layers.states
        if layout is not None:
            self.carry = SeatCarry(graph, config, *layout)
            self.states += self.carry.states

    def rows(self, table: Tensor) -> Tensor:
        return ops.index_select(table, 0, self.positions)

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        config, graph = self.config, query.graph
        keys, values = self.layers.seen(layer, key, value, self._write)
        query = query.unflatten(0, (keys.shape[1], -1)).permute(2, 0, 1, 3)
        scores = ops.matmul(query, keys.mT)  # (tokens, kv heads, group, keys)
        place = graph.iota(scores.shape[-1:], "i0")
        token = self.positions.reshape(-1, 1, 1, 1)
        early = None
        if config.chunked and (size := config.windows[layer]) is not None:
            early = place < token // size * size
        if self.bias is not None:
            far = ops.clamp(self.positions.unsqueeze(1) - place, min=0)  # (tokens, keys)
            bias = ops.embedding(far, self.bias).permute(0, 2, 1)
            scores = scores + bias.unflatten(1, (keys.shape[1], -1))
        sunk = None if sinks is None else sinks.reshape(keys.shape[1], -1, 1)
        left = None if self.left is None else self.left.reshape(-1, 1, 1, 1)
        seen = _seen(config, layer, place - token, early, left)
        shares = _shares(config, scores, seen, sunk)
        out = ops.matmul(shares, values)  # (tokens, kv heads, group, head_dim)
        return out.permute(1, 2, 0, 3).flatten(0, 1)

    def _write(self, state: Tensor, new: Tensor) -> Tensor:
        """The pages of each token's sequence, with the new (kv heads, tokens, head_dim) in the
        tokens' slots."""
        rows = new.transpose(0, 1)
        whole = state._scatter(self.slots.reshape(-1, 1, 1).expand(rows.shape), rows, 0)
        state.graph.donate(state, whole)
        return self._pages(whole)

    def _pages(self, state: Tensor) -> Tensor:
        """(tokens, kv heads, pages * page, head_dim) of each token's sequence."""
        pages = state.unflatten(0, (self.pool, self.page))
        found = ops.index_select(pages, 0, self.table.flatten())
        found = found.unflatten(0, self.table.shape)  # (tokens, pages, page, kv heads, head_dim)
        return found.permute(0, 3, 1, 2, 4).flatten(2, 3)


def _seen(
    config: DecoderConfig, layer: int, ahead: Tensor, early: Tensor | None,
    left: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Which keys a token sees. ahead: how far a key lies after the token; it sees none that comes
    later, but for `left` ones, and none before its window. early: which lie before its chunk, where
    a window is that."""
    window, past = config.windows[layer], ahead < 1 if left is None else ahead <= left
    if window is None:
        return past
    if config.chunked:
        assert early is not None
        return past & ~early
    return past & (ahead > -window)


def _shares(config: DecoderConfig, scores: Tensor, seen: Tensor, sinks: Tensor | None) -> Tensor:
    """How much of each value a token takes, from raw scores of the keys that it sees. sinks: as of
    `attend`, over the dimensions of scores."""
    scale = config.attention_scale
    scores = scores * (config.head_dim**-0.5 if scale is None else scale)
    if config.attention_cap is not None:
        scores = ops.tanh(scores * (1 / config.attention_cap)) * config.attention_cap
    scores = ops.where(seen, scores, float("-inf"))
    shares = ops.softmax(scores, -1)
    if sinks is None:
        return shares
    return shares * ops.sigmoid(ops.logsumexp(scores, -1, True) - sinks)  # e^l / (e^l + e^sink)
