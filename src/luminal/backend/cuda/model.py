"""How long a loop program takes on a GPU, by what its warps ask for: counted, not measured.

The middle unit is walked with the numbers of its 32 threads side by side, so that the sectors which
a load touches are those that it touches. Loops multiply what is inside. Not counted: arithmetic of
addresses, conflicts of banks, and that loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ...graph.dtype import DType, i64
from ...graph.scalars import SCALARS, compute
from ...kernel.kernel import Apply, Expression, Guard, Kernel
from ...kernel.program import (
    Buffer,
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Tile,
    Val,
    When,
)
from ...kernel.target import MatrixInstruction, Target
from ...kernel.work import work
from ...lowering.verify import LOADS, STORES, instructions, is_matrix
from .. import text
from ..contract import Modelled
from .limits import Gpu
from .shape import REGISTERS, SHARED, WARP

SECTOR, REQUEST = 32, 128  # bytes that memory delivers at once, and the first cache in a cycle
SCHEDULERS = 4  # of a multiprocessor: instructions of warps in a cycle
RESIDENT = 32  # blocks of a multiprocessor, and with blocks of a warp its warps
LATENCY = 480.0  # cycles from a load to its number, from memory
AT_A_TIME = 6  # loads that wait together where their numbers go into matrix instructions
WHOLE = 16  # products in a cycle of an instruction that is as fast as the tensor cores are
NEAR = 30.0  # ... from shared memory, or of a thread beside it
ONCE = 1e-9
ANY, TURNS = "any", 1024  # part of a loop's turns; those that are looked at
UNIT, SEVERAL, GOLDEN = "unit", 5, (5**0.5 - 1) / 2


@dataclass
class Counted:
    """Of the threads of a unit, or of one warp: instructions; operations of matrix instructions,
    those by wgmma, and those that a warp is done with before it goes on; where operands are copied
    ahead, cycles in which these cores have nothing, turns of their loops, and how many copies are
    ahead; cycles of the first cache; cycles that it waits where it is alone; sectors of each
    buffer, and those of all that lie beyond what would lie side by side."""

    issued: float = 0.0
    tensor: float = 0.0
    staged: float = 0.0
    alone: float = 0.0
    exposed: float = 0.0
    turns: float = 0.0
    ahead: float = 0.0
    requests: float = 0.0
    waits: float = 0.0
    sectors: dict[str, float] = field(default_factory=dict)
    scattered: float = 0.0

    @property
    def delivered(self) -> float:
        """Sectors of all buffers."""
        return sum(self.sectors.values())


def modelled(
    kernel: Kernel, program: Program, sizes: Mapping[str, int], gpu: Gpu, target: Target,
    registers: int = 0,
) -> Modelled:  # fmt: skip
    """registers: of a thread, where they are known."""
    done, peak = work(kernel, sizes), gpu.peaks()[multiplied(kernel)]
    limit = max(done.bytes / gpu.bandwidth, done.flops / peak, ONCE)
    seconds, reason = predicted(program, sizes, gpu, target, registers, done.bytes)
    return Modelled(limit, seconds, reason, done.flops, done.bytes)


def predicted(
    program: Program, sizes: Mapping[str, int], gpu: Gpu, target: Target, registers: int = 0,
    least: float = 0.0, held: int = 0,
) -> tuple[float, str]:  # fmt: skip
    """(seconds of a call, what takes them). least: bytes that it moves in any case. held: warps of
    a multiprocessor, where a launch of several programs has decided."""
    units = text.units(program, [sizes[name] for name in program.sizes])
    count = _counted(program, sizes, target, units)
    groups = max(1.0, units if program.threads else units / WARP)
    warps = groups * (program.threads or WARP) / WARP
    cycles = gpu.multiprocessors * gpu.clock  # a second, of all
    resident = held or _resident(program, registers or target.registers, target.staging)
    if count.ahead:  # a few large units: some multiprocessors have one more than others
        groups = gpu.multiprocessors * float(np.ceil(groups / gpu.multiprocessors))
    multiplying = ((count.tensor - count.staged) / gpu.sync + count.staged) / gpu.tensor
    apart = groups * _exposed(count, multiplying, target) / cycles
    apart /= max(1.0, resident * WARP / (program.threads or WARP))  # other blocks go on meanwhile
    turns = np.ceil(warps / (gpu.multiprocessors * resident))
    touched = {name: groups * n * SECTOR for name, n in count.sectors.items()}
    moved = sum(min(_bytes(b, sizes), touched.get(b.name, 0.0)) for b in program.buffers)
    parts = {
        "memory": max(least, moved) / gpu.bandwidth,
        "second cache": groups * count.delivered * SECTOR / (target.l2_rate * cycles) + apart,
        "first cache": groups * count.requests / cycles + apart,
        "tensor cores": groups * multiplying / cycles + apart,
        "instructions": groups * count.issued / (SCHEDULERS * cycles),
        "waiting": turns * (count.waits + count.issued * groups / warps
                            + SCHEDULERS * count.alone / (gpu.sync * gpu.tensor)) / gpu.clock,
    }
    longest = max(parts, key=lambda name: parts[name])
    unused = count.scattered / max(1.0, count.delivered)
    reasons = {
        "memory": "memory" if moved < 2 * least else "memory: neighbours that nobody uses",
        "second cache": "second cache: the same again" if unused < 0.5 else
                        f"second cache: {unused:.0%} of what it delivers is not used",
        "first cache": "shared memory: operands are read again" if count.ahead else
                       "first cache: the same again",
        "tensor cores": f"tensor cores: {units} units on {gpu.multiprocessors} multiprocessors",
        "instructions": "instructions: a number at a time",
        "waiting": f"waits: {warps:.0f} warps where {gpu.multiprocessors * resident} fit",
    }  # fmt: skip
    if target.launch > parts[longest]:
        reasons[longest] = f"its launch: {1e6 * target.launch:.0f} us"
    return float(parts[longest]) + target.launch, reasons[longest]


def _counted(program: Program, sizes: Mapping[str, int], target: Target, units: int) -> Counted:
    """Of the unit in the middle; of several, on the average, where they turn loops as often as
    their number says."""
    first = _Walk(program, sizes, target, units, units // 2)
    if not first.varies:
        return first.counted
    walks = [_Walk(program, sizes, target, units, int(units * (n * GOLDEN % 1))).counted
             for n in range(1, SEVERAL + 1)]  # fmt: skip
    sums = Counted()
    for name in vars(sums).keys() - {"sectors"}:
        setattr(sums, name, sum(getattr(each, name) for each in walks) / SEVERAL)
    for each in walks:
        for name, count in each.sectors.items():
            sums.sectors[name] = sums.sectors.get(name, 0.0) + count / SEVERAL
    return sums


def _exposed(count: Counted, multiplying: float, target: Target) -> float:
    """Cycles of a staged unit in which nothing is multiplied: its first copies, its end, and what
    copies take longer than the turns that they are ahead of."""
    if not count.ahead:
        return 0.0
    rates = multiplying, count.requests, count.delivered * SECTOR / target.l2_rate
    late = LATENCY / count.ahead - max(rates) / count.turns
    return count.exposed + max(0.0, late) * count.turns


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> float:
    return prod(int(n.evaluate(sizes)) for n in buffer.shape) * buffer.dtype.bytes


def multiplied(kernel: Kernel) -> str:
    """The dtype that its products are limited by: of their factors before they are widened."""
    found: set[DType] = set()
    for value in kernel.values:
        if value.reduction and isinstance(value.body, Apply) and value.body.op == "mul":
            found.update(map(_narrow, value.body.args))
    if found and all(d.is_integer and d.bytes == 1 for d in found):
        return "int8"
    if found and all(d.bytes == 1 for d in found):
        return "fp8"
    return "bf16" if found and all(d.is_float and d.bytes <= 2 for d in found) else "f32"


def _narrow(factor: Expression) -> DType:
    while isinstance(factor, Guard) or (isinstance(factor, Apply) and factor.op == "cast"):
        factor = factor.body if isinstance(factor, Guard) else factor.args[0]
        if factor.dtype.is_float and factor.dtype.bytes <= 2:
            break
    return factor.dtype


def _resident(program: Program, registers: int, most: int) -> int:
    """Warps that a multiprocessor holds at once."""
    threads = program.threads or text.WORKERS
    blocks = min(RESIDENT, REGISTERS // (max(1, registers) * threads))
    if shared := text.shared_bytes(program):
        blocks = min(blocks, max(SHARED, most) // shared)
    return max(1, blocks) * threads // WARP


class _Walk:
    """Numbers of a warp's threads: arrays of 32; those that data decide are not known."""

    def __init__(
        self, program: Program, sizes: Mapping[str, int], target: Target, units: int, unit: int
    ) -> None:
        self.program, self.target = program, target
        self.unit = unit if program.threads else min(unit, units - 1) // WARP * WARP
        self.varies = False  # how often a loop turns, from unit to unit
        self.memories: Mapping[str, Buffer | Tile] = program.memories
        self.known: dict[str, Any] = {f"%d_{name}": i64.numpy.type(n) for name, n in sizes.items()}
        self.data: dict[str, Any] = {}  # as known, where data that all threads share are taken as 0
        self.moved: dict[str, frozenset[str]] = {}  # by which loops a value changes
        self.warps = (program.threads or WARP) // WARP
        self.loops: list[tuple[str, float]] = []
        self.counted = Counted()
        self.made = {s.out.name: s for s in instructions(program.body) if s.out}
        self._body(program.body)

    # ---- numbers

    def _value(self, val: Val) -> Any:
        if val.literal and val.dtype is not None:
            text, number = val.name, val.dtype.numpy.type
            whole = text.lstrip("-").isdecimal()  # all digits of those beyond 2^53
            return number(int(text)) if whole else number(float(text))
        return 0 if val.name.startswith("%p_") else self.known.get(val.name)

    def _place(self, val: Val) -> Any:
        """How threads stand to each other, wherever data put all of them."""
        found = self._value(val)
        return self.data.get(val.name) if found is None else found

    def _of(self, args: Sequence[Val]) -> frozenset[str]:
        return frozenset().union(*(self.moved.get(a.name, frozenset()) for a in args))

    def _body(self, body: Sequence[Statement]) -> None:
        waited, few = 0, False
        for s in body:
            if isinstance(s, Instruction):
                waited += self._instruction(s)
                few = few or (is_matrix(s) and not self._made(s).staged)
            elif isinstance(s, When):
                held = self._value(s.condition)
                turns = self._turns(s.condition)
                if turns is not None:
                    self.loops.append((ANY, turns))
                    self._body(s.body)
                    self.loops.pop()
                elif held is None or np.any(held):
                    self._body(s.body)
            elif isinstance(s, For):
                self._for(s)
            else:
                self._parallel(s)
        if waited:
            together = waited / AT_A_TIME if few else 1.0
            self.counted.waits += LATENCY * max(1.0, together) * self._times()

    def _times(self, loops: frozenset[str] | None = None) -> float:
        """How often what stands here is done, or by how many turns of these loops it differs."""
        found = 1.0
        for name, count in self.loops:
            found *= count if loops is None or name in {ANY, *loops} else 1.0
        return found

    def _turns(self, condition: Val) -> float | None:
        """In which part of its innermost loop's turns something holds, where that decides it."""
        if not self.loops or self.loops[-1][0] not in self._of([condition]):
            return None
        name, count = self.loops[-1]
        some = np.linspace(0, count - 1, int(min(count, TURNS))).astype(np.int64)
        known = {name: some[:, None]}  # before threads

        def value(val: Val) -> Any:
            made = self.made.get(val.name)
            if val.literal or made is None or name not in self._of([val]):
                return known.get(val.name, self._value(val))
            args = [value(a) for a in made.args]
            if made.op not in SCALARS or made.out is None or any(a is None for a in args):
                return None
            return compute(made.op, made.out.dtype or i64, *args)

        held = value(condition)
        return None if held is None else float(np.mean(held))

    def _parallel(self, s: Parallel) -> None:
        if s.level == "threads":
            self.known[s.var.name] = np.arange(self.warps * WARP)
        else:
            apart = 0 if self.program.threads else np.arange(WARP)
            self.known[s.var.name] = np.int64(self.unit) + apart
            self.moved[s.var.name] = frozenset((UNIT,))
        self._body(s.body)

    def _for(self, s: For) -> None:
        count = self._value(s.count)
        self.varies |= UNIT in self._of([s.count])
        times = 1.0 if count is None else float(np.max(count))
        self.known[s.var.name], self.moved[s.var.name] = np.int64(0), frozenset((s.var.name,))
        for phi, initial, _, result in s.carried:
            self.known[phi.name] = self.known[result.name] = self._value(initial)
            self.moved[phi.name] = self._of([initial]) | {s.var.name}
        if times > 0:
            self.loops.append((s.var.name, times))
            self._body(s.body)
            self.loops.pop()

    # ---- instructions

    def _instruction(self, s: Instruction) -> bool:
        """Whether it waits for memory."""
        if s.op in (*LOADS, *STORES, "copy"):
            return self._access(s)
        if is_matrix(s):
            self._multiply(self._made(s))
        if s.op == "await":
            self.counted.turns += self._times()
            self.counted.ahead = s.attrs[0] + 1
            self.counted.exposed += LATENCY  # of the first
        if s.op in ("pack", "shuffle"):
            return False
        if s.out is not None:
            self.moved[s.out.name] = self._of(s.args)
            self._compute(s, s.out)
        if s.op in ("barrier", "exchange"):
            self.counted.waits += NEAR * self._times()
        if s.op == "offset" or (s.out and s.out.dtype and s.out.dtype.is_integer):
            return False
        cost = SCALARS[s.op].cost if s.op in SCALARS else 1.0
        self._issued(max(1.0, cost))
        return False

    def _issued(self, count: float) -> None:
        found = count * self.warps * self._times()
        self.counted.issued += found
        self.counted.exposed += 0.0 if self.loops else found / SCHEDULERS

    def _made(self, s: Instruction) -> MatrixInstruction:
        return next(i for i in self.target.instructions if i.name == s.op)

    def _multiply(self, made: MatrixInstruction) -> None:
        groups = self.warps * WARP / made.threads * self._times()
        done = 2 * made.rows * made.columns * made.collapse * made.first.bytes / 2
        self.counted.tensor += done * groups
        best = made.collapse >= WHOLE * made.cycles
        self.counted.staged += done * groups * best
        if made.staged:
            self.counted.requests += (made.rows + made.columns) * groups  # of 128 bytes each
            self.counted.alone += done * (not made.late) * self._times()
            self.counted.waits += NEAR * (not made.late) * self._times()
        elif made.streamed:  # each warp reads all of it, or each warpgroup
            size, readers = made.columns * made.collapse * made.first.bytes, 4 if best else 1
            self.counted.requests += size / REQUEST * self.warps / readers * self._times()
            self.counted.waits += (NEAR + size / REQUEST) * best * self._times()

    def _compute(self, s: Instruction, out: Val) -> None:
        args, kept = [self._value(a) for a in s.args], self.known
        if any(a is None for a in args) and (out.dtype is None or out.dtype.is_integer):
            args, kept = [self._place(a) for a in s.args], self.data
        if any(a is None for a in args):
            return
        if s.op == "offset":
            kept[out.name] = args[0] + np.asarray(args[1], np.int64)
        elif s.op in SCALARS and out.dtype is not None and not out.dtype.is_float:
            kept[out.name] = compute(s.op, out.dtype, *args)

    def _access(self, s: Instruction) -> bool:
        stored = s.op in STORES
        copied = s.op == "copy"
        place = s.args[1 if stored or copied else 0]
        memory = self.memories[place.memory]
        loops = self._of(s.args[int(stored or copied) :])
        if s.out is not None:
            self.moved[s.out.name] = loops
        times, counted = self._times(), self.counted
        self._issued(1.0)
        at = self._place(place)
        if s.op in ("gather_at", "scatter_at"):
            further = self._place(s.args[2 if stored else 1])
            at = None if at is None or further is None else at + further
        if s.out is not None and s.out.dtype and s.out.dtype.is_integer and at is not None:
            self.data |= {s.out.name: 0} if np.ptp(at) == 0 else {}
        moved = s.args[0] if stored else s.out
        size = memory.dtype.bytes * (moved.width if moved else 1)
        touched, least = self._sectors(at, memory.dtype.bytes, size)
        everyone = np.broadcast_to(0 if at is None else at, self.warps * WARP)
        warps = everyone.reshape(-1, WARP)[: 0 if at is None else self.warps]
        asked = [self._sectors(one, memory.dtype.bytes, size)[0] for one in warps] or [touched]
        counted.requests += sum(max(1.0, n * SECTOR / REQUEST) for n in asked) * times
        if isinstance(memory, Tile):
            counted.waits += 0.0 if stored else NEAR * times
            return False
        before = counted.sectors.get(place.memory, 0.0)
        counted.sectors[place.memory] = before + touched * self._times(loops)
        counted.scattered += (touched - least) * self._times(loops)
        return not stored and not copied

    def _sectors(self, at: Any, element: int, size: int) -> tuple[float, float]:
        """(those that a warp touches, those that as many bytes side by side would lie in). size:
        bytes that each thread moves."""
        if at is None:
            threads = float(self.warps * WARP)
            return threads, max(1.0, threads * size / SECTOR)
        places = np.unique(at)
        return float(len(np.unique(places * element // SECTOR))), -(-len(places) * size // SECTOR)
