"""Loop program -> the text of one kernel, in any of the C-like dialects.

Every value is a constant, a position the number of an element, a worker takes every so-many-th unit
of the parallel loop. Values are numbers: programs with vectors are for backends that have them.
"""

from __future__ import annotations

import math
import re

import numpy as np

from ...errors import Unsupported
from ...graph.dtype import DType, f16, f32, f64
from ...graph.scalars import SCALARS
from ...kernel.program import (
    LINE,
    For,
    Instruction,
    Parallel,
    Program,
    Statement,
    Val,
    When,
    start_of,
)
from .dialect import Dialect
from .helpers import helper, unsigned

HALF = ("f16", "bf16")
BINARY = {"add": "+", "mul": "*", "div": "/", "less": "<", "equal": "==", "and": "&", "or": "|",
          "xor": "^"}  # fmt: skip
WORKERS = 128  # of a group, at most
OF_BOOLS = {"add": "|", "max": "|", "mul": "&", "min": "&"}


def tile_places(program: Program) -> dict[str, int]:
    """Where each tile begins, in bytes from the first of those in its space."""
    ends, places = {"own": 0, "shared": 0}, dict[str, int]()
    for tile in program.tiles:
        places[tile.name] = ends[tile.space]
        ends[tile.space] += tile.bytes
    return places


def own_bytes(program: Program) -> int:
    """What a worker or thread has to itself."""
    return sum(tile.bytes for tile in program.tiles if tile.space == "own")


def shared_bytes(program: Program) -> int:
    """What the threads of a unit share."""
    return sum(tile.bytes for tile in program.tiles if tile.space == "shared")


def in_workspace(program: Program, dialect: Dialect) -> bool:
    """Its own tiles lie in memory of the device, and not in what a worker has to itself."""
    return own_bytes(program) > dialect.private


def workspace_bytes(program: Program, dialect: Dialect, workers: int) -> int:
    """Bytes that so many workers need for their tiles; 0 where they hold them themselves."""
    return own_bytes(program) * workers if in_workspace(program, dialect) else 0


def render(program: Program, dialect: Dialect) -> str:
    """The text. The kernel takes pointers to its buffers, the run-time sizes as i64, and a pointer
    to `workspace_bytes`. Raises Unsupported for what the language lacks."""
    return _Text(program, dialect).text()


def kernel_name(program: Program) -> str:
    """What the kernel is called in the text."""
    return re.sub(r"\W", "_", program.name, flags=re.ASCII)


def _is_shift(amount: Val) -> bool:
    """So many bits as a signed number has."""
    kind = amount.dtype
    return bool(kind and amount.literal and kind.kind == "int" and 0 <= int(amount.name) < 32)


