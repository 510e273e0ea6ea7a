"""Small hand-made loop programs, and running a program natively."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from luminal.backend import cpu
from luminal.backend.cpu.target import machine
from luminal.backend.table import Entry
from luminal.graph.dtype import DType, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import Buffer
from luminal.kernel.program import Instruction, Parallel, Program, Statement, Val, start_of
from luminal.kernel.target import Target

TARGETS = ("host", "avx2", "sse")


def target_of(name: str) -> Target:
    """A target by name, or a skip where this machine cannot run its code."""
    import pytest

    target = cpu.host(1) if name == "host" else cpu.named(name)
    if not machine(target).is_host:
        pytest.skip(f"{name} does not run on this machine")
    return target


class Body:
    """Statements under construction, with fresh names."""

    def __init__(self, prefix: str = "v") -> None:
        self.statements: list[Statement] = []
        self.prefix, self.count = prefix, 0

    def val(self, dtype: DType | None, width: int = 1, memory: str = "") -> Val:
        self.count += 1
        lanes = (("x", width),) if width > 1 else ()
        return Val(f"%{self.prefix}{self.count}", dtype, lanes, memory=memory)

    def emit(
        self, op: str, args: Sequence[Val], dtype: DType | None, width: int = 1, attrs=()
    ) -> Val:
        out = self.val(dtype, width, args[0].memory if dtype is None else "")
        self.statements.append(Instruction(out, op, tuple(args), tuple(attrs)))
        return out

    def effect(self, op: str, args: Sequence[Val], attrs=()) -> None:
        self.statements.append(Instruction(None, op, tuple(args), tuple(attrs)))


def literal(value: object, dtype: DType, width: int = 1) -> Val:
    return Val(str(value), dtype, (("x", width),) if width > 1 else (), literal=True)


start = start_of


def buffer(name: str, dtype: DType, count: int) -> Buffer:
    return Buffer(name, dtype, (Index.of(count),))


def blocks(buffers: Sequence[Buffer], width: int, build) -> Program:
    """A program that walks its buffers in blocks of `width` elements; `build(body, at)` writes one,
    where `at(name)` is the position of the block in a buffer. The first buffer gives the length."""
    body, unit = Body(), Val("%unit", i64)

    def at(name: str) -> Val:
        step = body.emit("mul", (unit, literal(width, i64)), i64)
        return body.emit("offset", (start(name), step), None)

    build(body, at)
    count = int(buffers[0].shape[0]) // width
    units = Parallel(unit, literal(count, i64), body.statements)
    return Program("kernel", tuple(buffers), (), [units])


def run(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    target: Target,
    sizes: Mapping[str, int] | None = None,
    threads: int = 1,
) -> None:
    """Run a program in place on arrays, copied to aligned memory and back."""
    code = cpu.build([cpu.render(program, target)], target)[0]
    copies = {}
    for b in program.buffers:
        copies[b.name] = cpu.empty(arrays[b.name].shape, arrays[b.name].dtype)
        copies[b.name][...] = arrays[b.name]
    counters = np.zeros(cpu.counter_bytes(program, threads) + 64, np.uint8)
    stride = cpu.workspace_bytes(program)
    workspace = cpu.empty((stride * threads + 64,), np.uint8)
    slots = [copies[b.name].ctypes.data for b in program.buffers]
    slots += [counters.ctypes.data, workspace.ctypes.data, stride]
    slots += [(sizes or {})[name] for name in program.sizes]
    arguments = (ctypes.c_int64 * len(slots))(*slots)
    entry = Entry(code.address(program.name), ctypes.addressof(arguments))
    cpu.crew(threads).run(cpu.table([entry]))
    assert not counters.any(), "claim counters must be zero again"
    for b in program.buffers:
        arrays[b.name][...] = copies[b.name]
