"""Whole sequences of one length side by side, without a cache: how a decoder is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ... import ops
from ...errors import Unsupported
from ...graph import Tensor
from ...graph.index import Index
from .cache import _seen, _shares
from .carry import NoCarry
from .config import DecoderConfig
from .decoder import Decoder


@dataclass(frozen=True)
class Sequences:
    """Tokens (batch * length,) of a decoder, sequence after sequence, each from position 0."""

    config: DecoderConfig
    batch: int
    length: int
    states: list[Tensor] = field(default_factory=list)
    places: Tensor | None = None
    left: Tensor | None = None

    @cached_property
    def carry(self) -> NoCarry:
        return NoCarry(self.config, self.batch, self.length)

    def rows(self, table: Tensor) -> Tensor:
        rows = table.narrow(0, 0, self.length).unsqueeze(0)
        return rows.expand((self.batch, self.length, table.shape[1])).flatten(0, 1)

    def attend(
        self, layer: int, query: Tensor, key: Tensor | None, value: Tensor | None,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """As of `Cache`. Raises Unsupported."""
        if key is None or value is None or self.config.chunked:
            raise Unsupported("training of layers that share keys, see chunks or keep latents")
        query, key, value = (self._by_sequence(x) for x in (query, key, value))
        window, cap = self.config.windows[layer], self.config.attention_cap
        if sinks is None and cap is None and (window is None or window >= self.length):
            scale = self.config.attention_scale
            mixed = ops.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=True
            )
        else:
            mixed = self._general(layer, query, key, value, sinks)
        return mixed.transpose(0, 1).flatten(1, 2)

    def _general(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None
    ) -> Tensor:
        """With a window, a soft cap or sinks."""
        query = query.unflatten(1, (self.config.kv_heads, -1))  # (batch, kv heads, group, ...)
        scores = ops.matmul(query, key.unsqueeze(2).mT)
        ahead = query.graph.iota(scores.shape[-2:], Index.of("i1") - Index.of("i0"))
        sunk = None if sinks is None else sinks.reshape(self.config.kv_heads, -1, 1, 1)
        shares = _shares(self.config, scores, _seen(self.config, layer, ahead, None), sunk)
        return ops.matmul(shares, value.unsqueeze(2)).flatten(1, 2)

    def _by_sequence(self, x: Tensor) -> Tensor:
        """(heads, tokens, head_dim) -> (batch, heads, length, head_dim)."""
        return x.unflatten(1, (self.batch, self.length)).transpose(0, 1)


def next_token_loss(model: Decoder, ids: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy, in nats, of targets (batch, length) after ids (batch, length), i64;
    targets of -100 do not count."""
    batch, length = (int(size) for size in ids.shape)
    hidden = model(ids.flatten(), Sequences(model.config, batch, length))
    return ops.cross_entropy(model.logits(hidden), targets.flatten())
