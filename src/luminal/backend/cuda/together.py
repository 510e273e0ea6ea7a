"""What a launch of several programs takes, beside launches of each: counted, as in `model`."""

from __future__ import annotations

from collections.abc import Mapping

from ...kernel.kernel import Kernel
from ...kernel.program import Joined, Program
from ...kernel.target import Target
from ...kernel.work import work
from .. import text
from .limits import Gpu
from .model import LATENCY, predicted
from .shape import WARP, joined_shape

TRIPS = 4  # to the second cache: stores are done, one adds, one looks too early, one sees it
BESIDE = 1.0  # cycles of each further block: additions to one word come one after the other


def meeting_seconds(blocks: int, gpu: Gpu) -> float:
    """All blocks come together."""
    return (TRIPS * LATENCY + blocks * BESIDE) / gpu.clock


def part_seconds(
    kernel: Kernel, program: Program, sizes: Mapping[str, int], gpu: Gpu, target: Target,
    group: int, held: int, dialect: text.Dialect,
) -> float:  # fmt: skip
    """A part of a launch, without the launch. Warps that it leaves idle hide nothing."""
    own = text.parties(program, group, dialect) * (program.threads or group)
    warps = max(1, own // WARP * held)
    least = work(kernel, sizes).bytes
    return predicted(program, sizes, gpu, target, 0, least, warps)[0] - target.launch


def meetings_seconds(joined: Joined, sizes: Mapping[str, int], gpu: Gpu) -> float:
    """Of all its blocks, as often as they meet."""
    blocks = joined_shape(joined, [sizes[n] for n in joined.sizes], gpu.multiprocessors).blocks
    return sum(joined.meets) * meeting_seconds(blocks, gpu)
