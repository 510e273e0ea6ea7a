"""Attention of com.microsoft over batches without padding, caches in pages, and blocks of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.base import extent, size_value
from .attention import (
    attended,
    grouped_attention,
    heads_of,
    merged,
    padding,
    places_of,
    rotated,
    row_of,
    written,
)  # fmt: skip
from .base import MICROSOFT, op
from .normalisation import rms

if TYPE_CHECKING:
    from ..record import Recorder


# ---- batches without padding


@op("PackedAttention", domain=MICROSOFT)
def packed_attention(
    at: Recorder, x: Tensor, weight: Tensor, bias: Tensor, offsets: Tensor, ends: Tensor,
    attention_bias: Tensor | None = None, *, num_heads: int, scale: float = 0.0,
    qkv_hidden_sizes: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    joined = ops.add(ops.matmul(x, weight), bias)
    width = int(extent(joined, 1)) // 3
    parts = ops.split(joined, list(qkv_hidden_sizes or [width] * 3), 1)
    return _unpadded(parts, offsets, ends, attention_bias, num_heads, scale, -10000.0)


@op("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_attention(
    at: Recorder, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None,
    offsets: Tensor, ends: Tensor, attention_bias: Tensor | None = None, *, num_heads: int,
    scale: float = 0.0, mask_filter_value: float = -10000.0,
) -> Tensor:  # fmt: skip
    """Tokens (tokens, width), or all in one (tokens, heads, 3, width)."""
    if key is None or value is None:
        parts = [query.select(2, k).flatten(1) for k in range(3)]
    else:
        parts = [query, key, value]
    if bias is not None:
        shares = ops.split(bias, [int(extent(p, 1)) for p in parts], 0)
        parts = [ops.add(p, b) for p, b in zip(parts, shares)]
    return _unpadded(parts, offsets, ends, attention_bias, num_heads, scale, mask_filter_value)


def _unpadded(
    parts: Sequence[Tensor], offsets: Tensor, ends: Tensor, bias: Tensor | None, heads: int,
    scale: float, low: float,
) -> Tensor:  # fmt: skip
    """offsets (batch, seq): where tokens lie in a padded batch, those of padding last. ends
    (batch + 1,): how many tokens come before each sequence."""
    places = offsets.reshape(-1).cast(i64)
    place = places.narrow(0, 0, extent(parts[0], 0))

    def padded(x: Tensor) -> Tensor:
        room = ops.zeros(x.graph, (places.shape[0], x.shape[1]), x.dtype)
        rows = ops.scatter(room, 0, place.unsqueeze(1).expand(x.shape), x)
        return heads_of(rows.reshape((*offsets.shape, x.shape[1])), heads)

    q, k, v = map(padded, parts)
    lengths = ops.sub(ends.narrow(0, 1, extent(offsets, 0)), ends.narrow(0, 0, extent(offsets, 0)))
    summand = padding(lengths, q, k, low)
    if bias is not None and summand is not None:
        summand = ops.add(summand, bias)
    found = merged(attended(q, k, v, summand, False, scale)).flatten(0, 1)
    return ops.index_select(found, 0, place)


# ---- a cache in pages


@op("PagedAttention", domain=MICROSOFT)
def paged_attention(
    at: Recorder, query: Tensor, key: Tensor | None, value: Tensor | None, key_cache: Tensor,
    value_cache: Tensor | None, ends: Tensor, before: Tensor, pages: Tensor,
    cos: Tensor | None = None, sin: Tensor | None = None, slots: Tensor | None = None,
    sink: Tensor | None = None, q_norm: Tensor | None = None, k_norm: Tensor | None = None,
    *scales: Any, num_heads: int, kv_num_heads: int, scale: float = 0.0, softcap: float = 0.0,
    do_rotary: int = 0, rotary_interleaved: int = 0, local_window_size: int = -1,
    is_causal: int = 1, qk_norm_epsilon: float = 1e-6, **attributes: Any,
) -> Any:  # fmt: skip
    """Tokens (tokens, width) of sequences one behind another over pages of keys and values (pages,
    size, kv heads, width), into which they are written first. before: how many tokens of each
    sequence are in its pages already; pages: (batch, ..), -1 where there is none."""
    if value_cache is None or any(s is not None for s in scales[:2]) or any(attributes.values()):
        given = ", ".join(attributes) or "a latent or quantised cache"
        raise Unsupported(f"PagedAttention with {given}")
    if key is None or value is None:
        width = int(extent(query, 1)) // (num_heads + 2 * kv_num_heads)
        sizes = [num_heads * width, kv_num_heads * width, kv_num_heads * width]
        query, key, value = ops.split(query, sizes, 1)
    q = query.unflatten(1, (num_heads, -1)).unsqueeze(2)  # (tokens, heads, 1, width)
    k, v = (x.unflatten(1, (kv_num_heads, -1)).unsqueeze(2) for x in (key, value))
    owner, place = _owners(extent(query, 0), ends, before)
    if q_norm is not None and k_norm is not None:
        q, k = rms(q, q_norm, [3], qk_norm_epsilon), rms(k, k_norm, [3], qk_norm_epsilon)
    if do_rotary:
        assert cos is not None and sin is not None
        q, k = (rotated(x, place, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    size = int(extent(key_cache, 1))
    table = ops.embedding(owner, pages.cast(i64))  # (tokens, pages)
    if slots is None:
        page = ops.gather(table, 1, ops.floor_divide(place, size))
        slots = ops.where(page < 0, -1, ops.add(ops.mul(page, size), place % size)).reshape(-1)
    keys, values = (_stored(cache, x.squeeze(2), slots.cast(i64))
                    for cache, x in ((key_cache, k), (value_cache, v)))  # fmt: skip
    column = ops.arange(at.graph, extent(table, 1) * size)
    last = place if is_causal else ops.sub(ops.embedding(owner, _lengths(ends, before)), 1)
    seen = ops.logical_and(column <= last, ops.repeat_interleave(table, size, 1) >= 0)
    if local_window_size > 0:
        seen = ops.logical_and(seen, column > ops.sub(place, local_window_size))
    lain = [ops.embedding(ops.clamp(table, 0), x).flatten(1, 2).transpose(1, 2)
            for x in (keys, values)]  # fmt: skip
    seen = seen.reshape((seen.shape[0], 1, 1, 1, seen.shape[1]))
    found = grouped_attention(q, lain[0], lain[1], seen, scale, softcap, None, sink,
                              sink is not None)  # fmt: skip
    return merged(found).flatten(1), keys, values


def _lengths(ends: Tensor, before: Tensor) -> Tensor:
    """How many tokens each sequence has then, as rows."""
    count = extent(before, 0)
    new = ops.sub(ends.narrow(0, 1, count), ends.narrow(0, 0, count))
    return ops.add(before, new).cast(i64).unsqueeze(1)


def _owners(tokens: Index, ends: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The sequence (tokens,) of each token, and its place (tokens, 1) there."""
    token = ops.arange(ends.graph, tokens)
    later = ops.ge(token.unsqueeze(1), ends.narrow(0, 1, extent(before, 0)).cast(i64))
    owner = ops.sum(later.cast(i64), 1)
    first = ops.sub(before, ends.narrow(0, 0, extent(before, 0))).cast(i64)
    return owner, ops.add(token, ops.embedding(owner, first)).unsqueeze(1)


