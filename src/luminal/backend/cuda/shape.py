"""What a launch looks like: blocks and threads for the units of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...kernel.program import Program
from ...kernel.target import Target
from .. import text

WARP = 32
BLOCK = text.WORKERS  # threads of a block, each a worker of its own
BLOCKS = 8  # of a multiprocessor
WORKSPACE = 1 << 28  # bytes that the tiles of all workers may take


@dataclass(frozen=True)
class Shape:
    """shared: bytes of each block."""

    blocks: int
    threads: int
    shared: int = 0


def scalar_target(multiprocessors: int) -> Target:
    """A worker computes with numbers, one at a time; all of them share out the units."""
    workers = multiprocessors * BLOCK * BLOCKS
    return Target("scalar", vector_bytes=4, registers=32, threads=workers, index_bits=32)


def workers(program: Program, multiprocessors: int) -> int:
    """The most that share out its units: threads, or blocks where it has threads of its own."""
    if program.threads:
        return multiprocessors * BLOCKS
    most = multiprocessors * BLOCK * BLOCKS
    needed = text.workspace_bytes(program, text.CUDA, 1)
    return max(WARP, min(most, WORKSPACE // needed)) // WARP * WARP if needed else most


def launch_shape(program: Program, sizes: Sequence[int], multiprocessors: int) -> Shape:
    """Units on as many multiprocessors as there are; each in blocks of few threads where there
    are not enough for more."""
    most, count = workers(program, multiprocessors), max(1, text.units(program, sizes))
    if program.threads:
        return Shape(min(count, most), program.threads, text.shared_bytes(program))
    wanted = -(-count // (multiprocessors * WARP)) * WARP
    threads = min(BLOCK, wanted, most)
    return Shape(min(-(-count // threads), most // threads), threads)