class _Text:
    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.program, self.dialect = program, dialect
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.memories: dict[str, tuple[str, DType]] = {}

    def text(self) -> str:
        parameters = self._parameters()
        self._tiles()
        self.body(self.program.body, "  ")
        types = (f"typedef {text} {name};" for name, text in self.dialect.types.items())
        helpers = (f"{self.dialect.function} {text}" for text in self.helpers.values())
        begin = self.dialect.kernel.format(threads=self.program.threads or WORKERS)
        head = f"{begin} {kernel_name(self.program)}({', '.join(parameters)}) {{"
        parts = (*types, self.dialect.header, *helpers, head, *self.lines, "}", "")
        return "\n".join(parts)

    def _parameters(self) -> list[str]:
        made, dialect = list[str](), self.dialect
        for number, buffer in enumerate(self.program.buffers):
            name = self._memory(buffer.name, buffer.dtype, f"b{number}")
            made.append(self._pointer(name, self.stored(buffer.dtype), number))
        for number, size in enumerate(self.program.sizes):
            self.names[f"%d_{size}"] = name = f"d{number}"
            made.append(dialect.size.format(name=name, number=len(made)))
        made.append(self._pointer("workspace", "u8", len(made)))
        return [*made, *dialect.parameters]

    def _pointer(self, name: str, kind: str, number: int) -> str:
        space = self.dialect.space
        return self.dialect.buffer.format(space=space, type=kind, name=name, number=number)

    def _memory(self, memory: str, dtype: DType, name: str) -> str:
        self.memories[memory] = name, dtype
        self.names[start_of(memory).name] = "0"
        return name

    def _tiles(self) -> None:
        d, worker, workers = self.dialect, self.dialect.worker, self.dialect.workers
        outside = in_workspace(self.program, d)
        if self.program.threads:
            if not d.barrier or outside:
                raise Unsupported(f"threads that share a unit in {d.name}, or large tiles of each")
            worker, workers = d.group, d.groups
        self.lines += [f"  const i64 worker_number = {worker}, all_workers = {workers};"]
        places = tile_places(self.program)
        for number, tile in enumerate(self.program.tiles):
            name, kind = self._memory(tile.name, tile.dtype, f"t{number}"), self.stored(tile.dtype)
            at, count = str(places[tile.name]), tile.elements
            if tile.space == "shared":
                form = d.shared
            else:
                # a masked tail may reach a line further
                form, count = d.own, count + LINE // tile.dtype.bytes
                if outside:
                    form, at = d.part, f"worker_number * {own_bytes(self.program)} + {at}"
            made = form.format(space=d.space, type=kind, name=name, at=at, count=count)
            self.lines.append(f"  {made}")

    # ---- types and numbers

    def stored(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return "u8" if dtype.kind == "bool" else self.type(dtype)

    def type(self, dtype: DType | None) -> str:
        if dtype is None:
            return "i64"  # a position
        if dtype.name in self.dialect.lacks:
            raise Unsupported(f"{self.dialect.name} has no {dtype}")
        return "bool" if dtype.kind == "bool" else "u16" if dtype.name in HALF else dtype.name

    def value(self, val: Val) -> str:
        if not val.literal:
            return self.names[val.name]
        assert val.dtype is not None
        return self.number(val.name, val.dtype)

    def number(self, text: str, dtype: DType) -> str:
        """A literal, exactly."""
        if dtype.name in HALF:
            with np.errstate(over="ignore"):
                rounded = np.float32(float(text)).astype(dtype.numpy)
            return f"((u16){int(rounded.view(np.uint16))})"
        if dtype.is_float:
            return self._float(float(text), dtype)
        if dtype.kind == "bool":
            return "1" if text in ("1", "True") else "0"
        number = int(text)
        if dtype.name in ("i32", "i64") and abs(number) < 1 << 31:
            return str(number) if number >= 0 else f"({number})"
        if number == -(1 << 63):
            return f"(-(i64){(1 << 63) - 1} - 1)"
        return f"(({dtype.name}){number}{'u' if dtype.kind != 'int' else ''})"

    def _float(self, number: float, dtype: DType) -> str:
        kind = self.type(dtype)
        if math.isnan(number):
            return f"(({kind})({self.dialect.infinity} - {self.dialect.infinity}))"
        if dtype is f32:
            with np.errstate(over="ignore"):
                number = float(np.float32(number))
        if math.isinf(number):
            return f"(({kind}){'-' if number < 0 else ''}{self.dialect.infinity})"
        return f"({number!r}{'f' if dtype is f32 else ''})"

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
        if loop.level == "threads":
            kind = self.type(loop.var.dtype)
            thread = f"const {kind} {self.define(loop.var)} = {self.dialect.thread};"
            self.lines.append(f"{indent}{{ {thread}")
        else:
            self.lines.append(indent + self._head(loop, "worker_number", "+= all_workers"))
        self._inside(loop.body, indent)
        if loop.level == "threads":  # the next unit uses the shared tiles again
            self.lines.append(indent + self.dialect.barrier)

    def _inside(self, body: list[Statement], indent: str) -> None:
        self.body(body, indent + "  ")
        self.lines.append(indent + "}")

    def _head(self, loop: For | Parallel, first: str, step: str) -> str:
        var = self.define(loop.var)
        kind = self.type(loop.var.dtype)
        return f"for ({kind} {var} = {first}; {var} < {self.value(loop.count)}; {var} {step}) {{"

    def loop(self, loop: For, indent: str) -> None:
        for phi, initial, _, _ in loop.carried:
            start = self.value(initial)
            self.lines.append(f"{indent}{self.type(phi.dtype)} {self.define(phi)} = {start};")
        self.lines.append(indent + self._head(loop, "0", "+= 1"))
        self.body(loop.body, indent + "  ")
        phis = {phi.name for phi, *_ in loop.carried}
        crossed = any(v.name in phis and v.name != p.name for p, _, v, _ in loop.carried)
        following = []
        for phi, _, val, _ in loop.carried:
            text = self.value(val)
            if crossed:  # all are read before any is written
                text, kept = f"{self.names[phi.name]}_next", text
                self.lines.append(f"{indent}  const {self.type(phi.dtype)} {text} = {kept};")
            following.append(f"{indent}  {self.names[phi.name]} = {text};")
        self.lines += [*following, indent + "}"]
        for phi, _, _, result in loop.carried:
            self.names[result.name] = self.names[phi.name]

    def define(self, val: Val) -> str:
        if val.width != 1:
            raise Unsupported(f"a vector in {self.dialect.name}: {val.name} has {val.width} lanes")
        name = self.names[val.name] = re.sub(r"\W", "_", val.name[1:], flags=re.ASCII)
        return name

    # ---- instructions

    def instruction(self, ins: Instruction, indent: str) -> None:
        if ins.op == "prefetch":
            return
        if ins.op == "barrier":
            self.lines.append(indent + self.dialect.barrier)
            return
        if ins.op in ("store", "scatter_at"):
            self.store(ins, indent)
            return
        if ins.out is None:
            raise Unsupported(f"the loop program has {ins.op}, which {self.dialect.name} has not")
        text = self.expression(ins, ins.out)
        kind = self.type(ins.out.dtype)
        self.lines.append(f"{indent}const {kind} {self.define(ins.out)} = {text};")

    def expression(self, ins: Instruction, out: Val) -> str:
        args = [self.value(a) for a in ins.args]
        if ins.op in ("load", "gather", "gather_at"):
            return self.load(ins, out, args)
        if ins.op == "shift_right" and _is_shift(ins.args[1]):
            return f"{args[0]} >> {args[1]}"
        if ins.op == "offset":
            return args[1] if args[0] == "0" else f"{args[0]} + {args[1]}"
        if ins.op in ("expand", "pack") or ins.op.startswith("across."):  # of one lane
            return args[0]
        if ins.op == "exchange" and self.dialect.exchange:
            return self.dialect.exchange.format(value=args[0], bit=ins.attrs[0])
        if ins.op == "shuffle":
            return args[ins.attrs[0]]
        if ins.op == "iota":
            return "0"
        if ins.op == "fma":
            assert out.dtype is not None
            return f"{self.call('fma', out.dtype)}({args[1]}, {args[2]}, {args[0]})"
        if ins.op not in SCALARS:
            raise Unsupported(f"the loop program has {ins.op}, which {self.dialect.name} has not")
        source, result = ins.args[-1].dtype, out.dtype
        assert source is not None and result is not None
        return self.cast(args[0], source, result) if ins.op == "cast" else \
            self.scalar(ins.op, source, args)  # fmt: skip

    def element(self, position: Val, further: int | str) -> str:
        name, _ = self.memories[position.memory]
        parts = [p for p in (self.value(position), str(further)) if p != "0"]
        return f"{name}[{' + '.join(parts) or '0'}]"

    def load(self, ins: Instruction, out: Val, args: list[str]) -> str:
        anywhere = ins.op == "gather_at"
        text = self.element(ins.args[0], args[1] if anywhere else ins.attrs[0])
        _, dtype = self.memories[ins.args[0].memory]
        text = f"{text} != 0" if dtype.kind == "bool" else text
        mask = args[2:] if anywhere else args[1:]
        return f"{mask[0]} ? {text} : ({self.type(dtype)})0" if mask else text

    def store(self, ins: Instruction, indent: str) -> None:
        value, position, *rest = ins.args
        further: int | str = ins.attrs[0] if ins.op == "store" else self.value(rest.pop(0))
        when = f"if ({self.value(rest[0])}) " if rest else ""
        self.lines.append(f"{indent}{when}{self.element(position, further)} = {self.value(value)};")

    # ---- elementwise

    def call(self, op: str, dtype: DType) -> str:
        self.type(dtype)
        return self.dialect.calls[op][dtype.name]

    def helper(self, name: str) -> str:
        """The name of a helper, whose text is now part of ours."""
        if name not in self.helpers:
            text, others = helper(name)
            for other in others:
                self.helper(other)
            kind = f64 if "f64" in name else f32
            self.helpers[name] = re.sub(r"@(\w+)", lambda m: self.call(m[1], kind), text)
        return name

    def scalar(self, op: str, dtype: DType, args: list[str]) -> str:
        if op == "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if dtype.kind == "bool":
            return self._boolean(op, args)
        if op == "recip":
            return f"{self.number('1.0', dtype)} / {args[0]}"
        if op in ("add", "mul") and not dtype.is_float:
            wide = unsigned(dtype)
            return f"({dtype.name})(({wide}){args[0]} {BINARY[op]} ({wide}){args[1]})"
        if op in BINARY and op not in self.dialect.calls:
            return f"{args[0]} {BINARY[op]} {args[1]}"
        if op in ("max", "min") and not dtype.is_float:
            test = "<" if op == "min" else ">"
            return f"{args[0]} {test} {args[1]} ? {args[0]} : {args[1]}"
        if op in self.dialect.calls and dtype.is_float:
            return f"{self.call(op, dtype)}({', '.join(args)})"
        return f"{self.helper(f'{op}_{dtype.name}')}({', '.join(args)})"

    def _boolean(self, op: str, args: list[str]) -> str:
        sign = OF_BOOLS.get(op) or BINARY.get(op)
        if sign is not None:
            return f"{args[0]} {sign} {args[1]}"
        kind = "i8" if op.startswith("shift") else "u8"
        inside = ", ".join(f"({kind}){a}" for a in args)
        return f"{self.helper(f'{op}_{kind}')}({inside}) != 0"

    def cast(self, a: str, source: DType, result: DType) -> str:
        """As `graph.scalars.convert`: floats to integers saturate and NaN becomes 0."""
        if source is result:
            return a
        if result.kind == "bool":
            return f"({a} & 0x7fff) != 0" if source.name in HALF else f"{a} != 0"
        if source.name in HALF:
            return self.cast(f"{self.helper(f'f32_of_{source.name}')}({a})", f32, result)
        if source is f64 and result is f16:
            return f"{self.helper('f16_of_f64')}({a})"
        if result.name in HALF:
            return f"{self.helper(f'{result.name}_of_f32')}({self.cast(a, source, f32)})"
        if source.is_float and not result.is_float:
            return f"{self.helper(f'sat_{source.name}_{result.name}')}({a})"
        return f"({self.type(result)})({a})"