def _stored(cache: Tensor, new: Tensor, slots: Tensor) -> Tensor:
    """Rows of new tokens at their slots of a cache, but for those at -1."""
    rows = cache.flatten(0, 1)
    count = extent(rows, 0)
    place = ops.where(slots < 0, size_value(cache.graph, count, i64), slots)
    longer = rows.pad([(0, 1), (0, 0), (0, 0)], 0)
    index = place.unsqueeze(1).unsqueeze(1).expand(new.shape)
    return ops.scatter(longer, 0, index, new).narrow(0, 0, count).reshape(cache.shape)


# ---- blocks of keys


@op("SparseAttention", domain=MICROSOFT)
def sparse_attention(
    at: Recorder, query: Tensor, key: Tensor | None, value: Tensor | None, past_key: Tensor,
    past_value: Tensor, rows: Tensor, columns: Tensor, total: Tensor, lengths: Tensor,
    cos: Tensor | None = None, sin: Tensor | None = None, *, num_heads: int, kv_num_heads: int,
    sparse_block_size: int, scale: float = 0.0, do_rotary: int = 0, rotary_interleaved: int = 0,
) -> Any:  # fmt: skip
    """Causal attention over a cache that has room, to the blocks of keys that a layout of each head
    names. lengths: tokens of each sequence."""
    if key is None or value is None:
        width = int(extent(query, 2)) // (num_heads + 2 * kv_num_heads)
        sizes = [num_heads * width, kv_num_heads * width, kv_num_heads * width]
        query, key, value = ops.split(query, sizes, 2)
    q, k, v = heads_of(query, num_heads), heads_of(key, kv_num_heads), heads_of(value, kv_num_heads)
    own = places_of(ops.sub(lengths.cast(i64), 1), extent(q, 2))
    if do_rotary:
        assert cos is not None and sin is not None
        q, k = (rotated(x, own, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    k, v = written(past_key, k, own), written(past_value, v, own)
    blocks = _dense(at.array(rows), at.array(columns))
    blocks = np.resize(blocks, (num_heads, *blocks.shape[1:]))  # layouts in turns
    table = at.constant(blocks.reshape(kv_num_heads, -1, *blocks.shape[1:])).tensor
    column = ops.arange(q.graph, extent(k, 2))
    block = ops.index_select(table, 3, ops.floor_divide(column, sparse_block_size))
    block = ops.embedding(ops.floor_divide(own, sparse_block_size), block.movedim(2, 0))
    seen = ops.logical_and(block.permute((0, 2, 3, 1, 4)), column <= row_of(own))
    return merged(grouped_attention(q, k, v, seen, scale)), k, v


def _dense(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Layouts (layouts, blocks, blocks) from compressed rows."""
    count = rows.shape[1] - 1
    found = np.zeros((len(rows), count, count), bool)
    for layout, (starts, named) in enumerate(zip(rows, columns)):
        found[layout, np.repeat(np.arange(count), np.diff(starts)), named[: starts[-1]]] = True
    return found
