"""What a launch looks like: blocks and threads for the units of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...kernel.program import Program
from ...kernel.target import Costs, MatrixInstruction, Target
from .. import text
from ..launch import Joined

WARP = 32
BLOCK = text.WORKERS  # threads of a block, each a worker of its own
CROWD = 1024  # threads of a block at most
BLOCKS = 8  # of a multiprocessor
TAKEN = 128  # registers of a thread, where nobody has counted them
BUSY = 16  # warps that keep a multiprocessor busy
BANDWIDTH = 2e10  # bytes a second of memory for each multiprocessor, roughly
CLOCK = 1.7e9
REGISTERS = 1 << 16  # of a multiprocessor
SHARED = 100 << 10  # bytes of a multiprocessor, on the smallest since sm_80
TOGETHER = 2048  # threads of a multiprocessor
WORKSPACE = 1 << 28  # bytes that the tiles of all workers may take


@dataclass(frozen=True)
class Shape:
    """shared: bytes of each block."""

    blocks: int
    threads: int
    shared: int = 0


def group_target(
    multiprocessors: int, instructions: tuple[MatrixInstruction, ...] = (), clock: float = CLOCK,
    bandwidth: float | None = None, libraries: tuple[str, ...] = (), staging: int = 0,
) -> Target:
    """A warp works on a unit, each of its threads in a lane; loads of a warp come from the first
    cache one a cycle, where four products could be. What a thread has in registers costs nothing;
    what lies far apart in lanes is as many loads, and a sum of lanes takes five exchanges."""
    return Target(
        "warps", vector_bytes=4 * WARP, registers=96, fma_ports=4, load_ports=1, l1=128 << 10,
        l1_ways=256, l2=48 << 20, l2_rate=40, l3=1 << 30, page=1 << 21,
        threads=multiprocessors * BUSY, busy=BUSY, clock=clock,
        bandwidth=bandwidth or multiprocessors * BANDWIDTH,
        index_bits=32, group=WARP, crowd=CROWD, exchanges=True, wide=16, instructions=instructions,
        libraries=libraries, staging=staging,
        costs=Costs(masked=1, second=2, gather=8, transposed=32, straddled=0.25, across=60, cold=0,
                    chains=16),
    )  # fmt: skip


def workers(program: Program, multiprocessors: int) -> int:
    """The most that share out its units: threads, or blocks where it has threads of its own."""
    if program.threads:
        return multiprocessors * BLOCK * BLOCKS // program.threads
    most = multiprocessors * BLOCK * BLOCKS
    needed = text.workspace_bytes(program, text.CUDA, 1)
    return max(WARP, min(most, WORKSPACE // needed)) // WARP * WARP if needed else most


def joined(
    programs: Sequence[Program], registers: Sequence[int], meets: Sequence[bool], name: str,
    dialect: text.Dialect = text.CUDA,
) -> Joined | None:  # fmt: skip
    """One launch of several programs: blocks as wide as registers and shared memory allow, since
    fewer of them meet sooner. registers: of each program. None: they do not fit."""
    if not text.may_join(programs, dialect):
        return None
    most, threads = -(-max(registers) // 8) * 8, CROWD
    while True:
        if not all(text.parties(p, threads, dialect) for p in programs):
            return None
        shared = text.joined_shared_bytes(programs, threads, dialect)
        if threads * most <= REGISTERS and shared <= SHARED // 2:
            break
        threads //= 2
    held = min(TOGETHER, REGISTERS // most, threads * SHARED // max(1, shared)) // threads
    return Joined(name, tuple(programs), tuple(meets), threads, max(1, held))


def joined_shape(program: Joined, sizes: Sequence[int], multiprocessors: int) -> Shape:
    """Not more blocks than are there at once: they wait for each other."""
    known, most = dict(zip(program.sizes, sizes, strict=True)), 1
    for part in program.parts:
        count = text.units(part, [known[name] for name in part.sizes])
        most = max(most, count if part.threads else -(-count // WARP))
    shared = text.joined_shared_bytes(program.parts, program.group, text.CUDA)
    return Shape(min(multiprocessors * program.held, most), program.group, shared)


def launch_shape(
    program: Program | Joined, sizes: Sequence[int], multiprocessors: int
) -> Shape:
    """Units on as many multiprocessors as there are; each in blocks of few threads where there
    are not enough for more."""
    if isinstance(program, Joined):
        return joined_shape(program, sizes, multiprocessors)
    most, count = workers(program, multiprocessors), max(1, text.units(program, sizes))
    if program.threads:
        return Shape(min(count, most), program.threads, text.shared_bytes(program))
    wanted = -(-count // (multiprocessors * WARP)) * WARP
    threads = min(BLOCK, wanted, most)
    return Shape(min(-(-count // threads), most // threads), threads)
