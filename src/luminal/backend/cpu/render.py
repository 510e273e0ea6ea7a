"""Loop program -> LLVM IR text, in final SSA vector form: no optimisation pass is needed after it.

The text defines `void <name>(ptr args, i64 tid, i64 nt)`, run by every thread of a crew. `args` are
8-byte slots: a pointer for each buffer, the claim counters, the workspace of all threads, the bytes
that each has of it, sizes.
Positions in memory are pointers here, bytes arise here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import Unsupported
from ...graph.dtype import DType
from ...graph.scalars import SCALARS
from ...kernel.program import For, Instruction, Parallel, Program, Statement, Val, When, start_of
from ...kernel.target import Target
from . import access, blas, elementwise, lanes
from .chains import unfinished
from .claim import PLACE, render_claim
from .convert import cast
from .emitter import ELEMENTS, Emitter, Operand, literal
from .instructions import VPMADDWD, Emission, emissions, finished, weighted
from .target import Machine, machine
from .tiles import PRODUCTS, Tiles
from .tiles import available as tiles

PAGE = 4096


def workspace_bytes(program: Program) -> int:
    """Bytes of workspace of one thread: whole pages, so that threads share no cache line."""
    return -(-sum(tile.bytes for tile in program.tiles) // PAGE) * PAGE


def counter_bytes(program: Program, threads: int) -> int:
    """Bytes of claim counters: a cache line for each thread and one more, for each claim."""
    claims = sum(isinstance(statement, Parallel) for statement in program.body)
    return claims * (threads + 1) * 64


def render(program: Program, target: Target) -> str:
    """LLVM IR text of a program for the instruction set of the target."""
    return Renderer(program, machine(target), target.flushes).text()


class Renderer:
    """Walks one program. `names`: SSA value -> its operand in the text."""

    def __init__(self, program: Program, machine: Machine, flushes: bool = False) -> None:
        self.program, self.flushes = program, flushes and machine.is_x86
        self.e = Emitter(machine)
        self.matrix = emissions(machine.flags)
        self.names: dict[str, Operand] = {}
        self.tiles = Tiles(self.e, program, tiles(machine.flags))
        self.dtypes = {name: memory.dtype for name, memory in program.memories.items()}
        self.unfinished = unfinished(program, self.matrix)
        self.sums: dict[str, Operand] = {}  # of these, in 16 bits; their names are the accumulator
        self.claims = 0
        self.depth = 0

    def text(self) -> str:
        e = self.e
        self._arguments()
        before = self._flushing() if self.flushes else None
        self.tiles.begin()
        self.statements(self.program.body)
        self.tiles.end()
        if before:
            e.call("llvm.x86.sse.ldmxcsr", None, before)
        kinds = (f"@{name} = private unnamed_addr constant {t}" for name, t in e.globals.items())
        return "\n".join(
            [
                *kinds,
                *e.declared.values(),
                f'define void @"{self.program.name}"(ptr noalias %args, i64 %at, i64 %of) #0 {{',
                "entry:",
                PLACE,
                *e.lines,
                "  ret void",
                "}",
                attributes(e.machine),
                "",
            ]
        )

    def _flushing(self) -> Operand:
        """Subnormal operands and results are zeros from here on. Gives where the state of before
        is kept (SSE's control register: bit 6 for operands, 15 for results)."""
        e, (before, now) = self.e, (self.e.let("alloca i32, align 4", "ptr") for _ in range(2))
        e.call("llvm.x86.sse.stmxcsr", None, before)
        state = e.let(f"load i32, ptr {before.text}, align 4", "i32")
        state = e.binary("or", state, e.number(1 << 6 | 1 << 15, "i32"))
        e.line(f"store {state.typed}, ptr {now.text}, align 4")
        e.call("llvm.x86.sse.ldmxcsr", None, now)
        return before

    def _arguments(self) -> None:
        e, slots = self.e, [(start_of(b.name).name, "ptr") for b in self.program.buffers]
        slots += [("counters", "ptr"), ("workspace", "ptr"), ("stride", "i64")]
        slots += [(f"%d_{size}", "i64") for size in self.program.sizes]
        base = Operand("%args", "ptr")
        for number, (name, element) in enumerate(slots):
            address = e.at(base, 8 * number)
            self.names[name] = e.let(f"load {element}, ptr {address.text}, align 8", element)
        offset = e.let(f"mul i64 %worker, {self.names['stride'].text}", "i64")
        start = self.names["workspace"].text
        workspace = e.let(f"getelementptr i8, ptr {start}, {offset.typed}", "ptr")
        below = 0
        for tile in self.program.tiles:
            self.names[start_of(tile.name).name] = e.at(workspace, below)
            below += tile.bytes

    # ---- operands

    def operand(self, val: Val) -> Operand:
        """The text of a value: what its definition was called, or a constant."""
        if not val.literal:
            return self.names[val.name]
        assert val.dtype is not None
        return self.e.number(literal(val.name, val.dtype), ELEMENTS[val.dtype.name], val.width)

    def phi(self, val: Val) -> Operand:
        """A value that is defined by a phi of its own name."""
        element = "ptr" if val.dtype is None else ELEMENTS[val.dtype.name]
        self.names[val.name] = operand = Operand(f'%"{val.name}"', element, val.width)
        return operand

    # ---- statements

    def statements(self, body: list[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Instruction):
                self.instruction(statement)
            elif isinstance(statement, For):
                self.loop(statement)
            elif isinstance(statement, When):
                self.when(statement)
            else:
                self.parallel(statement)

    def nested(self, body: list[Statement]) -> None:
        self.depth += 1
        self.statements(body)
        self.depth -= 1

    def loop(self, loop: For) -> None:
        e, count = self.e, self.operand(loop.count)
        head, done, before = e.label("loop"), e.label("done"), e.block
        for row in loop.carried:
            if row[0] in self.tiles:
                self.tiles.start(row[1], row[0])
        carried = [row for row in loop.carried if row[0] not in self.tiles]
        initials = [self.operand(initial) for _, initial, _, _ in carried]
        runs = loop.count.literal and int(loop.count.name) > 0
        if runs:
            e.line(f"br label %{head}")
        else:
            some = e.let(f"icmp sgt {count.typed}, 0", "i1")
            e.line(f"br i1 {some.text}, label %{head}, label %{done}")
        e.start(head)
        mark = len(e.lines)
        var = self.phi(loop.var)
        phis = [self.phi(phi) for phi, _, _, _ in carried]
        self.nested(loop.body)
        following = e.let(f"add nuw nsw i64 {var.text}, 1", "i64")
        more = e.let(f"icmp slt {following.typed}, {count.text}", "i1")
        latch = e.block
        e.line(f"br i1 {more.text}, label %{head}, label %{done}")
        e.start(done)
        lines = [f"  {var.text} = phi i64 [0, %{before}], [{following.text}, %{latch}]"]
        for phi, first, (_, _, last_val, result) in zip(phis, initials, carried):
            last = self.operand(last_val).text
            start = f"[{first.text}, %{before}]"
            lines.append(f"  {phi.text} = phi {phi.type} {start}, [{last}, %{latch}]")
            out = self.phi(result)
            early = "" if runs else f", {start}"
            e.line(f"{out.text} = phi {out.type} [{last}, %{latch}]{early}")
        e.lines[mark:mark] = lines

    def when(self, when: When) -> None:
        e, yes, done = self.e, self.e.label("when"), self.e.label("done")
        e.line(f"br i1 {self.operand(when.condition).text}, label %{yes}, label %{done}")
        e.start(yes)
        self.nested(when.body)
        e.line(f"br label %{done}")
        e.start(done)

    def parallel(self, units: Parallel) -> None:
        if self.depth:
            raise Unsupported("a parallel loop inside another one: threads would not agree")
        count, var = self.operand(units.count), self.phi(units.var)
        counters = self.names["counters"]
        render_claim(self.e, self.claims, counters, count, var, lambda: self.nested(units.body))
        self.claims += 1

    # ---- instructions

    def instruction(self, ins: Instruction) -> None:
        rule = RULES.get(ins.op)
        if any(val in self.tiles for val in (*ins.args, ins.out)):
            self.matrices(ins)
            return
        args = [self.operand(arg) for arg in ins.args]
        if rule is not None:
            result = rule(self.e, ins, args)
        elif ins.op in ACCESSES:
            result = self.access(ins, args)
        elif ins.op in SCALARS:
            result = self.scalar(ins, args)
        elif ins.op.startswith("across."):
            result = lanes.across(self.e, ins.op[len("across.") :], _dtype(ins.args[0]), args[0])
        elif ins.op in self.matrix:
            result = self.product(ins, self.matrix[ins.op], args)
        else:
            raise Unsupported(f"the loop program has {ins.op}, which the CPU cannot render")
        if ins.out is not None:
            self.names[ins.out.name] = result

    def access(self, ins: Instruction, args: list[Operand]) -> Any:
        """Where it is, in bytes, then what happens there."""
        number, dtype, first = self.place(ins)
        if ins.op != "offset":
            args[number] = self.e.at(args[number], first)
        return ACCESSES[ins.op](self.e, ins, dtype, args)

    def place(self, ins: Instruction) -> tuple[int, DType, int]:
        """Which operand is a position; what lies there; bytes from it to the first element."""
        number = next(n for n, a in enumerate(ins.args) if a.dtype is None)
        dtype = self.dtypes[ins.args[number].memory]
        return number, dtype, ins.attrs[0] * dtype.bytes if ins.attrs else 0

    def matrices(self, ins: Instruction) -> None:
        """What is done with matrices in registers of their own."""
        if ins.op in PRODUCTS:
            self.tiles.product(ins)
            return
        number, dtype, first = self.place(ins)
        at = self.e.at(self.operand(ins.args[number]), first)
        self.tiles.access(ins, dtype, at)

    def product(self, ins: Instruction, emission: Emission, args: list[Operand]) -> Operand:
        """acc + the products of neighbouring lanes, in one step or as a link of a chain."""
        assert ins.out is not None
        acc, a, b = args
        before, waits = self.sums.pop(ins.args[0].name, None), ins.out.name in self.unfinished
        if emission.short is None or (before is None and not waits):
            return _pieces(self.e, emission, emission.emit, acc, *args)
        sums = _pieces(self.e, emission, emission.short, acc, a, b)
        if before is not None:
            sums = self.e.binary("add", before, sums)
        if not waits:
            return _pieces(self.e, emission, finished, acc, acc, sums)
        self.sums[ins.out.name] = sums
        return acc

    def scalar(self, ins: Instruction, args: list[Operand]) -> Operand:
        assert ins.out is not None
        width = ins.out.width
        args = [self.e.broadcast(a, width) for a in args]
        for val, other in zip(ins.args, args[::-1]):
            if val.name in self.sums:
                sums, words = self.sums.pop(val.name), self.matrix[VPMADDWD.name]
                return _pieces(self.e, words, weighted, other, sums, other)
        if ins.op == "cast":
            return cast(self.e, args[0], _dtype(ins.args[0]), _dtype(ins.out))
        return elementwise.apply(self.e, ins.op, _dtype(ins.args[-1]), args)


def attributes(machine: Machine) -> str:
    """Function attributes: vectors of full width, no unwinding."""
    width = 512 if machine.has("avx512f") else 256 if machine.has("avx2") else 128
    wide = f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    kinds = f'nounwind "no-trapping-math"="true" {wide if machine.is_x86 else ""}'
    return f"attributes #0 = {{ {kinds} }}"


def _dtype(val: Val) -> Any:
    assert val.dtype is not None
    return val.dtype


def _width(ins: Instruction) -> int:
    assert ins.out is not None
    return ins.out.width


def _result(ins: Instruction) -> tuple[Any, int]:
    assert ins.out is not None
    return _dtype(ins.out), ins.out.width


def _mask(e: Emitter, args: list[Operand], position: int, width: int) -> Operand | None:
    return e.broadcast(args[position], width) if len(args) > position else None


def _fma(e: Emitter, ins: Instruction, args: list[Operand]) -> Operand:
    dtype, width = _result(ins)
    args = [e.broadcast(a, width) for a in args]
    return elementwise.fma(e, dtype, *args)


def _pieces(
    e: Emitter, emission: Emission, emit: Callable[..., Operand], acc: Operand, *args: Operand
) -> Operand:
    """emit on registers of the widest form that divides the accumulator."""
    piece = next((w for w in emission.widths if acc.width % w == 0), None)
    if piece is None:
        raise Unsupported(f"{emission.instruction.name} on {acc.width} lanes")
    return e.in_pieces(acc.width, piece, partial(emit, e), *args)


def _expand(e: Emitter, ins: Instruction, args: list[Operand]) -> Operand:
    assert ins.out is not None
    return lanes.expand(e, args[0], ins.args[0], ins.out)


def _iota(e: Emitter, ins: Instruction, args: list[Operand]) -> Operand:
    dtype, width = _result(ins)
    return lanes.iota(e, ins.attrs[0], ELEMENTS[dtype.name], width)


def _shuffle(e: Emitter, ins: Instruction, args: list[Operand]) -> Operand:
    return lanes.shuffle(e, args[0], args[1] if len(args) > 1 else None, ins.attrs)


def _offset(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> Operand:
    return access.further(e, dtype, *args)


def _load(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> Operand:
    width = _width(ins)
    return access.load(e, dtype, width, args[0], _mask(e, args, 1, width))


def _gather(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> Operand:
    assert ins.out is not None
    offsets = access.strides(e, ins.attrs[1:], [size for _, size in ins.out.lanes])
    return access.gather(e, dtype, args[0], offsets, _mask(e, args, 1, offsets.width))


def _gather_at(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> Operand:
    return access.gather(e, dtype, args[0], args[1], _mask(e, args, 2, _width(ins)))


def _store(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> None:
    access.store(e, dtype, args[0], args[1], _mask(e, args, 2, args[0].width))


def _scatter(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> None:
    offsets = access.strides(e, ins.attrs[1:], [size for _, size in ins.args[0].lanes])
    mask = _mask(e, args, 2, offsets.width)
    access.scatter(e, dtype, args[0], args[1], offsets, mask)


def _scatter_at(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> None:
    value = e.broadcast(args[0], args[2].width)
    access.scatter(e, dtype, value, args[1], args[2], _mask(e, args, 3, value.width))


def _prefetch(e: Emitter, ins: Instruction, dtype: DType, args: list[Operand]) -> None:
    """To be read, into the second cache."""
    e.call("llvm.prefetch.p0", None, args[0], "i32 0", "i32 2", "i32 1")


def _gemm(e: Emitter, ins: Instruction, args: list[Operand]) -> None:
    """The library's own form: CBLAS, row-major, 64-bit sizes."""
    pointers, (m, n, k, *leading) = args[:3], args[3:]
    a, b, c = (f"ptr {p.text}, {ld.typed}" for p, ld in zip(pointers, leading))
    turned = ", ".join(f"i32 {blas.TURNED if t else blas.PLAIN}" for t in ins.attrs)
    e.declared[blas.SYMBOL] = blas.DECLARATION
    e.line(f"call void @{blas.SYMBOL}(i32 {blas.ROW_MAJOR}, {turned}, {m.typed}, {n.typed}, "
           f"{k.typed}, float 1.0, {a}, {b}, float 0.0, {c})")  # fmt: skip


RULES: dict[str, Callable[[Emitter, Instruction, list[Operand]], Any]] = {
    "fma": _fma,
    "expand": _expand,
    "iota": _iota,
    "pack": lambda e, ins, args: e.pack(args),
    "shuffle": _shuffle,
    "gemm": _gemm,
}
ACCESSES: dict[str, Callable[[Emitter, Instruction, DType, list[Operand]], Any]] = {
    "offset": _offset,
    "load": _load,
    "gather": _gather,
    "gather_at": _gather_at,
    "store": _store,
    "scatter": _scatter,
    "scatter_at": _scatter_at,
    "prefetch": _prefetch,
}
