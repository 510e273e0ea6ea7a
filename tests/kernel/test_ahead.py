"""What is asked for ahead: where the requests stand, what they reach, that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lower_cases import (
    Case,
    add,
    axes,
    buffer,
    gemm,
    load,
    mul,
    read,
    run,
    schedule,
    stored,
    total,
)  # fmt: skip

from luminal.graph.dtype import DType, bf16, f32, i64
from luminal.kernel.kernel import Kernel
from luminal.kernel.program import LINE, For, Instruction, Parallel, Statement
from luminal.lowering.ahead import DISTANCE

SIZE = {"s": (1, 100)}


def tiled(
    m: Any, n: int, k: int, packed: bool = True, sizes: Any = None, steps: str = "k/4",
    dtype: DType = f32,
) -> Case:  # fmt: skip
    """Rows of 4 inside panels of 16 columns; `m` may be the run-time size s."""
    paths = {"acc": f"n/16@ m/4 {steps} k/1! m/1! n/1#", "out": "n/16@ m/4 m/1! n/1#"}
    layouts = {"layouts": {"B": "1/16 0/1 1/1"}} if packed else {}
    kernel = gemm(m, n, k, dtype, epilogue=True, sizes=SIZE if sizes else None)
    return Case(kernel, schedule(paths, **layouts), sizes or {})


def nests(body: list[Statement], outer: For | None = None) -> list[tuple[For | None, For]]:
    """Loops that prefetch, with the loop around each."""
    found: list[tuple[For | None, For]] = []
    for statement in body:
        if isinstance(statement, Instruction):
            continue
        inside = nests(statement.body, statement if isinstance(statement, For) else None)
        if isinstance(statement, For) and lines(statement):
            found.append((outer, statement))
        found += inside
    return found


def lines(loop: For) -> int:
    """Lines that each turn of a loop asks for."""
    return sum(1 for s in loop.body if isinstance(s, Instruction) and s.op == "prefetch")


@pytest.mark.parametrize("native", [False, True])
def test_the_whole_next_panel_is_asked_for(native: bool) -> None:
    """Each line of the panel behind, once, by the turns of both loops that walk this one."""
    program = run(tiled(16, 48, 256), native=native)
    ((outer, inner),) = nests(program.body)
    assert outer is not None and (outer.count.name, inner.count.name) == ("4", "64")
    panel = 4 * 16 * 256  # bytes
    assert LINE * lines(inner) * 4 * 64 == panel
    (asked,) = {4 * s.attrs[0] for s in inner.body if isinstance(s, Instruction)
                and s.op == "prefetch"}  # fmt: skip
    assert asked == panel


@pytest.mark.parametrize("rows", [1, 3, 4, 23, 100])
def test_run_time_rows(rows: int) -> None:
    program = run(tiled("s", 48, 256, sizes={"s": rows}))
    assert nests(program.body)


@pytest.mark.parametrize("native", [False, True])
def test_a_panel_that_is_read_once_streams(native: bool) -> None:
    for steps in ("k/4", "k/64 k/4"):
        program = run(tiled(4, 48, 256, steps=steps, dtype=bf16), native=native)
        ((_, inner),) = nests(program.body)
        inside = [s for s in inner.body if isinstance(s, Instruction)]
        asked = [2 * s.attrs[0] for s in inside if s.op == "prefetch"]
        turn = 4 * 16 * 2  # bytes that a turn reads
        assert asked == list(range(DISTANCE, DISTANCE + turn, LINE))


def test_not_where_it_cannot_help() -> None:
    assert not nests(run(tiled(4, 48, 32, dtype=bf16)).body), "a panel of 1 KiB, read once"
    assert not nests(run(tiled(4, 48, 256)).body), "f32 that is read once"
    assert not nests(run(tiled(16, 48, 16)).body), "a panel of 1 KiB"
    assert not nests(run(tiled(16, 48, 256, packed=False)).body), "nothing is known to follow"


@pytest.mark.parametrize(("panels", "asks"), [(2, True), (4, False)])
def test_several_panels_side_by_side_are_followed_by_the_hardware(panels: int, asks: bool) -> None:
    """One row reads panels of 16 columns, 8 KiB apart, a line of each in a turn."""
    tile = 16 * panels
    paths = {"acc": f"n/{tile}@ m/1 k/2 k/1! n/16! n/1#", "out": f"n/{tile}@ m/1 n/16! n/1#"}
    kernel = gemm(1, 2 * tile, 256, bf16, epilogue=True)
    case = Case(kernel, schedule(paths, layouts={"B": "1/16 0/1 1/1"}), {})
    assert bool(nests(run(case).body)) == asks


@pytest.mark.parametrize("native", [False, True])
def test_blocks_that_are_read_several_times_are_followed_by_the_next(native: bool) -> None:
    """Each row of A is walked in blocks of 4 KiB, each read by all columns in turn."""
    paths = {"acc": "m/1@ k/1024 n/4 k/4 k/1! n/1#", "out": "m/1@ n/4 n/1#"}
    case = Case(gemm(3, 8, 2048), schedule(paths))
    ((outer, inner),) = nests(run(case, native=native).body)
    assert outer is not None and (outer.count.name, inner.count.name) == ("2", "256")


def test_blocks_that_other_units_read_too_are_not_asked_for() -> None:
    paths = {"acc": "n/4@ k/1024 m/1 k/4 k/1! n/1#", "out": "n/4@ m/1 n/1#"}
    assert not nests(run(Case(gemm(2, 8, 2048), schedule(paths)), native=True).body)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("units", ["n/16@ t/2", "t/2@ n/16"])
def test_panels_that_data_choose_inside_of_the_loops_are_not_asked_for(
    units: str, native: bool
) -> None:
    """The expert of a token: nothing outside of the loop over tokens says where its panel is."""
    expert = (("$0", load("I", "t", dtype=i64)),)
    body = mul(load("A", "t", "k"), load("W", "$0", "k", "n", slots=expert))
    values = (total("acc", "tn", body, "k"), stored("out", "tn", read("acc"), "C"))
    buffers = (buffer("I", i64, 6), buffer("A", f32, 6, 256),
               buffer("W", f32, 5, 256, 48, constant=True), buffer("C", f32, 6, 48))  # fmt: skip
    paths = {"acc": f"{units} k/4 t/1 k/1! n/1#", "out": f"{units} t/1 n/1#"}
    packed = schedule(paths, layouts={"W": "2/16 0/1 1/1 2/1"})
    kernel = Kernel("experts", buffers, axes(t=6, n=48, k=256), values)
    places = {"I": np.array([3, 0, 4, 1, 1, 9])}
    assert not nests(run(Case(kernel, packed, arrays=places), native=native).body)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("k", "n", "asks"), [(1024, 48, 12), (1024, 40, 12), (16, 48, 0)])
def test_what_is_read_behind_a_long_sum_is_asked_for_before_it(
    k: int, n: int, asks: int, native: bool
) -> None:
    """The tile of D: 4 rows of 48 columns, three lines each (of 40 columns half of the last)."""
    body = mul(load("A", "m", "k"), load("B", "k", "n"))
    values = (total("acc", "mn", body, "k"),
              stored("out", "mn", add(read("acc"), load("D", "m", "n")), "C"))  # fmt: skip
    shapes = {"A": (8, k), "B": (k, n), "D": (8, n), "C": (8, n)}
    buffers = tuple(buffer(name, f32, *shape) for name, shape in shapes.items())
    paths = {"acc": f"n/{n}@ m/4 k/4 k/1! m/1! n/8! n/1#", "out": f"n/{n}@ m/4 m/1 n/8! n/1#"}
    case = Case(Kernel("plus", buffers, axes(m=8, n=n, k=k), values), schedule(paths))
    program = run(case, native=native)
    (unit,) = program.body
    assert isinstance(unit, Parallel)
    (turn,) = (s for s in unit.body if isinstance(s, For))
    first = next(i for i, s in enumerate(turn.body) if isinstance(s, For))
    before = [s for s in turn.body[:first] if isinstance(s, Instruction)]
    places = [s.attrs[0] for s in before if s.op == "prefetch"]
    wanted = [row * n + column for row in range(4) for column in range(0, 48, 16)]
    line = LINE // 4
    assert places == sorted({place // line * line for place in wanted}) if asks else not places


def asked(body: list[Statement]) -> list[str]:
    """Memories of all requests."""
    inside = [name for s in body if not isinstance(s, Instruction) for name in asked(s.body)]
    here = [s for s in body if isinstance(s, Instruction) and s.op == "prefetch"]
    return inside + [s.args[0].memory for s in here]


@pytest.mark.parametrize(("n", "asks"), [(64, 4), (4096, 0)])
def test_lines_behind_a_sum_are_not_asked_for_where_they_are_many(n: int, asks: int) -> None:
    body = mul(load("A", "m", "k"), load("B", "m", "k"))
    values = (total("acc", "m", body, "k"),
              stored("out", "mn", mul(read("acc"), load("D", "m", "n")), "C"))  # fmt: skip
    shapes = {"A": (2, 8192), "B": (2, 8192), "D": (2, n), "C": (2, n)}
    buffers = tuple(buffer(name, f32, *shape) for name, shape in shapes.items())
    paths = {"acc": "m/1@ k/16 k/1*", "out": "m/1@ n/8 n/1#"}
    case = Case(Kernel("rows", buffers, axes(m=2, n=n, k=8192), values), schedule(paths))
    assert len(asked(run(case).body)) == asks


@pytest.mark.parametrize("written_out", ["m/1", "m/1!"])
def test_the_tile_of_a_unit_is_asked_for(written_out: str) -> None:
    body = mul(load("A", "m", "k"), load("B", "k", "n"))
    values = (total("acc", "mn", body, "k"),
              stored("out", "mn", add(read("acc"), load("D", "m", "n")), "C"))  # fmt: skip
    shapes = {"A": (8, 1024), "B": (1024, 96), "D": (8, 96), "C": (8, 96)}
    buffers = tuple(buffer(name, f32, *shape) for name, shape in shapes.items())
    paths = {"acc": "m/4@ n/48@ k/4 k/1! m/1! n/8! n/1#",
             "out": f"m/4@ n/48@ {written_out} n/8! n/1#"}  # fmt: skip
    case = Case(Kernel("plus", buffers, axes(m=8, n=96, k=1024), values), schedule(paths))
    assert len(asked(run(case).body)) == 12


@pytest.mark.parametrize("m", [4, 6, 7])
def test_places_that_data_say_within_a_unit_are_not_asked_for(m: int) -> None:
    """Of D, rows that are chosen by numbers which whole units and parts of one read each alone."""
    numbers = load("I", "m", dtype=i64)
    body = mul(load("A", "m", "k"), load("B", "k"))
    row = load("D", "m", "$0", "n", slots=(("$0", numbers),))
    values = (stored("x", "m", numbers, "X"), total("acc", "m", body, "k"),
              stored("out", "mn", add(read("acc"), row), "C"))  # fmt: skip
    floats = {"A": ("s", 1024), "B": (1024,), "D": ("s", 9, 32), "C": ("s", 32)}
    buffers = (buffer("I", i64, "s"), buffer("X", i64, "s"),
               *(buffer(name, f32, *shape) for name, shape in floats.items()))  # fmt: skip
    paths = {"x": "m/4@ m/1!", "acc": "m/4@ k/1 m/1!", "out": "m/4@ m/1! n/8 n/1#"}
    kernel = Kernel("rows", buffers, axes(m="s", n=32, k=1024), values, SIZE)
    places = {"I": np.arange(m)[::-1].copy()}
    case = Case(kernel, schedule(paths, tails={"m": "units"}), {"s": m}, arrays=places)
    assert "D" not in asked(run(case).body)


def test_a_nest_asks_for_what_it_reads_itself() -> None:
    """Two nests, the first without units, where data say which row it reads; the second of one."""
    number = load("I", 0, dtype=i64)
    row = load("D", "$0", "n", slots=(("$0", number),))
    values = (stored("x", "", number, "X"), total("acc", "", load("A", "k"), "k"),
              stored("out", "n", add(read("acc"), row), "C"),
              stored("other", "m", load("E", "m"), "F"))  # fmt: skip
    buffers = (buffer("I", i64, 1), buffer("X", i64), buffer("A", f32, 1024),
               buffer("D", f32, 4, 32), buffer("C", f32, 32), buffer("E", f32, 8),
               buffer("F", f32, 8))  # fmt: skip
    paths = {"x": "", "acc": "k/1", "out": "n/8 n/1#", "other": "m/8@ m/1#"}
    kernel = Kernel("nests", buffers, axes(n=32, m=8, k=1024), values)
    run(Case(kernel, schedule(paths), arrays={"I": np.array([2])}))
