"""States that decay and take up outer products, H = exp(a) H + x B, y = H C, many steps at once
(Dao and Gu 2024, https://arxiv.org/abs/2405.21060, section 6): within a chunk with s = cumsum(a)

    y_t = exp(s_t) H C_t + sum over r <= t of exp(s_t - s_r) (C_t B_r) x_r

as matrix products, and one state after each chunk. Exponents are never positive, as a is not.
"""

from __future__ import annotations

from .... import ops
from ....graph import Tensor
from ....graph.index import Index
from ..carry import Carry

CHUNK = 16  # steps; more have longer sums within, fewer more states


def decayed(
    carry: Carry, state: Tensor, a: Tensor, x: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """(the last state (sequences, groups, heads of each, head_dim, numbers), ys like x).

    a: (sequences, steps, groups, heads), not positive. x: (..., heads, head_dim). b, c: (sequences,
    steps, groups, numbers). A step that is no token leaves the state as it is. Whole chunks come
    first, what is left of the steps one by one after them.
    """
    if carry.real is not None:
        real = carry.real.unsqueeze(-1).unsqueeze(-1)
        a, x = ops.where(real, a, 0.0), ops.where(real.unsqueeze(-1), x, 0.0)
    steps, given = Index.of(a.node.shape[1]), (a, x, b, c)
    count = steps // CHUNK
    whole = count * CHUNK
    chunks = [part.narrow(1, 0, whole).unflatten(1, (count, CHUNK)) for part in given]
    state, first = ops.scan(_chunk, state, [part.transpose(0, 1) for part in chunks])
    rest = [part.narrow(1, whole, steps - whole) for part in given]
    state, last = ops.scan(_step, state, [part.transpose(0, 1) for part in rest])
    return state, ops.cat([first.transpose(0, 1).flatten(1, 2), last.transpose(0, 1)], 1)


def _step(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    a, x, b, c = given
    new = old * ops.exp(a).unsqueeze(-1).unsqueeze(-1)
    new = new + x.unsqueeze(-1) * b.unsqueeze(2).unsqueeze(2)
    return new, (new * c.unsqueeze(2).unsqueeze(2)).sum(-1)


def _chunk(old: Tensor, given: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A chunk: a (sequences, CHUNK, groups, heads), the others alike."""
    a, x, b, c = given
    a = a.permute(0, 2, 3, 1)  # (sequences, groups, heads, steps)
    ahead = old.graph.iota((CHUNK, CHUNK), Index.of("i0") - Index.of("i1"))
    # (..., step, earlier step): sums of what lies between, as differences of sums would cancel
    between = ops.cumsum(ops.where(ahead > 0, a.unsqueeze(-1), 0.0), -2)
    b, c = b.transpose(1, 2).unsqueeze(2), c.transpose(1, 2).unsqueeze(2)
    shares = ops.exp(ops.where(ahead >= 0, between, float("-inf"))) * ops.matmul(c, b.mT)
    x = x.permute(0, 2, 3, 1, 4)  # (sequences, groups, heads, steps, head_dim)
    y = ops.matmul(shares, x) + ops.matmul(c, old.mT) * ops.exp(ops.cumsum(a, -1)).unsqueeze(-1)
    taken = x * ops.exp(between[..., CHUNK - 1, :]).unsqueeze(-1)
    new = old * ops.exp(a.sum(-1))[..., None, None] + ops.matmul(taken.mT, b)
    return new, y.permute(0, 3, 1, 2, 4)
