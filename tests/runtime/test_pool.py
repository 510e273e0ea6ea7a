"""Memory for what stays, cut from few large pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.backend.cpu import empty
from luminal.runtime.memory import LEAST, SMALL, Block, Pool


def test_blocks_are_cut_from_few_pieces_and_do_not_overlap() -> None:
    asked: list[int] = []

    def allocate(shape: Sequence[int], dtype: Any) -> np.ndarray:
        asked.append(shape[0])
        return empty(shape, dtype)

    pool = Pool(allocate)
    sizes = [100, SMALL, 1_000_001, LEAST, 3 * LEAST, SMALL + 1, 64]
    blocks = [Block(pool, size) for size in sizes]
    for number, block in enumerate(blocks):
        block.array_of_bytes()[:] = number
        assert block.address % 64 == 0 and block.bytes >= sizes[number]
    for number, block in enumerate(blocks):
        assert (block.array_of_bytes() == number).all()
    large = [size for size in asked if size >= SMALL]
    assert len(large) < sum(size >= SMALL for size in sizes)


def test_small_pieces_are_not_cut() -> None:
    pool = Pool(empty)
    for _ in range(3):
        assert Block(pool, 100).bytes == 128
    assert not len(pool._rest)
