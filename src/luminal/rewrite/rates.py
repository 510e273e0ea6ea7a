"""A machine as plans are priced: its rates, taken from a target."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.dtype import DType, f32
from ..kernel.target import MatrixInstruction, Target

OPERATION = 3.0  # multiply-adds in the time of an element operation, with what it waits for
LATE = 1.8  # cycles in the time of one in which the second cache delivers


@dataclass(frozen=True)
class CostModel:
    """A machine in a few numbers, for all its threads together. Rates per second.

    flops: of contractions in f32, of narrower ones as many times as many as an instruction does;
    vector: element operations; bandwidth: bytes from memory; cache_bandwidth: bytes of buffers that
    fit `cache` bytes; tile: points of foreign axes that share one computed operand; widest: of
    those that share one made of weights alone, such as what small integers stand for; launch:
    seconds of a kernel and its barrier; hint: assumed value of a run-time size.
    """

    flops: float = 2.4e11
    vector: float = 4e10
    bandwidth: float = 2e10
    cache_bandwidth: float = 1e11
    cache: float = 2e6
    tile: int = 64
    widest: float = float("inf")  # panels of weights are made once, and all rows walk them
    launch: float = 2e-6
    without_tile: float = 1.5  # a contraction without a register tile of its own
    hint: int = 128
    workers: int = 2  # what a kernel should have to share out, least
    tiles: float = float("inf")  # bytes of what one of them keeps
    instructions: tuple[MatrixInstruction, ...] = ()

    @classmethod
    def of(cls, target: Target) -> CostModel:
        """All threads of a target."""
        grouped, cores = target.group > 1, target.threads // target.busy
        cycles = target.clock * cores
        multiplies = target.lanes(f32) * target.fma_ports * cycles
        return cls(
            flops=2 * multiplies,
            vector=multiplies / OPERATION,
            bandwidth=target.bandwidth,
            cache_bandwidth=target.l2_rate * cycles / LATE,
            cache=target.l2 * (1 if grouped else cores),
            launch=target.launch,
            hint=target.hint,
            widest=cls.tile if grouped else cls.widest,
            workers=target.threads if grouped else cls.workers,
            tiles=target.shared if grouped else cls.tiles,
            instructions=target.instructions,
        )

    @property
    def moved(self) -> float:
        """Multiply-adds of f32 in the time in which a number is written to the second cache and
        read again."""
        return self.flops / 2 * 2 * f32.bytes / self.cache_bandwidth

    @property
    def in_rows(self) -> bool:
        """An instruction multiplies matrices of which it takes rows as they lie in memory."""
        return any(i.rows > 1 and not i.registers for i in self.instructions)

    def speed(
        self, first: DType, second: DType, total: DType, matrices: bool, lie: bool = True,
        whole: bool = True,
    ) -> float:  # fmt: skip
        """Multiply-adds of these in the time of one in f32. matrices: an instruction may take rows
        of one and columns of the other. lie: both are read from memory as they are. whole: or cast
        before, not worked out of other numbers or read under a condition, and no other sum adds its
        sums up."""
        widened = min(1.0, 4 / total.bytes)
        return max([widened] + [
            i.collapse / i.cycles for i in self.instructions
            if i.accumulator == total and {i.first, i.second} == {first, second}
            and (i.rows == 1 or matrices) and not i.streamed
            and (lie or not i.staged) and (whole or not i.registers)
        ])  # fmt: skip
