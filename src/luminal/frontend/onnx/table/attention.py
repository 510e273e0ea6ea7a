"""Attention and rotary embedding, of com.microsoft. (Those of the standard are functions, which are
what their bodies say.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import i64
from ....graph.index import Index
from ....graph.tensor import Tensor
from ....ops.attention import attention_scores
from ....ops.base import extent, size_value
from .base import MICROSOFT, op

if TYPE_CHECKING:
    from ..record import Recorder


def heads_of(x: Tensor, count: int) -> Tensor:
    """(batch, seq, heads width) as (batch, heads, seq, width)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """(batch, heads, seq, width) as (batch, seq, heads width)."""
    return x.transpose(1, 2).flatten(2)


def attended(
    q: Tensor, k: Tensor, v: Tensor, summand: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    """softmax(q k^T scale + summand) v; causal: the last query sees the last key."""
    offset = extent(k, k.ndim - 2) - extent(q, q.ndim - 2)
    if summand is None:
        return ops.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale or None, offset=offset
        )
    scores = attention_scores(q, k, None, causal, scale or None, offset)
    return ops.matmul(ops.softmax(ops.add(scores, summand), -1), v)


def padding(mask: Tensor | None, q: Tensor, k: Tensor, low: float) -> Tensor | None:
    """A mask as a summand of scores: (batch,) counts of keys, (batch, keys), or with more
    dimensions, 0 where nothing is seen."""
    if mask is None:
        return None
    if mask.ndim == 1:
        if extent(mask, 0) is not extent(q, 0):
            raise Unsupported("a mask of starts and ends of sequences")
        keys = ops.arange(q.graph, extent(k, 2))
        seen = keys < mask.cast(i64).unsqueeze(1)
    else:
        seen = ops.ne(mask, 0)
    if seen.ndim == 2:
        seen = seen.unsqueeze(1).unsqueeze(1)
    elif seen.ndim == 3:
        seen = seen.unsqueeze(1)
    return ops.where(seen, 0.0, low).cast(q.dtype)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return a if b is None else b if a is None else ops.add(a, b)


