"""Rows through the parts of a network that data choose: mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as numbers
from itertools import pairwise
from typing import TypeAlias

from .. import ops
from ..graph.index import Index
from ..graph.tensor import Tensor

Network: TypeAlias = Callable[[Tensor, Tensor], Tensor]

BLOCKS = (1, 4, 16)  # rows that go through an expert together
READING = 5  # rows that an expert multiplies while its matrices are read: 2 to 7 were measured


def mixture(
    network: Network, x: Tensor, chosen: Tensor, shares: Tensor | None, count: int,
    reading: int = READING,
) -> Tensor:  # fmt: skip
    """(tokens, out): each token through the experts chosen for it, results times shares, added up.

    network: what experts make of rows (groups, rows, width), given their experts (groups, rows), or
    (groups, 1) where all of a group have the same; also called with rows (groups, 1, width) for
    several experts. x: (tokens, width), or (tokens, chosen, width). chosen: integers below `count`,
    (tokens, chosen). shares: as large. reading: see `READING`; less where each row widens matrices.

    >>> factors = cx.constant([[2.0], [3.0]])  # an expert each
    >>> def network(rows, experts):
    ...     return rows * ops.embedding(experts, factors)
    >>> x, chosen = cx.constant([[1.0], [10.0], [100.0]]), cx.constant([[0], [1], [0]])
    >>> nn.mixture(network, x, chosen, None, 2).numpy().tolist()
    [[2.0], [30.0], [200.0]]
    """
    x, parts = x if x.ndim == 3 else x.unsqueeze(1), list[Tensor]()
    for tokens, block in _parts(chosen, count, reading):
        asked = chosen.narrow(0, 0, tokens)
        if block == 1:
            each = network(x.narrow(0, 0, tokens), asked)
        else:
            each = _in_blocks(network, x, asked, count, block)
        if shares is not None:
            each = each * shares.narrow(0, 0, tokens).unsqueeze(-1)
        parts.append(ops.sum(each, 1))
    return ops.cat(parts, 0)


def _parts(chosen: Tensor, count: int, reading: int) -> list[tuple[Index, int]]:
    """How many tokens go in blocks of how many rows. All in those that take the least time: where
    their number is known in the run only, a part has all tokens or none."""
    tokens, each = chosen.node.shape
    low, high = chosen.graph.space.bounds(tokens)
    found, rest = list[tuple[Index, int]](), tokens
    for block, larger in pairwise(BLOCKS):
        costs = (
            [int(_blocks(n * each, count, b)) * (reading + b) for b in (block, larger)]
            for n in numbers(1)
        )
        start = next(n for n, (now, then) in enumerate(costs, 1) if then < now)
        some = (tokens // start).minimum(1) if low < start <= high else Index.of(int(start <= low))
        found.append((rest - tokens * some, block))
        rest = tokens * some
    return [(n, b) for n, b in [*found, (rest, BLOCKS[-1])] if n is not Index.of(0)]


def _blocks(pairs: Index, count: int, block: int) -> Index:
    """So many hold all pairs, however these are spread: each expert fills but one in part."""
    return pairs.minimum((pairs + count * (block - 1)) // block)


def _in_blocks(network: Network, x: Tensor, chosen: Tensor, count: int, block: int) -> Tensor:
    """What the network makes of each token for each of its experts, (tokens, chosen, out): pairs of
    both stand by expert, each expert's from a place on that is a whole number of blocks."""
    graph, (tokens, each) = x.graph, chosen.node.shape
    pairs = tokens * each
    blocks = _blocks(pairs, count, block)
    asked = ops.eq(chosen.reshape((pairs, 1)), ops.arange(graph, count)).cast("i32")
    rank = ops.cumsum(asked, 0) - 1  # (pairs, experts): among those that ask for the same
    needed = (ops.sum(asked, 0) + (block - 1)) // block  # blocks of each expert
    ends = ops.cumsum(needed, 0)
    place = ops.sum(asked * (rank + (ends - needed) * block), 1)  # (pairs,)
    expert = ops.sum((ends <= ops.arange(graph, blocks).unsqueeze(1)).cast("i64"), 1)
    expert = ops.minimum(expert, count - 1).unsqueeze(1)  # of each block
    row = graph.iota((pairs,), Index.of("i0") * x.node.shape[1] // each)
    source = ops.scatter(ops.zeros(graph, (blocks * block,), "i64"), 0, place, row)
    rows = ops.embedding(source.reshape((blocks, block)), x.flatten(0, 1))
    found = network(rows, expert).flatten(0, 1)
    return ops.embedding(place.reshape((tokens, each)), found)
