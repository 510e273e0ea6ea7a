"""Registers of matrices (Intel AMX): eight of 16 rows of 64 bytes, and what multiplies them.

The text names the registers itself (see `lowering/matrices.py`): LLVM spills none of them.
"""

from __future__ import annotations

from ...graph.dtype import DType, bf16, f32, i8, i32, u8
from ...kernel.program import Instruction, Program, Val
from ...kernel.target import MatrixInstruction
from ...lowering.matrices import registers
from .emitter import Emitter, Operand

ROWS, ROW, REGISTERS = 16, 64, 8
NAMES = {  # by dtypes: mnemonic, feature
    (bf16, bf16, f32): ("tdpbf16ps", "amx-bf16"),
    (u8, i8, i32): ("tdpbusd", "amx-int8"),
    (i8, u8, i32): ("tdpbsud", "amx-int8"),
    (i8, i8, i32): ("tdpbssd", "amx-int8"),
}


def available(features: frozenset[str]) -> tuple[MatrixInstruction, ...]:
    """What schedules see of them. One takes 16 cycles (Intel's optimisation manual); loops with
    loads reached half of that on the machine of `docs/decisions.md`: two cycles for each row, in
    units of an fma of which two go side by side."""
    return tuple(
        MatrixInstruction(
            name, ROW // first.bytes, first, second, total, cycles=4.0, rows=ROWS,
            columns=ROW // 4, registers=REGISTERS, together=4 // first.bytes,
        )
        for (first, second, total), (name, feature) in NAMES.items()
        if {"amx-tile", feature} <= features
    )  # fmt: skip


PRODUCTS = frozenset(name for name, _ in NAMES.values())


def configured() -> str:
    """What ldtilecfg reads, as a constant: palette 1, bytes of a row and rows of each register."""
    shapes = [*[ROW, 0] * REGISTERS, *[0] * 16, *[ROWS] * REGISTERS, *[0] * 8]
    text = "".join(f"\\{byte:02X}" for byte in [1, *[0] * 15, *shapes])
    return f'[64 x i8] c"{text}", align 64'


def peak_text(name: str, rounds: int, chains: int) -> str:
    """A function `work` of nothing but products, so many times so many that need not wait."""
    named = {"ldtilecfg": "ptr", "tilerelease": "", "tilezero": "i8", name: "i8, i8, i8"}
    declared = [f"declare void @llvm.x86.{op}({types})" for op, types in named.items()]
    zeros = [f"  call void @llvm.x86.tilezero(i8 {n})" for n in range(REGISTERS)]
    a, b = chains, chains + 1
    products = [f"  call void @llvm.x86.{name}(i8 {n}, i8 {a}, i8 {b})" for n in range(chains)]
    return "\n".join([
        f"@tiles = private unnamed_addr constant {configured()}", *declared,
        "define void @work(ptr %args, i64 %tid, i64 %nt) {", "entry:",
        "  call void @llvm.x86.ldtilecfg(ptr @tiles)", *zeros, "  br label %loop",
        "loop:", "  %turn = phi i64 [0, %entry], [%next, %loop]", *products,
        "  %next = add i64 %turn, 1", f"  %more = icmp slt i64 %next, {rounds}",
        "  br i1 %more, label %loop, label %done",
        "done:", "  call void @llvm.x86.tilerelease()", "  ret void", "}", "",
    ])  # fmt: skip


class Tiles:
    """The text of what is done with the matrices of one program."""

    def __init__(self, e: Emitter, program: Program, known: tuple[MatrixInstruction, ...]) -> None:
        self.e, self.held = e, registers(program, known)

    def __contains__(self, val: Val | None) -> bool:
        return val is not None and not val.literal and val.name in self.held

    def begin(self) -> None:
        if self.held:
            self.e.globals["tiles"] = configured()
            self.e.call("llvm.x86.ldtilecfg", None, "ptr @tiles")

    def end(self) -> None:
        if self.held:
            self.e.call("llvm.x86.tilerelease", None)

    def start(self, first: Val, result: Val) -> None:
        """What an accumulator starts from: what its register has, or zero."""
        if first.literal:
            self.e.call("llvm.x86.tilezero", None, self._at(result))

    def product(self, ins: Instruction) -> None:
        assert ins.out is not None
        self.start(ins.args[0], ins.out)
        self.e.call(f"llvm.x86.{ins.op}", None, *map(self._at, (ins.out, *ins.args[1:])))

    def access(self, ins: Instruction, dtype: DType, where: Operand) -> None:
        """A load, or a store, of an accumulator or operand."""
        val = ins.out or ins.args[0]
        name = "tileloadd64" if ins.out else "tilestored64"
        apart = f"i64 {self.held[val.name][1] * dtype.bytes}"
        self.e.call(f"llvm.x86.{name}", None, self._at(val), where, apart)

    def _at(self, val: Val) -> str:
        return f"i8 {self.held[val.name][0]}"