def _extended(past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else ops.cat([past, new], 2)


@op("Attention", domain=MICROSOFT)
def attention(
    at: Recorder, x: Tensor, weight: Tensor | None, bias: Tensor | None = None,
    mask: Tensor | None = None, past: Tensor | None = None, attention_bias: Tensor | None = None,
    past_length: Tensor | None = None, *, num_heads: int, unidirectional: int = 0,
    qkv_hidden_sizes: Any = None, scale: float = 0.0, mask_filter_value: float = -10000.0,
    do_rotary: int = 0, past_present_share_buffer: int = 0, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    """(attention of x with its projections, keys and values so far). Without a weight x is queries,
    keys and values already."""
    if do_rotary or past_present_share_buffer:
        raise Unsupported("Attention with rotary embedding or a shared cache")
    joined = x if weight is None else ops.matmul(x, weight)
    joined = joined if bias is None else ops.add(joined, bias)
    width = int(extent(joined, 2))
    sizes = list(qkv_hidden_sizes or [width // 3] * 3)
    q, k, v = (heads_of(part, num_heads) for part in ops.split(joined, sizes, 2))
    if past is not None:
        k, v = _extended(past.select(0, 0), k), _extended(past.select(0, 1), v)
    summand = _sum(padding(mask, q, k, mask_filter_value), attention_bias)
    found = merged(attended(q, k, v, summand, bool(unidirectional), scale))
    return found, (ops.stack([k, v]) if at.wants(1) else None)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    at: Recorder, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    bias: Tensor | None = None, mask: Tensor | None = None,
    attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, *rest: Any, num_heads: int, scale: float = 0.0,
    mask_filter_value: float = -10000.0, unidirectional: int = 0,
) -> Any:  # fmt: skip
    """Queries, keys and values (batch, seq, heads width), or all in one (batch, seq, heads, 3,
    width), keys and values in one (.., heads, 2, width), or keys (batch, heads, seq, width)."""
    if any(part is not None for part in rest):
        raise Unsupported("MultiHeadAttention with a shared cache")
    if query.ndim == 5:
        parts = [query.select(3, k).flatten(2) for k in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [query, *(key.select(3, k).flatten(2) for k in range(2))]
    else:
        assert key is not None and value is not None
        parts = [query, key, value]
    if bias is not None:
        widths = [int(extent(p, 2)) if p.ndim == 3 else 0 for p in parts]
        shares = ops.split(bias, widths, 0) if all(widths) else None
        if shares is None:
            raise Unsupported("MultiHeadAttention with a bias and keys that are heads already")
        parts = [ops.add(p, b) for p, b in zip(parts, shares)]
    q, k, v = (p if p.ndim == 4 else heads_of(p, num_heads) for p in parts)
    k, v = _extended(past_key, k), _extended(past_value, v)
    summand = _sum(padding(mask, q, k, mask_filter_value), attention_bias)
    return merged(attended(q, k, v, summand, bool(unidirectional), scale)), k, v


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    at: Recorder, query: Tensor, key: Tensor | None, value: Tensor | None,
    past_key: Tensor | None, past_value: Tensor | None, lengths: Tensor,
    total: Tensor | None = None, cos: Tensor | None = None, sin: Tensor | None = None,
    places: Tensor | None = None, attention_bias: Tensor | None = None,
    sink: Tensor | None = None, *, num_heads: int, kv_num_heads: int, scale: float = 0.0,
    do_rotary: int = 0, rotary_interleaved: int = 0, local_window_size: int = -1,
    softcap: float = 0.0, smooth_softmax: int = 0, k_quant_type: str = "NONE",
    v_quant_type: str = "NONE", kv_cache_bit_width: int = 0, qk_output: int = 0,
) -> Any:  # fmt: skip
    """Causal attention over a cache. lengths: tokens of each sequence, less 1. A cache that is as
    long as its tokens comes back longer by the new ones; one with room for `total` tokens has the
    new ones written into it."""
    if kv_cache_bit_width:
        raise Unsupported("GroupQueryAttention with a quantised cache")
    if key is None:
        width = int(extent(query, 2)) // (num_heads + 2 * kv_num_heads)
        sizes = [num_heads * width, kv_num_heads * width, kv_num_heads * width]
        query, key, value = ops.split(query, sizes, 2)
    assert value is not None
    q, k, v = heads_of(query, num_heads), heads_of(key, kv_num_heads), heads_of(value, kv_num_heads)
    own = places_of(lengths, extent(q, 2))
    if do_rotary:
        assert cos is not None and sin is not None
        turns = own if places is None else places
        q, k = (rotated(x, turns, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    k, v, row = _kept(at, past_key, past_value, k, v, own, total)
    column = ops.arange(q.graph, extent(k, 2))
    seen = column <= row
    if local_window_size > 0:
        seen = ops.logical_and(seen, column > ops.sub(row, local_window_size))
    if attention_bias is not None:
        attention_bias = _grouped(attention_bias, num_heads // kv_num_heads, extent(k, 2))
    found = grouped_attention(q, k, v, seen, scale, softcap, attention_bias, sink,
                              bool(smooth_softmax) or sink is not None)  # fmt: skip
    return merged(found), k, v


def places_of(lengths: Tensor, new: Index) -> Tensor:
    """The places (batch, new) of new tokens of sequences. lengths: of each with them, less 1; a
    prompt that is shorter than others of its batch has its padding behind."""
    ends = lengths.cast(i64).reshape((-1, 1))
    first = ops.clamp(ops.sub(ends, size_value(lengths.graph, new - 1, i64)), 0)
    return ops.add(first, ops.arange(lengths.graph, new).unsqueeze(0))


def _kept(
    at: Recorder, past_key: Tensor | None, past_value: Tensor | None, k: Tensor, v: Tensor,
    own: Tensor, total: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Keys and values with those of a cache, and the places of queries among them (.., new, 1)."""
    new = extent(k, 2)
    before = extent(past_key, 2) if past_key is not None else Index.of(0)
    room = _has_room(at, total, before + new)
    if past_key is None or past_value is None or not (room or at.decided(extent(k, 0) - 2)):
        here = ops.arange(k.graph, new).unsqueeze(-1)
        row = ops.add(here, size_value(k.graph, before, i64))
        return _extended(past_key, k), _extended(past_value, v), row
    if not room:  # sequences of one batch may end at different places
        longer = [(0, 0), (0, 0), (0, new), (0, 0)]
        past_key, past_value = past_key.pad(longer, 0), past_value.pad(longer, 0)
    return written(past_key, k, own), written(past_value, v, own), row_of(own)


def row_of(places: Tensor) -> Tensor:
    """Places (batch, new) as (batch, 1, 1, new, 1)."""
    return places.unsqueeze(1).unsqueeze(1).unsqueeze(-1)


def grouped_attention(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float = 0.0, softcap: float = 0.0,
    bias: Tensor | None = None, sink: Tensor | None = None, beside: bool = False,
) -> Tensor:  # fmt: skip
    """Of q (batch, heads, new, width) over what is seen of keys and values of fewer heads. seen and
    bias: of (batch, kv heads, group, new, keys). beside: some goes to a sink (0 if None)."""
    split = q.unflatten(1, (int(extent(k, 1)), -1))
    scores = attention_scores(split, k.unsqueeze(2), None, False, scale or None)
    if softcap:
        scores = ops.mul(ops.tanh(ops.div(scores, softcap)), softcap)
    scores = scores if bias is None else ops.add(scores, bias)
    scores = ops.add(scores, ops.where(seen, 0.0, float("-inf")).cast(q.dtype))
    weights = _beside_sink(scores, sink) if beside else ops.softmax(scores, -1)
    return ops.matmul(weights, v.unsqueeze(2)).flatten(1, 2)


def _grouped(bias: Tensor, group: int, keys: Index) -> Tensor:
    """A bias (1 or batch, 1 or heads, new, total) by groups of heads, for so many keys."""
    shared = bias.shape[1] == 1
    split = bias.unsqueeze(2) if shared else bias.unflatten(1, (-1, group))
    rest = keys - extent(bias, 3)
    return split if rest == 0 else split.pad([(0, 0)] * 4 + [(0, rest)], 0)


def _has_room(at: Recorder, total: Tensor | None, longer: Index) -> bool:
    """The cache has room for all tokens. A number that is data is a constant of the program."""
    return total is not None and not at.decided(Index.of(at.size(total)) - longer)


def written(past: Tensor, new: Tensor, places: Tensor) -> Tensor:
    """A cache (batch, heads, room, width) with new rows at their places (batch, new)."""
    index = places.unsqueeze(1).unsqueeze(-1).expand(new.shape)
    return ops.scatter(past, 2, index, new)


def _beside_sink(scores: Tensor, sink: Tensor | None) -> Tensor:
    """Shares (batch, kv heads, group, new, keys) that leave some to a score of each head, or 0."""
    first = ops.amax(scores, -1, True)
    at = 0.0 if sink is None else sink.cast(scores.dtype).reshape((1, *scores.shape[1:3], 1, 1))
    top = ops.maximum(first, at)
    powers = ops.exp(ops.sub(scores, top))
    rest = ops.exp(ops.sub(at, top))
    return ops.div(powers, ops.add(ops.sum(powers, -1, True), rest))


def rotated(
    x: Tensor, places: Tensor, cos: Tensor, sin: Tensor, pairs: bool, width: int = 0
) -> Tensor:
    """x (batch, heads, seq, width) turned by the angles of its places (batch or 1, seq); the first
    `width` numbers of it, all for 0."""
    half = int(extent(cos, 1))
    angles = [ops.embedding(places, table).unsqueeze(1) for table in (cos, sin)]
    turned = width or 2 * half
    part, rest = x.narrow(-1, 0, turned), extent(x, x.ndim - 1) - turned
    if pairs:
        found = ops.apply_rotary_pairs(part, *angles)
    else:
        whole = [ops.cat([a, a], -1) for a in angles]
        found = ops.apply_rotary(part, *whole)
    found = found.cast(x.dtype)
    return found if rest == 0 else ops.cat([found, x.narrow(-1, turned, rest)], -1)


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    at: Recorder, x: Tensor, places: Tensor, cos: Tensor, sin: Tensor, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Tensor:  # fmt: skip
    """x: (batch, seq, heads width) or (batch, heads, seq, width). places: all, or the first."""
    flat = x.ndim == 3
    if flat:
        count = num_heads or int(extent(x, 2)) // (2 * int(extent(cos, 1)))
        x = heads_of(x, count)
    if places.ndim == 1:
        here = ops.arange(x.graph, extent(x, 2))
        places = ops.add(places.cast(i64).reshape((1, 1)), here.unsqueeze(0))
    found = rotated(x, places, cos.cast(x.dtype), sin.cast(x.dtype), bool(interleaved),
                    rotary_embedding_dim)  # fmt: skip
    return merged(found) if flat else found
