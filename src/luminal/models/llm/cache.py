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
from ...graph.index import Index
from ...ops.base import Size
from .carry import Layout, OneCarry, SeatCarry, state_bytes
from .config import DecoderConfig

KINDS = ("f32", "f16", "int8")


def cache_bytes(config: DecoderConfig, positions: int, kind: str = "f32") -> int:
    """Of keys and values of all layers, and states of one sequence. Raises Unsupported."""
    positions *= len(config.attending)
    return positions * layer_bytes(config, kind) + state_bytes(config)


def layer_bytes(config: DecoderConfig, kind: str) -> int:
    """Of the keys and values of one position in one layer. Raises Unsupported."""
    if kind not in KINDS:
        raise Unsupported(f"kv={kind!r}; there are {', '.join(KINDS)}")
    rows = {"f32": 4 * config.head_dim, "f16": 2 * config.head_dim, "int8": config.head_dim + 4}
    return (1 if config.latent is not None else 2) * config.kv_heads * rows[kind]


class Cache(Protocol):
    """What a decoder needs. states: the inputs that a run updates in place."""

    states: list[Tensor]

    def rows(self, table: Tensor) -> Tensor:
        """The rows of a table (positions, features) at the tokens' positions."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Causal attention (heads, tokens, head_dim) of the query over the keys and values of the
        layer, these new ones (kv heads, tokens, head_dim) too, which are kept. value: None where
        the first numbers of keys are the values (`Latent`). sinks: (heads,), scores that take part
        in each softmax besides."""


