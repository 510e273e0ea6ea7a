"""Loop program -> statements of a language with variables, loops and functions.

Every value is a constant, a position the number of an element, a worker takes every so-many-th unit
of the parallel loop. Values are numbers: programs with vectors are for backends that have them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ...errors import Unsupported
from ...graph.dtype import DType, f16, f32, f64
from ...graph.scalars import SCALARS
from ...kernel.program import For, Instruction, Parallel, Program, Statement, Val, When, start_of
from ...lowering.verify import instructions

HALF = ("f16", "bf16")
OF_BOOLS = {"add": "|", "max": "|", "mul": "&", "min": "&"}


def is_shift(amount: Val) -> bool:
    """So many bits as a signed number has."""
    kind = amount.dtype
    return bool(kind and amount.literal and kind.kind == "int" and 0 <= int(amount.name) < 32)


def written(program: Program) -> frozenset[str]:
    """The memories that it stores to."""
    found = instructions(program.body)
    return frozenset(a.memory for s in found if s.out is None for a in s.args if a.dtype is None)


def half_bits(text: str, dtype: DType) -> int:
    """The bits of a literal of f16 or bf16, rounded by way of f32."""
    with np.errstate(over="ignore"):
        return int(np.float32(float(text)).astype(dtype.numpy).view(np.uint16))


def single(number: float) -> float:
    """Rounded to f32."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


