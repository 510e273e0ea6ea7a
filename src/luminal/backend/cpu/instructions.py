"""Matrix instructions of CPUs: what each computes, who has it, how it is emitted.

One specification may be met by several instructions; a machine offers the first that it has.
Cycles are in units of one f32 fma of full width, measured by `ceilings.py` on the machines named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...graph.dtype import bf16, f32, i8, i16, i32, u8
from ...kernel.target import MatrixInstruction
from . import tiles
from .emitter import Emitter, Operand

Emit: TypeAlias = Callable[[Emitter, Operand, Operand, Operand], Operand]


@dataclass(frozen=True)
class Emission:
    """`widths`: lanes of the accumulator that one instruction serves; `needs`: host features, any
    of the tuples; `emit`: (emitter, accumulator, first, second) -> new accumulator. `short`:
    (emitter, first, second) -> 16-bit sums, whose neighbours `finished` adds up."""

    instruction: MatrixInstruction
    widths: tuple[int, ...]
    needs: tuple[tuple[str, ...], ...]
    emit: Emit
    short: Callable[[Emitter, Operand, Operand], Operand] | None = None


def _x86(form: str, element: str) -> Emit:
    """An intrinsic that is named by the bits of its accumulator."""

    def emit(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
        narrow = (e.convert("bitcast", x, element) for x in (a, b))
        return e.value(form.format(32 * acc.width), acc, acc, *narrow)

    return emit


def _maddwd(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
    """Products of 16-bit neighbours, added in 32 bits."""
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[acc.width]
    return e.binary("add", acc, e.value(f"llvm.x86.{name}", acc, a, b))


def _short(e: Emitter, a: Operand, b: Operand) -> Operand:
    """Products of neighbouring bytes, added in 16 bits."""
    name = {16: "ssse3.pmadd.ub.sw.128", 32: "avx2.pmadd.ub.sw",
            64: "avx512.pmaddubs.w.512"}[a.width]  # fmt: skip
    return e.value(f"llvm.x86.{name}", Operand("", "i16", a.width // 2), a, b)


def finished(e: Emitter, acc: Operand, sums: Operand) -> Operand:
    """The accumulator with 16-bit sums added, neighbours together."""
    return _maddwd(e, acc, sums, e.constant(1, sums))


def weighted(e: Emitter, sums: Operand, weight: Operand) -> Operand:
    """Neighbouring 16-bit sums times a weight that fits 16 bits, added in 32 bits."""
    low = e.binary("and", weight, e.constant(0xFFFF, weight))
    pairs = e.binary("or", low, e.binary("shl", weight, e.constant(16, weight)))
    pairs = e.let(f"bitcast {pairs.typed} to {sums.type}", sums.element, sums.width)
    return _maddwd(e, e.number(0, "i32", weight.width), sums, pairs)


def _maddubsw(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
    return finished(e, acc, _short(e, a, b))


def _usdot(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
    return e.value("llvm.aarch64.neon.usdot.v4i32.v16i8", acc, acc, a, b)


def _sdot_signed(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
    return e.value("llvm.aarch64.neon.sdot.v4i32.v16i8", acc, acc, a, b)


def _sdot(e: Emitter, acc: Operand, a: Operand, b: Operand) -> Operand:
    """a - 128 is signed; what it lacks is 64 b, twice."""
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    signed = e.binary("xor", a, e.constant(-128, a))
    lack = e.value(name, acc, e.number(0, "i32", acc.width), e.constant(64, a), b)
    acc = e.value(name, acc, acc, signed, b)
    return e.binary("add", acc, e.binary("shl", lack, e.constant(1, lack)))


DPBF16PS = MatrixInstruction("dpbf16ps", 2, bf16, bf16, f32)
VPDPBUSD = MatrixInstruction("vpdpbusd", 4, u8, i8, i32)

VPMADDUBSW = MatrixInstruction("vpmaddubsw", 4, u8, i8, i32, cycles=2.5, most=127, scratch=2)
VPMADDWD = MatrixInstruction("vpmaddwd", 2, i16, i16, i32, cycles=1.5, scratch=1)

LIST = (  # wider products first
    Emission(
        DPBF16PS, (16, 8, 4), (("avx512bf16", "avx512vl"),),
        _x86("llvm.x86.avx512bf16.dpbf16ps.{}", "bfloat"),
    ),
    Emission(
        VPDPBUSD, (16, 8, 4), (("avx512vnni", "avx512vl"),),
        _x86("llvm.x86.avx512.vpdpbusd.{}", "i8"),
    ),
    Emission(VPDPBUSD, (8, 4), (("avxvnni",),), _x86("llvm.x86.avx512.vpdpbusd.{}", "i8")),
    Emission(VPMADDUBSW, (16, 8, 4), (("avx512bw",),), _maddubsw, _short),
    Emission(VPMADDUBSW, (8, 4), (("avx2",),), _maddubsw, _short),
    Emission(VPMADDUBSW, (4,), (("ssse3",),), _maddubsw, _short),
    Emission(VPMADDWD, (16, 8, 4), (("avx512bw",),), _maddwd),
    Emission(VPMADDWD, (8, 4), (("avx2",),), _maddwd),
    Emission(VPMADDWD, (4,), (("sse2",),), _maddwd),
    Emission(MatrixInstruction("usdot", 4, u8, i8, i32), (4,), (("i8mm",),), _usdot),
    Emission(
        MatrixInstruction("sdot", 4, u8, i8, i32, cycles=3.0, scratch=2), (4,), (("dotprod",),),
        _sdot,
    ),
    Emission(
        MatrixInstruction("sdot.s8", 4, i8, i8, i32), (4,), (("dotprod",),), _sdot_signed
    ),
)  # fmt: skip


def emissions(features: frozenset[str]) -> dict[str, Emission]:
    """The instructions of a machine with these features by name: of those with operands of the
    same dtypes the first."""
    found: dict[object, Emission] = {}
    for emission in LIST:
        if any(features.issuperset(need) for need in emission.needs):
            meaning = emission.instruction
            found.setdefault((meaning.first, meaning.second), emission)
    return {emission.instruction.name: emission for emission in found.values()}


def available(features: frozenset[str]) -> tuple[MatrixInstruction, ...]:
    """What schedules see of them, with the cycles that they take there."""
    vectors = (_measured(found.instruction, features) for found in emissions(features).values())
    return (*vectors, *tiles.available(features))


def _measured(instruction: MatrixInstruction, features: frozenset[str]) -> MatrixInstruction:
    """Intel's dpbf16ps issues at a fraction of the rate of an fma (its bf16 unit is AMX)."""
    intel = "clzero" not in features  # an instruction that only AMD's Zen has
    slow = instruction.name == "dpbf16ps" and intel
    return replace(instruction, cycles=4.3) if slow else instruction