@dataclass(frozen=True)
class Rows:
    """Keys or values of a layer: rows of head_dim numbers, of f32 ("f32") or rounded to f16
    ("f16"); or i8 with a scale for each row ("int8"): a row is q * s with whole q, s = its largest
    size / 127, so that a number is off by s / 2 at most; a row of zeros stays so.
    """

    numbers: Tensor
    scales: Tensor | None

    @staticmethod
    def of(graph: Graph, shape: tuple[int, ...], kind: str, name: str) -> Rows:
        if kind != "int8":
            return Rows(graph.tensor(shape, kind, name), None)
        scales = graph.tensor((*shape[:-1], 1), name=f"{name}.scales")
        return Rows(graph.tensor(shape, "i8", name), scales)

    @property
    def states(self) -> list[Tensor]:
        return [self.numbers] if self.scales is None else [self.numbers, self.scales]

    def keep(self, new: Tensor, write: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Write new rows, f32. write: (state, new numbers of it) -> what is to be read of it."""
        if self.scales is None:
            return write(self.numbers, new.cast(self.numbers.dtype)).cast("f32")
        scale = ops.amax(ops.abs(new), -1, True) * (1 / 127)
        whole = ops.round(new / ops.where(scale > 0, scale, 1.0)).cast("i8")
        return write(self.numbers, whole).cast("f32") * write(self.scales, scale)


def _layers(
    graph: Graph, config: DecoderConfig, shape: tuple[int, ...], kind: str
) -> tuple[dict[int, Rows], dict[int, Rows]]:
    """The keys and the values of each layer; none of these where they are part of the keys."""
    layers = config.attending
    keys = {layer: Rows.of(graph, shape, kind, f"keys{layer}") for layer in layers}
    if config.latent is not None:
        return keys, {}
    return keys, {layer: Rows.of(graph, shape, kind, f"values{layer}") for layer in layers}


def _states(*rows: dict[int, Rows]) -> list[Tensor]:
    return [state for found in rows for each in found.values() for state in each.states]


def _values(
    config: DecoderConfig, rows: dict[int, Rows], layer: int, keys: Tensor, value: Tensor | None,
    write: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """What is to be read of the values of a layer, the new ones too."""
    if value is not None:
        return rows[layer].keep(value, write)
    assert config.latent is not None
    return keys.narrow(-1, 0, config.latent.rank)


class ContiguousCache:
    """One sequence: keys and values (kv heads, context, head_dim) of each layer.

    tokens: how many a run has. position: of the first of them. kind: see `Rows`.
    """

    def __init__(
        self, graph: Graph, config: DecoderConfig, context: int, tokens: Size, position: Size,
        kind: str = "f32",
    ) -> None:  # fmt: skip
        self.config, self.tokens, self.position = config, tokens, graph.size(position)
        shape = (config.kv_heads, context, config.head_dim)
        self.keys, self.values = _layers(graph, config, shape, kind)
        self.carry = OneCarry(graph, config, tokens, self.position)
        self.states = _states(self.keys, self.values) + self.carry.states

    def rows(self, table: Tensor) -> Tensor:
        return table.narrow(0, self.position, self.tokens)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        config, graph = self.config, query.graph
        keys = self.keys[layer].keep(key, self._write)  # (kv heads, keys, head_dim)
        values = _values(config, self.values, layer, keys, value, self._write)
        query = query.unflatten(0, (config.kv_heads, -1))  # (kv heads, group, tokens, head_dim)
        scores = ops.matmul(query, keys.unsqueeze(1).mT)  # (kv heads, group, tokens, keys)
        ahead = graph.iota(scores.shape, Index.of("i3") - Index.of("i2") - self.position)
        sunk = None if sinks is None else sinks.reshape(config.kv_heads, -1, 1, 1)
        shares = _shares(config, scores, ahead, config.windows[layer], sunk)
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

    def __init__(
        self, graph: Graph, config: DecoderConfig, pool: int, page: int,
        positions: Tensor, slots: Tensor, table: Tensor, kind: str = "f32",
        layout: tuple[Layout, int] | None = None,
    ) -> None:  # fmt: skip
        """pool: how many pages there are."""
        self.config, self.pool, self.page = config, pool, page
        self.positions, self.slots, self.table = positions, slots, table
        shape = (pool * page, config.kv_heads, config.head_dim)
        self.keys, self.values = _layers(graph, config, shape, kind)
        self.states = _states(self.keys, self.values)
        if layout is not None:
            self.carry = SeatCarry(graph, config, *layout)
            self.states += self.carry.states

    def rows(self, table: Tensor) -> Tensor:
        return ops.index_select(table, 0, self.positions)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        config, graph = self.config, query.graph
        keys = self.keys[layer].keep(key, self._write)
        values = _values(config, self.values, layer, keys, value, self._write)
        query = query.unflatten(0, (config.kv_heads, -1)).permute(2, 0, 1, 3)
        scores = ops.matmul(query, keys.mT)  # (tokens, kv heads, group, keys)
        place = graph.iota(scores.shape[-1:], "i0")
        ahead = place - self.positions.reshape(-1, 1, 1, 1)
        sunk = None if sinks is None else sinks.reshape(config.kv_heads, -1, 1)
        shares = _shares(config, scores, ahead, config.windows[layer], sunk)
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


def _shares(
    config: DecoderConfig, scores: Tensor, ahead: Tensor, window: int | None, sinks: Tensor | None
) -> Tensor:
    """How much of each value a token takes, from raw scores. ahead: how far a key lies after the
    token; it sees none that comes later, none before its window. sinks: as of `attend`, over the
    dimensions of scores."""
    scale = config.attention_scale
    scores = scores * (config.head_dim**-0.5 if scale is None else scale)
    if config.attention_cap is not None:
        scores = ops.tanh(scores * (1 / config.attention_cap)) * config.attention_cap
    seen = ahead < 1 if window is None else (ahead < 1) & (ahead > -window)
    scores = ops.where(seen, scores, float("-inf"))
    shares = ops.softmax(scores, -1)
    if sinks is None:
        return shares
    return shares * ops.sigmoid(ops.logsumexp(scores, -1, True) - sinks)  # e^l / (e^l + e^sink)
