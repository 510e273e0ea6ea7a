"""Several numbers of a thread in registers of 32 bits, the first of each in its low bits: what a
matrix instruction takes, and what lies side by side in memory. In the text they are an array."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import Unsupported
from ...graph.dtype import DType
from ...kernel.program import For, Instruction, Parallel, Program, Val
from .writer import Writer


class Registers(Writer):
    """words: forms that load and store them. matrices: a function, and its text with
    those that it calls, by the instruction's name."""

    words: tuple[str, str]
    matrices: Mapping[str, tuple[str, Mapping[str, str]]]
    staging: Mapping[str, tuple[str, Mapping[str, str]]]

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.functions: dict[str, str] = {}

    def instruction(self, ins: Instruction, indent: str) -> None:
        if ins.op == "store" and ins.args[0].width > 1:
            self.store_several(ins, indent)
        elif ins.op in self.matrices and ins.out is not None:
            self.matrix(ins, ins.out, indent)
        elif ins.op in self.staging:
            self.staged(ins, indent)
        elif ins.op == "shuffle" and ins.out is not None and ins.args[0].width > 1:
            text = self.picked(ins)
            kind = self.type(ins.out.dtype)
            self.lines.append(indent + self.constant(kind, self.define(ins.out), text))
        elif ins.op in ("pack", "load") and ins.out is not None and ins.out.width > 1:
            kind, count = self.held(ins.out)
            if ins.op == "load":
                zeros = " = {}" if len(ins.args) > 1 else ""
                array = f"{kind} {self.array(ins.out)}[{count}]{zeros};"
                self.load_several(ins, array, indent)
            else:
                parts = ", ".join(self.packed(ins, ins.out.dtype))
                name = self.array(ins.out)
                self.lines.append(f"{indent}const {kind} {name}[{count}] = {{{parts}}};")
        else:
            super().instruction(ins, indent)

    def head(self, loop: For | Parallel, first: str, step: str) -> str:
        """Copies are on their way in a loop that awaits them, and in some products: written out
        twice, ptxas of CUDA 13 takes the last for done when the one before it is."""
        awaits = any(isinstance(s, Instruction) and s.op == "await" for s in loop.body)
        return "#pragma unroll 1\n" * awaits + super().head(loop, first, step)

    def array(self, val: Val) -> str:
        name = self.names[val.name] = re.sub(r"\W", "_", val.name[1:], flags=re.ASCII)
        return name

    def held(self, val: Val) -> tuple[str, int]:
        """(type, count) of the registers."""
        assert val.dtype is not None
        narrow = val.dtype.bytes < 4
        return "u32" if narrow else self.type(val.dtype), val.width * val.dtype.bytes // 4

    def packed(self, ins: Instruction, dtype: DType | None) -> list[str]:
        assert dtype is not None
        args, per = [self.value(a) for a in ins.args], max(1, 4 // dtype.bytes)
        if per == 1:
            return args
        bits = [f"(u32)(u{8 * dtype.bytes}){a}" for a in args]
        moved = [f"{a} << {32 // per * (n % per)}" if n % per else a for n, a in enumerate(bits)]
        return [" | ".join(moved[n : n + per]) for n in range(0, len(moved), per)]

    def picked(self, ins: Instruction) -> str:
        """One of the numbers."""
        name, dtype, (number,) = self.value(ins.args[0]), ins.args[0].dtype, ins.attrs
        assert dtype is not None
        if dtype.bytes == 4:
            return f"{name}[{number}]"
        word, byte = divmod(number * dtype.bytes, 4)
        return f"({self.type(dtype)})({name}[{word}] >> {8 * byte})"

    def matrix(self, ins: Instruction, out: Val, indent: str) -> None:
        acc, *sides = ins.args
        a, b = (self.value(s) if s.dtype else self.at(s) for s in sides)
        function, texts = self.matrices[ins.op]
        self.functions |= texts
        made = self.copied(acc, out, indent)
        on = ", true" if ins.attrs and sides[0].dtype else ""
        self.lines.append(f"{indent}{function}({made}, {a}, {b}{on});")

    def at(self, position: Val, further: int = 0) -> str:
        """A pointer, of positions that may be the first."""
        memory, place = self.element(position, str(further))
        return f"{memory} + ({place})" if place != "0" else memory

    def staged(self, ins: Instruction, indent: str) -> None:
        """What brings operands into tiles, and waits for them or for what is done with them."""
        form, functions = self.staging[ins.op]
        self.functions |= functions
        known = {"n": str(ins.attrs[0])} if ins.attrs else {}
        if ins.op == "settled" and ins.out is not None:
            known["value"] = self.copied(ins.args[0], ins.out, indent)
        if ins.op == "copy" and ins.out is not None and ins.out.dtype is not None:
            to, source, *mask = ins.args
            size = str(ins.out.width * ins.out.dtype.bytes)
            known |= {"to": self.at(to), "source": self.at(source, ins.attrs[0]), "bytes": size}
            if mask:  # a row beyond the end has no place
                held, (memory, _) = self.value(mask[0]), self.memories[source.memory]
                known["bytes"] = f"{held} ? {size} : 0"
                place = known["source"].removeprefix(f"{memory} + ")
                known["source"] = f"{memory} + ({held} ? {place} : 0)"
        self.lines.append(indent + form.format(**known))

    def copied(self, acc: Val, out: Val, indent: str) -> str:
        """An array with what another one has."""
        name, (kind, count), made = self.value(acc), self.held(out), self.array(out)
        parts = ", ".join(f"{name}[{n}]" for n in range(count))
        self.lines.append(f"{indent}{kind} {made}[{count}] = {{{parts}}};")
        return made

    # ---- memory

    def load_several(self, ins: Instruction, array: str, indent: str) -> None:
        assert ins.out is not None
        moved = self.moved(0, ins.out, ins.args[0], ins.attrs[0])
        self.lines += [indent + array, indent + self.under(ins.args[1:], moved)]

    def store_several(self, ins: Instruction, indent: str) -> None:
        value, position, *mask = ins.args
        moved = self.moved(1, value, position, ins.attrs[0])
        self.lines.append(indent + self.under(mask, moved))

    def moved(self, stored: int, val: Val, position: Val, further: int) -> str:
        if not self.words[stored]:
            raise Unsupported(f"a vector in {self.language}: {val.name} has {val.width} lanes")
        memory, _ = self.memories[position.memory]
        place = f"{self.value(position)} + {further}"
        count = self.held(val)[1]
        return self.words[stored].format(
            count=count, name=self.names[val.name], memory=memory, place=place
        )
