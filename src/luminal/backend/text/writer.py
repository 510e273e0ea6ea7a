"""Loop program -> statements of a language with variables, loops and functions.

Every value is a constant, a position the number of an element, a worker takes every so-many-th unit
of the parallel loop. Values are numbers: programs with vectors are for backends that have them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

import numpy as np

from ...errors import Unsupported
from ...graph.dtype import DType
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
    def load(self, ins: Instruction, out: Val, args: list[str]) -> str:
        """An expression."""

    @abstractmethod
    def store(self, ins: Instruction, indent: str) -> None:
        """A statement."""

    @abstractmethod
    def offset(self, position: Val, further: Val) -> str:
        """A position."""

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
    def cast(self, a: str, source: DType, result: DType) -> str:
        """As `graph.scalars.convert`: floats to integers saturate and NaN becomes 0."""

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
            self.lines.append(indent + self._head(loop, "worker_number", "all_workers"))
        self._inside(loop.body, indent)
        if loop.level == "threads":  # the next unit uses the shared tiles again
            self.lines.append(indent + self.barrier)

    def _inside(self, body: list[Statement], indent: str) -> None:
        self.body(body, indent + "  ")
        self.lines.append(indent + "}")

    def _head(self, loop: For | Parallel, first: str, step: str) -> str:
        var, count = self.define(loop.var), self.value(loop.count)
        return self.counted(self.type(loop.var.dtype), var, first, count, step)

    def loop(self, loop: For, indent: str) -> None:
        for phi, initial, _, _ in loop.carried:
            start = self.value(initial)
            self.lines.append(indent + self.variable(self.type(phi.dtype), self.define(phi), start))
        self.lines.append(indent + self._head(loop, "0", "1"))
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

    def expression(self, ins: Instruction, out: Val) -> str:
        args = [self.value(a) for a in ins.args]
        if ins.op in ("load", "gather", "gather_at"):
            return self.load(ins, out, args)
        if ins.op == "shift_right" and is_shift(ins.args[1]):
            return self.shifted(args[0], ins.args[1])
        if ins.op == "offset":
            return self.offset(*ins.args)
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