class Writer(ABC):
    """The walk over the statements of a program; a language says how each of them is written.

    language: its name. thread (formatted with the `kind` that is wanted), barrier, exchange: see
    `Dialect`.
    """

    language: str
    thread: str
    barrier: str
    exchange: str

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.memories: dict[str, tuple[str, DType]] = {}

    @abstractmethod
    def type(self, dtype: DType | None) -> str:
        """That of a value; None: of a position. Raises Unsupported."""

    @abstractmethod
    def number(self, text: str, dtype: DType) -> str:
        """A literal, exactly."""

    @abstractmethod
    def constant(self, kind: str, name: str, value: str) -> str:
        """The definition of one."""

    @abstractmethod
    def variable(self, kind: str, name: str, value: str) -> str:
        """The definition of one."""

    @abstractmethod
    def counted(self, kind: str, name: str, first: str, count: str, step: str) -> str:
        """The head of a loop."""

    @abstractmethod
    def read(self, memory: str, place: str, dtype: DType) -> str:
        """An element, as a value."""

    @abstractmethod
    def assigned(self, memory: str, place: str, value: str) -> str:
        """The statement that stores one."""

    @abstractmethod
    def chosen(self, condition: str, a: str, b: str) -> str:
        """One of two values."""

    @abstractmethod
    def nothing(self, dtype: DType) -> str:
        """0 of that very type, for `chosen`: C's common type with a plain 0 may be narrower where
        memory is a class."""

    @abstractmethod
    def shifted(self, value: str, amount: Val) -> str:
        """A signed number, to the right by a literal."""

    @abstractmethod
    def call(self, op: str, dtype: DType) -> str:
        """The name of a function of the language."""

    @abstractmethod
    def scalar(self, op: str, dtype: DType, args: list[str]) -> str:
        """An elementwise operation on a dtype, but for a cast."""

    @abstractmethod
    def helper_text(self, name: str) -> tuple[str, tuple[str, ...]]:
        """(the text of a helper, those that it calls)."""

    @abstractmethod
    def truth(self, a: str, source: DType) -> str:
        """Whether a number is not zero."""

    @abstractmethod
    def converted(self, a: str, source: DType, result: DType) -> str:
        """A number as another type of the language has it."""

    # ---- names

    def memory(self, memory: str, dtype: DType, name: str) -> str:
        self.memories[memory] = name, dtype
        self.names[start_of(memory).name] = "0"
        return name

    def define(self, val: Val) -> str:
        if val.width != 1:
            raise Unsupported(f"a vector in {self.language}: {val.name} has {val.width} lanes")
        name = self.names[val.name] = re.sub(r"\W", "_", val.name[1:], flags=re.ASCII)
        return name

    def helper(self, name: str) -> str:
        """The name of a helper, whose text is now part of ours."""
        if name not in self.helpers:
            text, others = self.helper_text(name)
            for other in others:
                self.helper(other)
            self.helpers[name] = text
        return name

    def value(self, val: Val) -> str:
        if not val.literal:
            return self.names[val.name]
        assert val.dtype is not None
        return self.number(val.name, val.dtype)

    # ---- statements

    def body(self, body: list[Statement], indent: str) -> None:
        for statement in body:
            if isinstance(statement, Instruction):
                self.instruction(statement, indent)
            elif isinstance(statement, When):
                self.lines.append(f"{indent}if ({self.value(statement.condition)}) {{")
                self._inside(statement.body, indent)
            elif isinstance(statement, Parallel):
                self.parallel(statement, indent)
            else:
                self.loop(statement, indent)

    def parallel(self, loop: Parallel, indent: str) -> None:
        kind = self.type(loop.var.dtype)
        if loop.level == "threads":
            thread = self.constant(kind, self.define(loop.var), self.thread.format(kind=kind))
            self.lines.append(f"{indent}{{ {thread}")
        else:
            self.lines.append(indent + self.head(loop, "worker_number", "all_workers"))
        self._inside(loop.body, indent)
        if loop.level == "threads":  # the next unit uses the shared tiles again
            self.lines.append(indent + self.barrier)

    def _inside(self, body: list[Statement], indent: str) -> None:
        self.body(body, indent + "  ")
        self.lines.append(indent + "}")

    def head(self, loop: For | Parallel, first: str, step: str) -> str:
        var, count = self.define(loop.var), self.value(loop.count)
        return self.counted(self.type(loop.var.dtype), var, first, count, step)

    def loop(self, loop: For, indent: str) -> None:
        for phi, initial, _, _ in loop.carried:
            start = self.value(initial)
            self.lines.append(indent + self.variable(self.type(phi.dtype), self.define(phi), start))
        self.lines.append(indent + self.head(loop, "0", "1"))
        self.body(loop.body, indent + "  ")
        phis = {phi.name for phi, *_ in loop.carried}
        crossed = any(v.name in phis and v.name != p.name for p, _, v, _ in loop.carried)
        following = []
        for phi, _, val, _ in loop.carried:
            text = self.value(val)
            if crossed:  # all are read before any is written
                text, kept = f"{self.names[phi.name]}_next", text
                self.lines.append(f"{indent}  {self.constant(self.type(phi.dtype), text, kept)}")
            following.append(f"{indent}  {self.names[phi.name]} = {text};")
        self.lines += [*following, indent + "}"]
        for phi, _, _, result in loop.carried:
            self.names[result.name] = self.names[phi.name]

    # ---- instructions

    def instruction(self, ins: Instruction, indent: str) -> None:
        if ins.op == "prefetch":
            return
        if ins.op == "barrier":
            self.lines.append(indent + self.barrier)
            return
        if ins.op in ("store", "scatter_at"):
            self.store(ins, indent)
            return
        if ins.out is None:
            raise Unsupported(f"the loop program has {ins.op}, which {self.language} has not")
        text = self.expression(ins, ins.out)
        kind = self.type(ins.out.dtype)
        self.lines.append(indent + self.constant(kind, self.define(ins.out), text))

    # ---- memory

    def index(self, val: Val) -> str:
        """A value, to be added to a position."""
        return self.value(val)

    def element(self, position: Val, further: str) -> tuple[str, str]:
        """(memory, number of an element)."""
        name, _ = self.memories[position.memory]
        parts = [p for p in (self.value(position), further) if p not in ("0", "0i")]
        return name, " + ".join(parts) or "0"

    def load(self, ins: Instruction, out: Val, args: list[str]) -> str:
        anywhere = ins.op == "gather_at"
        further = self.index(ins.args[1]) if anywhere else str(ins.attrs[0])
        _, dtype = self.memories[ins.args[0].memory]
        text, mask = self.read(*self.element(ins.args[0], further), dtype), args[1 + anywhere :]
        assert out.dtype is not None
        return self.chosen(mask[0], text, self.nothing(out.dtype)) if mask else text

    def store(self, ins: Instruction, indent: str) -> None:
        value, position, *mask = ins.args
        further = str(ins.attrs[0]) if ins.op == "store" else self.index(mask.pop(0))
        text = self.assigned(*self.element(position, further), self.value(value))
        self.lines.append(indent + self.under(mask, text))

    def under(self, mask: Sequence[Val], statement: str) -> str:
        """Where a condition holds, if there is one."""
        return f"if ({self.value(mask[0])}) {{ {statement} }}" if mask else statement

    # ---- values

    def cast(self, a: str, source: DType, result: DType) -> str:
        """As `graph.scalars.convert`: floats to integers saturate and NaN becomes 0."""
        if source is result:
            return a
        if result.kind == "bool":
            return self.truth(a, source)
        if source.name in HALF:
            return self.cast(f"{self.helper(f'f32_of_{source.name}')}({a})", f32, result)
        if source is f64 and result is f16:
            return f"{self.helper('f16_of_f64')}({a})"
        if result.name in HALF:
            return f"{self.helper(f'{result.name}_of_f32')}({self.cast(a, source, f32)})"
        if source.is_float and not result.is_float:
            return f"{self.helper(f'sat_{source.name}_{result.name}')}({a})"
        return self.converted(a, source, result)

    def expression(self, ins: Instruction, out: Val) -> str:
        args = [self.value(a) for a in ins.args]
        if ins.op in ("load", "gather", "gather_at"):
            return self.load(ins, out, args)
        if ins.op == "shift_right" and is_shift(ins.args[1]):
            return self.shifted(args[0], ins.args[1])
        if ins.op == "offset":
            return self.element(ins.args[0], self.index(ins.args[1]))[1]
        if ins.op in ("expand", "pack") or ins.op.startswith("across."):  # of one lane
            return args[0]
        if ins.op == "exchange" and self.exchange:
            return self.exchange.format(value=args[0], bit=ins.attrs[0])
        if ins.op == "shuffle":
            return args[ins.attrs[0]]
        if ins.op == "iota":
            assert out.dtype is not None
            return self.number("0", out.dtype)
        if ins.op == "fma":
            assert out.dtype is not None
            return f"{self.call('fma', out.dtype)}({args[1]}, {args[2]}, {args[0]})"
        if ins.op not in SCALARS:
            raise Unsupported(f"the loop program has {ins.op}, which {self.language} has not")
        source, result = ins.args[-1].dtype, out.dtype
        assert source is not None and result is not None
        return self.cast(args[0], source, result) if ins.op == "cast" else \
            self.scalar(ins.op, source, args)  # fmt: skip
