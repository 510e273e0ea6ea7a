"""Each rule of a legal schedule, broken once; and schedules at random: refused, or right."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from lower_cases import (
    TARGET,
    Case,
    attention,
    attention_schedule,
    axes,
    buffer,
    exp,
    gemm,
    ix,
    layer_norm,
    load,
    mul,
    num,
    read,
    run,
    schedule,
    softmax,
    stored,
    total,
)
from test_lower import CASES, MAP, NORM, ROW, SOFTMAX, band, scan, scatter

from luminal.errors import Illegal
from luminal.graph.dtype import f32, i64
from luminal.kernel.kernel import Kernel, Reduction, Store, Value
from luminal.kernel.schedule import Loop, Schedule
from luminal.lowering.legal import check, problems
from luminal.lowering.lower import lower

GEMM = gemm(16, 64, 32)
GOOD = {"acc": "n/32@ m/8 k/4 k/1! m/1! n/16! n/1#", "out": "n/32@ m/8 m/1! n/16! n/1#"}


ROWS = Kernel(
    "rows", (buffer("X", f32, 4, 8), buffer("Y", f32, 4, 5)), axes(m=4, k=8, n=5),
    (total("acc", "m", load("X", "m", "k"), "k"), stored("out", "mn", read("acc"), "Y")),
)  # fmt: skip


def pair(first: str, second: str, **paths: str):
    """A kernel with two values that touch one buffer, and their paths."""
    a = stored("a", "i", exp(load("X", "i")), first)
    b = stored("b", "i", exp(load(first, "i")), second)
    buffers = (buffer("X", f32, 20), buffer("Y", f32, 20), buffer("Z", f32, 20))
    return Kernel("pair", buffers, axes(i=20), (a, b)), schedule(paths)


BROKEN = {
    "an axis is left out": (GEMM, {**GOOD, "acc": "n/32@ k/4 k/1! n/16! n/1#"}),
    "steps do not end at one": (GEMM, {**GOOD, "out": "n/32@ m/8 m/2! n/16! n/1#"}),
    "steps grow": (GEMM, {**GOOD, "acc": "n/32@ m/8 k/4 k/8! k/1! m/1! n/16! n/1#"}),
    "steps do not divide": (GEMM, {**GOOD, "acc": "n/32@ m/8 k/4 k/3! k/1! m/1! n/16! n/1#"}),
    "a reduction in a foreign loop": (ROWS, {"acc": "m/1@ k/4 n/1 k/1",
                                             "out": "m/1@ n/1"}),
    "threads share an accumulator": (GEMM, {**GOOD, "acc": "k/4@ m/8 k/1! m/1! n/16! n/1#"}),
    "a parallel loop inside": (GEMM, {**GOOD, "out": "m/8 n/32@ m/1! n/16! n/1#"}),
    "parallel twice": (GEMM, {**GOOD, "out": "n/32@ n/16@ m/8 m/1! n/1#"}),
    "partial of a kept axis": (GEMM, {**GOOD, "out": "n/32@ m/8 m/1* n/16! n/1#"}),
    "made in another unit": (softmax(3, 70), {**SOFTMAX, "scale": "m/2@ m/1"}),
    "a path for nothing": (GEMM, {**GOOD, "other": "n/32@"}),
    "an unknown axis": (GEMM, {**GOOD, "out": "z/4 n/32@ m/8 m/1! n/16! n/1#"}),
    "no path for an output": (GEMM, {"acc": GOOD["acc"]}),
    "lanes that are no power of two": (GEMM, {**GOOD, "out": "n/24@ m/8 m/1! n/12! n/1#"}),
    "lanes of several steps": (GEMM, {**GOOD, "out": "n/32@ m/8 m/1! n/16! n/2#"}),
    "a loop inside the lanes": (GEMM, {**GOOD, "out": "n/32@ m/8 m/1! n/16# n/1"}),
    "a reduction without a path": (softmax(3, 70), {n: p for n, p in SOFTMAX.items()
                                                    if n != "top"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_refused(name: str) -> None:
    kernel, paths = BROKEN[name]
    with pytest.raises(Illegal):
        check(kernel, schedule(paths))


def test_the_good_ones_pass() -> None:
    for case in CASES.values():
        assert not list(problems(case.kernel, case.schedule))


@pytest.mark.parametrize("layout", ["1/32 0/1", "1/32 0/1 1/3 1/1", "2/1 0/1 1/1", "1/4 1/8 1/1"])
def test_bad_layouts(layout: str) -> None:
    with pytest.raises(Illegal):
        check(GEMM, schedule(GOOD, layouts={"B": layout}))


def test_only_constants_are_laid_out_anew() -> None:
    with pytest.raises(Illegal, match="no constant"):
        check(GEMM, schedule(GOOD, layouts={"A": "1/4 0/1 1/1"}))


def test_what_depends_on_a_running_value_shares_its_loop() -> None:
    kernel = attention(2, 40, 40, 16, False)
    good = attention_schedule(32, 16, 16)
    tile = "h/1@ q/32@ "
    for name, path in {"p": tile + "k/4 k/1! q/16! q/1#", "shrink": tile + "q/16! q/1#",
                       "total": tile + "k/8 k/1 q/16! q/1#"}.items():  # fmt: skip
        parsed = schedule({name: path}).paths[name]
        with pytest.raises(Illegal):
            wrong = replace(good, paths={**good.paths, name: parsed})
            check(kernel, wrong)
            lower(kernel, wrong, TARGET)


def test_scans_run_serially() -> None:
    for path in ("m/2@ m/1 k/16 k/1#", "m/2@ m/1 k/4*", "k/1 m/4 m/1", "k/4@ k/1 m/1"):
        case = scan("sum", f32, path)
        with pytest.raises(Illegal):
            check(case.kernel, case.schedule)


def test_ordered_axes_run_in_order() -> None:
    for path in ("i/2@ i/1 d/16 d/1#", "d/1@ i/8 d/1 i/1#"):
        case = scatter("sum", f32, path)
        with pytest.raises(Illegal):
            check(case.kernel, case.schedule)
            lower(case.kernel, case.schedule, TARGET)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("mode", ["sum", "max", "set"])
def test_what_is_combined_may_come_in_any_order(mode: str, native: bool) -> None:
    slots = (("$0", load("I", "i", "j", dtype=i64)),)
    store = Store("Y", (ix("$0"), ix("d")), slots, mode, ("i", "j"))
    value = Value("out", ("i", "j", "d"), load("V", "i", "j", "d"), f32, store=store)
    buffers = (buffer("I", i64, 3, 3), buffer("V", f32, 3, 3, 20), buffer("Y", f32, 6, 20))
    kernel = Kernel("scatter", buffers, axes(i=3, j=3, d=20), (value,))
    places = np.array([[3, 3, -1], [0, 6, 5], [3, 1, 0]])
    case = Case(kernel, schedule({"out": "d/16@ j/1 i/3 i/1! d/16! d/1#"}), arrays={"I": places})
    if mode == "set":
        with pytest.raises(Illegal, match="order"):
            check(kernel, case.schedule)
    else:
        run(case, native=native)


def test_lanes_that_may_meet_are_not_combined() -> None:
    case = scatter("sum", f32, "d/4@ d/1 i/8 i/1#")
    with pytest.raises(Illegal, match="meet"):
        lower(case.kernel, case.schedule, TARGET)


def test_two_values_of_one_buffer() -> None:
    shared = {"a": "i/4@ i/1", "b": "i/4@ i/1"}
    kernel, good = pair("Y", "Z", **shared)
    run(Case(kernel, good))
    kernel, apart = pair("Y", "Z", a="i/4@ i/1", b="i/5@ i/1")
    with pytest.raises(Illegal, match="meet in the buffer"):
        check(kernel, apart)
    kernel, serial = pair("Y", "Z", a="i/4 i/1", b="i/5 i/1")
    run(Case(kernel, serial))


def test_a_shifted_read_of_what_other_units_write() -> None:
    a = stored("a", "i", load("X", "i"), "Y")
    b = stored("b", "i", load("Y", ix(19) - "i"), "Z")
    buffers = (buffer("X", f32, 20), buffer("Y", f32, 20), buffer("Z", f32, 20))
    kernel = Kernel("shift", buffers, axes(i=20), (a, b))
    with pytest.raises(Illegal):
        check(kernel, schedule({"a": "i/4@ i/1", "b": "i/4@ i/1"}))


def test_a_lent_buffer_is_not_read_later() -> None:
    values = (
        total("top", "m", load("X", "m", "k"), "k", "max"),
        Value("e", ("m", "k"), exp(load("X", "m", "k")), f32),
        stored("out", "mk", read("e"), "Y"),
        total("late", "m", read("e"), "k"),
        stored("last", "m", read("late"), "Z"),
    )
    buffers = (buffer("X", f32, 3, 20), buffer("Y", f32, 3, 20), buffer("Z", f32, 3))
    kernel = Kernel("lent", buffers, axes(m=3, k=20), values)
    paths = {"top": ROW, "e": MAP, "out": MAP, "late": ROW, "last": "m/1@"}
    check(kernel, schedule(paths))
    with pytest.raises(Illegal):
        check(kernel, schedule(paths, homes={"e": "Y"}))


def test_values_that_are_read_together_do_not_live_in_one_buffer() -> None:
    values = (
        Value("a", ("i",), exp(load("X", "i")), f32),
        Value("b", ("i",), exp(read("a")), f32),
        stored("out", "i", mul(read("a"), read("b")), "Y"),
    )
    kernel = Kernel("both", (buffer("X", f32, 20), buffer("Y", f32, 20)), axes(i=20), values)
    paths = dict.fromkeys(("a", "b", "out"), "i/1")
    check(kernel, schedule(paths, homes={"a": "Y"}))
    with pytest.raises(Illegal, match="read later"):
        check(kernel, schedule(paths, homes={"a": "Y", "b": "Y"}))


def test_threads_do_not_store_the_same_elements() -> None:
    value = Value("a", ("i",), num(1.0), f32, store=Store("Y", (ix("i"),)))
    kernel = Kernel("same", (buffer("Y", f32, 4),), axes(i=4, j=3), (value,))
    with pytest.raises(Illegal):
        check(kernel, schedule({"a": "j/1@ i/1"}))


def test_lanes_of_kept_and_reduced_axes_do_not_mix() -> None:
    x = load("X", "m", "k")
    value = Value("acc", ("m",), x, f32, Reduction("sum", ("k",)), Store("Y", (ix("m"),)))
    buffers = (buffer("X", f32, 16, 16), buffer("Y", f32, 16))
    kernel = Kernel("mixed", buffers, axes(m=16, k=16), (value,))
    with pytest.raises(Illegal):
        lower(kernel, schedule({"acc": "m/4 k/4 m/1# k/1#"}), TARGET)


# ---- at random


def mutated(rng: random.Random, plan: Schedule, kernel: Kernel) -> Schedule:
    """One loop changed, moved, dropped or added, in one path or wherever it stands."""
    paths = {n: list(p) for n, p in plan.paths.items()}
    path = rng.choice(list(paths.values()))
    everywhere = list(paths.values()) if rng.random() < 0.6 else [path]
    act = rng.randrange(5)
    if act == 4 or not path:
        kind = rng.choice(["serial", "parallel", "unroll", "vector"])
        axis = rng.choice(sorted(kernel.axes))
        path.insert(rng.randrange(len(path) + 1), Loop(axis, rng.choice([1, 2, 4, 16]), kind))
    else:
        old = rng.choice(path)
        new = replace(old, step=rng.choice([1, 2, 3, 5, 8, 16, 64]))
        if act == 1:
            new = replace(old, kind=rng.choice(["serial", "parallel", "unroll", "vector"]))
        for loops in (p for p in everywhere if old in p):
            place = loops.index(old)
            if act == 2 and place:
                loops[place - 1], loops[place] = loops[place], loops[place - 1]
            elif act == 3:
                del loops[place]
            elif act < 2:
                loops[place] = new
    registers = rng.choice([0, 4, 40, 40])
    return replace(plan, paths={n: tuple(p) for n, p in paths.items()}, registers=registers)


RANDOM = {
    "softmax": Case(softmax(3, 21), schedule(SOFTMAX), tolerance=1e-5),
    "layer norm": Case(layer_norm(3, 21, 21), schedule(NORM), tolerance=1e-5),
    "gemm": Case(gemm(13, 35, 9, epilogue=True), schedule(GOOD), tolerance=1e-5),
    "band": band("q/8@ k/4 q/2 k/1 q/1!"),
    "scan": scan("sum", f32, "m/2@ m/1 k/4 k/1!"),
    "attention": Case(attention(2, 20, 20, 8, True), attention_schedule(16, 8, 8, 4, 4),
                      tolerance=1e-5),
}  # fmt: skip


@pytest.mark.parametrize("rounds", [12, pytest.param(84, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RANDOM)
def test_random_schedules_are_refused_or_right(name: str, rounds: int) -> None:
    """Six mutations a round: 3,024 in the sweep."""
    rng, case, right = random.Random(rounds), RANDOM[name], 0
    for _ in range(rounds):
        plan = case.schedule
        for _ in range(6):
            candidate = mutated(rng, plan, case.kernel)
            try:
                check(case.kernel, candidate)
                lower(case.kernel, candidate, TARGET)
            except Illegal:
                continue
            plan = candidate
        run(replace(case, schedule=plan))
        right += plan != case.schedule
    assert right > 3
