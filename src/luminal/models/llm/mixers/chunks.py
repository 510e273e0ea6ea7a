"""Layers with states, many steps at once: what a chunk of steps makes of the state before it as
matrix products, and one state after each chunk. Exponents of decays are never positive.

States that decay and take up outer products, H = exp(a) H + x B, y = H C (Dao and Gu 2024,
https://arxiv.org/abs/2405.21060, section 6): within a chunk with s = cumsum(a)

    y_t = exp(s_t) H C_t + sum over r <= t of exp(s_t - s_r) (C_t B_r) x_r

The delta rule, S = a S, S = S + k d, d = b (v - k S), y = q S (Yang and others 2024,
https://arxiv.org/abs/2412.06464, section 3.3): with the decays in k and q,
(I + b L) d = b (v - k S) for L = k k^T below its diagonal.

RWKV 7's, S = w S - p (n S) + k v (Peng and others 2025, https://arxiv.org/abs/2503.14456), where
decays are of each key: (I + L) u = n S + M v with L = n p^T, M = n k^T below their diagonals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .... import ops
from ....graph import Graph, Tensor
from ....graph.index import Index
from ..carry import Carry

CHUNK = 16  # steps; more have longer sums within, fewer more states
Body = Callable[[Tensor, list[Tensor]], tuple[Tensor, Tensor]]


def decayed(
    carry: Carry, state: Tensor, a: Tensor, x: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """(the last state (sequences, groups, heads of each, head_dim, numbers), ys like x).

    a: (sequences, steps, groups, heads), not positive. x: (..., heads, head_dim). b, c: (sequences,
    steps, groups, numbers).
    """
    return _in_chunks(state, [_real(carry, a), _real(carry, x), b, c], list, _chunk, _step)


def delta(
    carry: Carry, state: Tensor, a: Tensor, query: Tensor, key: Tensor, value: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """(the last state (sequences, keys, heads of each, key, value), ys like the value).

    a, beta: (sequences, steps, keys, heads of each); a not positive. query, key: (sequences, steps,
    keys, key). value: (sequences, steps, keys, heads of each, value).
    """
    given = [_real(carry, a), query, key, value, _real(carry, beta)]
    return _in_chunks(state, given, _delta_ready, _delta_chunk, _delta_step)


def removing(
    carry: Carry, state: Tensor, w: Tensor, r: Tensor, k: Tensor, v: Tensor, n: Tensor, p: Tensor
) -> tuple[Tensor, Tensor]:
    """(the last state (sequences, heads, keys, values), what r reads: like v), RWKV 7's.

    w: logarithms of decays, -2 or more: a chunk's are made good again. All (sequences, steps,
    heads, numbers).
    """
    given = [_real(carry, w), r, k, _real(carry, v), n, _real(carry, p)]
    return _in_chunks(state, given, _removing_ready, _removing_chunk, _removing_step)


def _real(carry: Carry, x: Tensor) -> Tensor:
    """Nothing where a step is no token: it leaves the state as it is."""
    if carry.real is None:
        return x
    return ops.where(carry.real.reshape(*carry.real.shape, *[1] * (x.ndim - 2)), x, 0.0)


def _in_chunks(
    state: Tensor, given: Sequence[Tensor], ready: Callable[[Sequence[Tensor]], list[Tensor]],
    chunk: Body, step: Body,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Whole chunks first, what is left of the steps one by one after them. ready: of given
    (sequences, chunks, CHUNK, ...), what does not depend on states, for all chunks at once."""
    steps = Index.of(given[0].node.shape[1])
    count = steps // CHUNK
    whole = count * CHUNK
    chunks = [part.narrow(1, 0, whole).unflatten(1, (count, CHUNK)) for part in given]
    state, first = ops.scan(chunk, state, [part.transpose(0, 1) for part in ready(chunks)])
    rest = [part.narrow(1, whole, steps - whole) for part in given]
    state, last = ops.scan(step, state, [part.transpose(0, 1) for part in rest])
    return state, ops.cat([first.transpose(0, 1).flatten(1, 2), last.transpose(0, 1)], 1)


def _ahead(graph: Graph) -> Tensor:
    """(CHUNK, CHUNK): how far a step is ahead of another."""
    return graph.iota((CHUNK, CHUNK), Index.of("i0") - Index.of("i1"))


def _between(a: Tensor) -> Tensor:
    """(..., step, earlier step): sums of what lies between, as differences of sums would cancel."""
    return ops.cumsum(ops.where(_ahead(a.graph) > 0, a.unsqueeze(-1), 0.0), -2)


