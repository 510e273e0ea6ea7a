"""Matrix instructions of CPUs: specification (`MatrixInstruction`), who has them, how to emit them.

Cycles are in units of one f32 fma of full width, measured by `ceilings.py` on the machines named.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...graph.dtype import bf16, f32, i8, i32, u8
from ...kernel.target import MatrixInstruction


@dataclass(frozen=True)
class Emission:
    """`intrinsics`: lanes of the accumulator -> LLVM intrinsic; `needs`: host features, any of
    the tuples; `operand`: LLVM element type of the narrow operands."""

    intrinsics: dict[int, str]
    needs: tuple[tuple[str, ...], ...]
    operand: str


DPBF16PS = MatrixInstruction("dpbf16ps", 2, bf16, bf16, f32)
VPDPBUSD = MatrixInstruction("vpdpbusd", 4, u8, i8, i32)

EMISSIONS = {
    "dpbf16ps": Emission(
        {
            16: "llvm.x86.avx512bf16.dpbf16ps.512",
            8: "llvm.x86.avx512bf16.dpbf16ps.256",
            4: "llvm.x86.avx512bf16.dpbf16ps.128",
        },
        (("avx512bf16", "avx512vl"),),
        "bfloat",
    ),
    "vpdpbusd": Emission(
        {
            16: "llvm.x86.avx512.vpdpbusd.512",
            8: "llvm.x86.avx512.vpdpbusd.256",
            4: "llvm.x86.avx512.vpdpbusd.128",
        },
        (("avx512vnni", "avx512vl"), ("avxvnni",)),
        "i8",
    ),
}


def available(features: frozenset[str]) -> tuple[MatrixInstruction, ...]:
    """The instructions of a machine with these features, with the cycles that they take there."""
    found = []
    for instruction in (DPBF16PS, VPDPBUSD):
        emission = EMISSIONS[instruction.name]
        if any(features.issuperset(need) for need in emission.needs):
            found.append(with_cycles(instruction, features))
    return tuple(found)


def with_cycles(instruction: MatrixInstruction, features: frozenset[str]) -> MatrixInstruction:
    """Intel's dpbf16ps issues at a fraction of the rate of an fma (its bf16 unit is AMX)."""
    intel = "clzero" not in features  # an instruction that only AMD's Zen has
    cycles = 3.5 if instruction.name == "dpbf16ps" and intel else 1.0
    return MatrixInstruction(
        instruction.name,
        instruction.collapse,
        instruction.first,
        instruction.second,
        instruction.accumulator,
        cycles,
    )
