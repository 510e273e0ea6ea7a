"""Loop program -> the text of one kernel, in any of the C-like dialects."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import Unsupported
from ...graph.dtype import DType, f32, f64
from ...kernel.program import LINE, For, Program, Val
from ...lowering.verify import statements
from ..launch import Joined
from .dialect import Dialect
from .helpers import helper, unsigned
from .registers import Registers
from .writer import HALF, OF_BOOLS, half_bits, single

BINARY = {"add": "+", "mul": "*", "div": "/", "less": "<", "equal": "==", "and": "&", "or": "|",
          "xor": "^"}  # fmt: skip
WORKERS = 128  # of a group, at most
FREE = 32  # registers of a thread for what is no sum


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
    return Text(program, dialect).text()


def head(
    dialect: Dialect, functions: Mapping[str, str], helpers: Mapping[str, str]
) -> tuple[str, ...]:
    """What stands before a kernel."""
    types = (f"typedef {text} {name};" for name, text in dialect.types.items())
    own = (f"{dialect.function} {text}" for text in helpers.values())
    return *types, dialect.header, *functions.values(), *own


def kernel_name(program: Program | Joined) -> str:
    """What the kernel is called in the text."""
    return re.sub(r"\W", "_", program.name, flags=re.ASCII)


@dataclass(frozen=True)
class Place:
    """Who runs a program, in the words of a dialect: the number of a worker, all of them; a thread
    among those of a unit, where these meet; parties of a group that each have a unit."""

    worker: str
    workers: str
    thread: str
    barrier: str
    parties: int = 1


def alone(program: Program, dialect: Dialect) -> Place:
    """A launch of its own."""
    worker = (dialect.group, dialect.groups) if program.threads else \
             (dialect.worker, dialect.workers)  # fmt: skip
    return Place(*worker, dialect.thread, dialect.barrier)


class Text(Registers):
    """place: who runs it; None: a launch of its own."""

    def __init__(self, program: Program, dialect: Dialect, place: Place | None = None) -> None:
        super().__init__(program)
        self.dialect, self.language = dialect, dialect.name
        self.matrices, self.words = dialect.matrices, dialect.words
        self.staging = dialect.staging
        self.place = place or alone(program, dialect)
        self.thread, self.barrier = self.place.thread, self.place.barrier
        self.exchange = dialect.exchange

    def text(self) -> str:
        begin = self.dialect.kernel.format(threads=self._threads())
        made = self.function(begin, kernel_name(self.program), self.dialect.parameters)
        return "\n".join((*head(self.dialect, self.functions, self.helpers), made, ""))

    def function(self, begin: str, name: str, further: Sequence[str] = ()) -> str:
        """Its text; then `functions` and `helpers` are what it calls."""
        parameters = [*self._parameters(), *further]
        self._tiles()
        self.body(self.program.body, "  ")
        return "\n".join((f"{begin} {name}({', '.join(parameters)}) {{", *self.lines, "}"))

    def _threads(self) -> str:
        """Of a group; and, where they multiply matrices, how many groups shall have registers
        beside each other: two, if that leaves each thread room for twice what its loops carry."""
        count = self.program.threads or WORKERS
        if not (self.functions and self.dialect.registers):
            return str(count)
        loops = [s for s in statements(self.program.body) if isinstance(s, For)]
        held = 2 * max((len(s.carried) for s in loops), default=0) + FREE
        return f"{count}, {1 + (2 * held * count <= self.dialect.registers)}"

    def _parameters(self) -> list[str]:
        made, dialect = list[str](), self.dialect
        for number, buffer in enumerate(self.program.buffers):
            name = self.memory(buffer.name, buffer.dtype, f"b{number}")
            made.append(self._pointer(name, self.stored(buffer.dtype), number))
        for number, size in enumerate(self.program.sizes):
            self.names[f"%d_{size}"] = name = f"d{number}"
            made.append(dialect.size.format(name=name, number=len(made)))
        made.append(self._pointer("workspace", "u8", len(made)))
        return made

    def _pointer(self, name: str, kind: str, number: int) -> str:
        space = self.dialect.space
        return self.dialect.buffer.format(space=space, type=kind, name=name, number=number)

    def _tiles(self) -> None:
        d, place, outside = self.dialect, self.place, in_workspace(self.program, self.dialect)
        if self.program.threads and (not d.barrier or outside):
            raise Unsupported(f"threads that share a unit in {d.name}, or large tiles of each")
        self.lines += [f"  const i64 worker_number = {place.worker}, all_workers = "
                       f"{place.workers};"]  # fmt: skip
        places = tile_places(self.program)
        for number, tile in enumerate(self.program.tiles):
            name, kind = self.memory(tile.name, tile.dtype, f"t{number}"), self.stored(tile.dtype)
            at, count = str(places[tile.name] * place.parties), tile.elements
            if tile.space == "shared":
                form = d.shared if place.parties == 1 else d.shared_of
            else:
                # a masked tail may reach a line further
                form, count = d.own, count + LINE // tile.dtype.bytes
                if outside:
                    form, at = d.part, f"worker_number * {own_bytes(self.program)} + {at}"
            made = form.format(space=d.space, type=kind, name=name, at=at, count=count,
                               step=tile.bytes, parties=place.parties)  # fmt: skip
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

    def number(self, text: str, dtype: DType) -> str:
        """A literal, exactly."""
        if dtype.name in HALF:
            return f"((u16){half_bits(text, dtype)})"
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
        number = single(number) if dtype is f32 else number
        if math.isinf(number):
            return f"(({kind}){'-' if number < 0 else ''}{self.dialect.infinity})"
        return f"({number!r}{'f' if dtype is f32 else ''})"

    # ---- statements

    def constant(self, kind: str, name: str, value: str) -> str:
        return f"const {kind} {name} = {value};"

    def variable(self, kind: str, name: str, value: str) -> str:
        return f"{kind} {name} = {value};"

    def counted(self, kind: str, name: str, first: str, count: str, step: str) -> str:
        return f"for ({kind} {name} = {first}; {name} < {count}; {name} += {step}) {{"

    def shifted(self, value: str, amount: Val) -> str:
        return f"{value} >> {self.value(amount)}"

    def read(self, memory: str, place: str, dtype: DType) -> str:
        return f"{memory}[{place}]" + " != 0" * (dtype.kind == "bool")

    def assigned(self, memory: str, place: str, value: str) -> str:
        return f"{memory}[{place}] = {value};"

    def chosen(self, condition: str, a: str, b: str) -> str:
        return f"{condition} ? {a} : {b}"

    def nothing(self, dtype: DType) -> str:
        return f"({self.type(dtype)})0"

    # ---- elementwise

    def call(self, op: str, dtype: DType) -> str:
        self.type(dtype)
        if dtype.name not in self.dialect.calls[op]:
            raise Unsupported(f"{self.dialect.name} has no {op} of {dtype}")
        return self.dialect.calls[op][dtype.name]

    def helper_text(self, name: str) -> tuple[str, tuple[str, ...]]:
        text, others = helper(name)
        kind, text = f64 if "f64" in name else f32, self.dialect.native(name, text)
        return re.sub(r"@(\w+)", lambda m: self.call(m[1], kind), text), others

    def scalar(self, op: str, dtype: DType, args: list[str]) -> str:
        if op == "select":
            return self.chosen(*args)
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

    def truth(self, a: str, source: DType) -> str:
        return f"({a} & 0x7fff) != 0" if source.name in HALF else f"{a} != 0"

    def converted(self, a: str, source: DType, result: DType) -> str:
        form = self.dialect.casts.get((source.name, result.name), "({type})({a})")
        return form.format(a=a, type=self.type(result))
