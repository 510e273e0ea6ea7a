"""Threads of a unit: tiles that they share, barriers; in the interpreter, as text, on a device."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.program import interpret

from luminal.backend import devices, text
from luminal.backend.loops import verify_loops
from luminal.errors import CompileError, DeviceError, Unsupported, VerifyError
from luminal.graph.dtype import boolean, f32, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import Buffer
from luminal.kernel.program import (
    Instruction,
    Parallel,
    Program,
    Statement,
    Tile,
    Val,
    When,
    start_of,
)
from luminal.lowering.builder import integer

THREADS, UNITS = 16, 5
BARRIER = Instruction(None, "barrier", ())
UNIT, THREAD = Val("%unit", i64), Val("%thread", i64)


def tree_sum(
    forget: int | None = None, parted: bool = False, at: int = 1, elements: int = THREADS
) -> Program:
    """Y[unit] = the sum of THREADS elements of X, by a tree in a shared tile. forget: a barrier
    that is left out; parted: one that only some threads come to; at: a factor of the steps between
    reads; elements: of the tile."""
    body: list[Statement] = []
    here = Val("%here", None, memory="S")
    first, mine, value = Val("%first", i64), Val("%mine", None, memory="X"), Val("%value", f32)
    body += [
        Instruction(here, "offset", (start_of("S"), THREAD)),
        Instruction(first, "mul", (UNIT, integer(THREADS))),
        Instruction(Val("%at", i64), "add", (first, THREAD)),
        Instruction(mine, "offset", (start_of("X"), Val("%at", i64))),
        Instruction(value, "load", (mine,), (0,)),
        Instruction(None, "store", (value, here), (0,)),
    ]
    steps = [THREADS >> n for n in range(1, THREADS.bit_length())]
    for number, step in enumerate(steps):
        body += [BARRIER] * (number != forget)
        a, b, total = (Val(f"%{name}{step}", f32) for name in "abt")
        few = Val(f"%few{step}", boolean)
        inside: list[Statement] = [
            Instruction(a, "load", (here,), (0,)),
            Instruction(b, "load", (here,), (step * at,)),
            Instruction(total, "add", (a, b)),
            Instruction(None, "store", (total, here), (0,)),
            *[BARRIER] * parted,
        ]
        body += [Instruction(few, "less", (THREAD, integer(step))), When(few, inside)]
    last, out = Val("%last", boolean), Val("%out", None, memory="Y")
    found = Val("%found", f32)
    end = [
        Instruction(found, "load", (here,), (0,)),
        Instruction(out, "offset", (start_of("Y"), UNIT)),
        Instruction(None, "store", (found, out), (0,)),
    ]
    body += [Instruction(last, "less", (THREAD, integer(1))), When(last, [*end])]
    threads = Parallel(THREAD, integer(THREADS), body, "threads")
    buffers = (Buffer("X", f32, (Index.of(THREADS * UNITS),)), Buffer("Y", f32, (Index.of(UNITS),)))
    tiles = (Tile("S", f32, elements, "shared"),)
    return Program("tree", buffers, (), [Parallel(UNIT, integer(UNITS), [threads])], tiles)


X = np.random.default_rng(0).standard_normal((UNITS, THREADS)).astype(np.float32)
ORDERS = {"forward": list, "backward": reversed}


def right(program: Program, order) -> bool:
    arrays = {"X": X, "Y": np.zeros(UNITS, np.float32)}
    interpret(program, arrays, {}, order=order)
    return np.allclose(arrays["Y"], X.sum(1), rtol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_a_tree_of_sums(order: str) -> None:
    program = tree_sum()
    verify_loops(program)
    assert right(program, ORDERS[order])


@pytest.mark.parametrize("forget", range(4))
def test_a_missing_barrier_shows_in_some_order(forget: int) -> None:
    """The verifier cannot see it."""
    program = tree_sum(forget=forget)
    verify_loops(program)
    assert not all(right(program, order) for order in ORDERS.values())


def test_a_wrong_step_and_a_short_tile_are_found() -> None:
    with pytest.raises(VerifyError, match="of S"):
        right(tree_sum(at=3), list)
    with pytest.raises(VerifyError, match="of S"):
        right(tree_sum(elements=THREADS - 1), list)


def test_a_barrier_that_some_threads_do_not_come_to() -> None:
    with pytest.raises(VerifyError, match="may not come"):
        verify_loops(tree_sum(parted=True))
    with pytest.raises(VerifyError, match="do not come"):
        right(tree_sum(parted=True), list)


def test_what_levels_there_may_be() -> None:
    program = tree_sum()
    (units,) = program.body
    assert isinstance(units, Parallel)
    store = Instruction(None, "store", (Val("1.0", f32, literal=True), start_of("Y")), (0,))
    more = Parallel(Val("%t", i64), integer(2), [], "threads")
    wrong = {
        "a store beside the threads": [*units.body, store],
        "two loops over threads": [*units.body, more],
        "a shared tile, no threads": [store],
        "a barrier, no threads": [BARRIER],
        "threads in a condition": [When(Val("1", boolean, literal=True), units.body)],
    }
    for name, body in wrong.items():
        units = Parallel(UNIT, integer(1), body)
        with pytest.raises(VerifyError):
            verify_loops(Program(name, program.buffers, (), [units], program.tiles))


def test_as_text() -> None:
    for dialect, words in (
        (text.OPENCL, ("__local f32 t0[", "get_local_id(0)", "barrier(CLK_LOCAL_MEM_FENCE")),
        (text.CUDA, ("shared_part<f32>(", "threadIdx.x", "__syncthreads();")),
        (text.METAL, ("threadgroup f32 t0[", "thread_number", "threadgroup_barrier(")),
    ):
        written = text.render(tree_sum(), dialect)
        assert all(word in written for word in words), dialect.name
    with pytest.raises(Unsupported, match="threads"):
        text.render(tree_sum(), text.C)


def test_on_a_device() -> None:
    program = tree_sum()
    try:
        device = devices.find("opencl")
        target = device.target(1)
        codes = [kept.code for kept in device.build([device.render(program, target)], target)]
        (kernel,) = device.kernels(codes, [program])
    except (DeviceError, CompileError) as error:
        pytest.skip(str(error)[:200])
    buffers = [device.allocate(size) for size in (X.nbytes, 64, 64)]
    device.write(buffers[0], X)
    device.launch(kernel, buffers[:2], [], buffers[2])
    found = np.zeros(UNITS, np.float32)
    device.read(buffers[1], found)
    np.testing.assert_allclose(found, X.sum(1), rtol=1e-5)