def _inverse(below: Tensor) -> Tensor:
    """Of I + what is below the diagonal (..., CHUNK, CHUNK), by blocks: with those of the diagonal
    inverted, X, those of twice the size are X - X B X, B what lies between the two."""
    graph, size = below.graph, 1
    row, column = (graph.iota((CHUNK, CHUNK), name) for name in ("i0", "i1"))
    found = ops.where(row == column, 1.0, 0.0)
    while size < CHUNK:
        beside = (row // size % 2 == 1) & (column // size == row // size - 1)
        block = ops.where(beside, below, 0.0)
        change = block if size == 1 else ops.matmul(ops.matmul(found, block), found)
        found, size = found - change, 2 * size
    return found


# ---- Mamba 2


def _step(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    a, x, b, c = given
    new = old * ops.exp(a).unsqueeze(-1).unsqueeze(-1)
    new = new + x.unsqueeze(-1) * b.unsqueeze(2).unsqueeze(2)
    return new, (new * c.unsqueeze(2).unsqueeze(2)).sum(-1)


def _chunk(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A chunk: a (sequences, CHUNK, groups, heads), the others alike."""
    a, x, b, c = given
    a = a.permute(0, 2, 3, 1)  # (sequences, groups, heads, steps)
    between = _between(a)
    b, c = b.transpose(1, 2).unsqueeze(2), c.transpose(1, 2).unsqueeze(2)
    decay = ops.exp(ops.where(_ahead(a.graph) >= 0, between, float("-inf")))
    shares = decay * ops.matmul(c, b.mT)
    x = x.permute(0, 2, 3, 1, 4)  # (sequences, groups, heads, steps, head_dim)
    y = ops.matmul(shares, x) + ops.matmul(c, old.mT) * ops.exp(ops.cumsum(a, -1)).unsqueeze(-1)
    taken = x * ops.exp(between[..., CHUNK - 1, :]).unsqueeze(-1)
    new = old * ops.exp(a.sum(-1))[..., None, None] + ops.matmul(taken.mT, b)
    return new, y.permute(0, 3, 1, 2, 4)


# ---- the gated delta rule


def _delta_step(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    a, query, key, value, beta = given
    key = key.unsqueeze(2).unsqueeze(-1)  # (sequences, keys, 1, key, 1)
    kept = old * ops.exp(a).unsqueeze(-1).unsqueeze(-1)
    wrong = (value - (kept * key).sum(-2)) * beta.unsqueeze(-1)
    new = kept + key * wrong.unsqueeze(-2)
    return new, (new * query.unsqueeze(2).unsqueeze(-1)).sum(-2)


def _delta_ready(given: Sequence[Tensor]) -> list[Tensor]:
    """Of d and of what is read: shares of the state's, and what does not depend on it."""
    a, query, key, value, beta = given
    query, key = (x.transpose(2, 3).unsqueeze(3) for x in (query, key))  # (..., 1, steps, key)
    a, beta = (x.permute(0, 1, 3, 4, 2) for x in (a, beta))
    value, beta = value.permute(0, 1, 3, 4, 2, 5), beta.unsqueeze(-1)
    ahead, between = _ahead(a.graph), _between(a)
    decay = ops.exp(ops.where(ahead >= 0, between, float("-inf")))
    since = ops.exp(ops.cumsum(a, -1)).unsqueeze(-1)
    solved = _inverse(ops.where(ahead > 0, ops.matmul(key, key.mT) * decay * beta, 0.0))
    made, taken = ops.matmul(solved, value * beta), ops.matmul(solved, key * since * beta)
    shares = ops.matmul(query, key.mT) * decay
    kept = key * ops.exp(between[..., CHUNK - 1, :]).unsqueeze(-1)
    return [made, taken, query * since, shares, kept, ops.exp(a.sum(-1))[..., None, None]]


def _delta_chunk(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    made, taken, asked, shares, kept, decay = given
    d = made - ops.matmul(taken, old)
    y = ops.matmul(asked, old) + ops.matmul(shares, d)
    return old * decay + ops.matmul(kept.mT, d), y.permute(0, 3, 1, 2, 4)


# ---- RWKV 7


def _removing_step(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    w, r, k, v, n, p = (x.unsqueeze(-1) for x in given)  # (sequences, heads, numbers, 1)
    gone = (old * n).sum(-2, True)
    new = old * ops.exp(w) - p * gone + k * v.mT
    return new, (new * r).sum(-2)


def _removing_ready(given: Sequence[Tensor]) -> list[Tensor]:
    w, r, k, v, n, p = (x.transpose(2, 3) for x in given)  # (..., heads, steps, numbers)
    ahead, since = _ahead(w.graph), ops.cumsum(w, -2)
    end = ops.exp(since[..., CHUNK - 1 :, :])
    n, r = n * ops.exp(since - w), r * ops.exp(since)
    k, p = (x * ops.exp(-since) for x in (k, p))
    met = ops.matmul(ops.cat([n, r], -2), ops.cat([k, p], -2).mT)  # of both with both
    (below, undone), (seen, lost) = (
        [ops.where(least, met.narrow(-2, row, CHUNK).narrow(-1, column, CHUNK), 0.0)
         for column in (0, CHUNK)]
        for row, least in ((0, ahead > 0), (CHUNK, ahead >= 0))
    )  # fmt: skip
    solved = _inverse(undone)
    made, taken = ops.matmul(solved, ops.matmul(below, v)), ops.matmul(solved, n)
    kept = ops.cat([k, -p], -2) * end
    return [made, taken, r, ops.matmul(seen, v), lost, v, kept, end.mT]


def _removing_chunk(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    made, taken, asked, told, lost, v, kept, decay = given
    u = ops.matmul(taken, old) + made
    y = ops.matmul(asked, old) + told - ops.matmul(lost, u)
    return old * decay + ops.matmul(kept.mT, ops.cat([v, u], -2)), y.transpose(1, 2)
