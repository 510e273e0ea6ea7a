"""Launches of several programs, and what they take beside launches of each: counted, as in
`model`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence

from ...kernel.kernel import Kernel
from ...kernel.program import Program
from ...kernel.work import work
from .. import text
from ..contract import Accelerator, Modelled
from ..launch import Joined
from .limits import Gpu
from .model import LATENCY, modelled, predicted
from .shape import TAKEN, WARP, joined, joined_shape

TRIPS = 4  # to the second cache: stores are done, one adds, one looks too early, one sees it
BESIDE = 1.0  # cycles of each further block: additions to one word come one after the other


def meeting_seconds(blocks: int, gpu: Gpu) -> float:
    """All blocks come together."""
    return (TRIPS * LATENCY + blocks * BESIDE) / gpu.clock


class Counted(Accelerator, ABC):
    """A device of which kernels are modelled, alone and in launches of several."""

    gpu: Gpu
    dialect: text.Dialect

    def modelled(
        self, kernel: Kernel, program: Program, sizes: Mapping[str, int], registers: int = 0
    ) -> Modelled:
        return modelled(kernel, program, sizes, self.gpu, self.target(1), registers)

    def joined(
        self, programs: Sequence[Program], registers: Sequence[int], meets: Sequence[bool],
        name: str,
    ) -> Joined | None:  # fmt: skip
        known = [count or TAKEN for count in registers]
        return joined(programs, known, meets, name, self.dialect)

    def render_joined(self, joined: Joined) -> str:
        return text.render_joined(joined, self.dialect)

    def part_seconds(
        self, kernel: Kernel, program: Program, sizes: Mapping[str, int], joined: Joined
    ) -> float:
        """Warps that a part leaves idle hide nothing."""
        target, group = self.target(1), joined.group
        own = text.parties(program, group, self.dialect) * (program.threads or group)
        warps, least = max(1, own // WARP * joined.held), work(kernel, sizes).bytes
        return predicted(program, sizes, self.gpu, target, 0, least, warps)[0] - target.launch

    def meeting_seconds(self, joined: Joined, sizes: Mapping[str, int]) -> float:
        """Its launch, and all its blocks as often as they meet."""
        known = [sizes[name] for name in joined.sizes]
        blocks = joined_shape(joined, known, self.gpu.multiprocessors).blocks
        return self.target(1).launch + sum(joined.meets) * meeting_seconds(blocks, self.gpu)
