"""Borders of an image are written out, its inside is one loop; what cannot be kept is repeated."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from lower_cases import Case, gemm, run, schedule
from oracles import program
from test_default import TARGETS, assert_right

from luminal.backend.loops import loop_program
from luminal.graph.index import Index
from luminal.kernel.kernel import Store
from luminal.kernel.program import For, Instruction, Parallel, When
from luminal.kernel.schedule import path_text
from luminal.runtime.show import program_text
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare


def scheduled(kernel, target):
    (prepared,) = prepare(kernel, target)
    return default_schedule(prepared, target)


@pytest.mark.parametrize("c, hw, size, stride", [(2, 17, 3, 2), (1, 21, 5, 2)])
def test_images_with_borders_run_right(c, hw, size, stride):
    kernel = cases.convolution(c, hw, 16, size, stride)
    assert "edges" in scheduled(kernel, TARGETS[1])[1].tails.values()
    assert_right(kernel, {}, TARGETS[1])


def test_full_steps_of_a_multiple_of_a_size_leave_nothing_over():
    """A unit of work of 32 rows has as many wherever they are a multiple of 32, which its name for
    that number no longer says."""
    rows = Index.of("s") * 32
    made = {"acc": "m/32@ n/1 m/8 k/4 m/1! k/1#", "out": "m/32@ n/1 m/8 m/1!"}
    case = Case(gemm(rows, 3, 16, sizes={"s": (1, 9)}), schedule(made), {"s": 2})
    run(case)


def test_a_depthwise_image_runs_right():
    kernel = cases.convolution(0, 36, 2, 3, groups=True)
    assert "edges" in scheduled(kernel, TARGETS[0])[1].tails.values()
    assert_right(kernel, {}, TARGETS[0])


def loops(statements):
    for s in statements:
        if isinstance(s, For):
            yield s
        if isinstance(s, (For, When, Parallel)):
            yield from loops(s.body)


def operations(statements):
    for s in statements:
        if isinstance(s, Instruction):
            yield s
        else:
            yield from operations(s.body)


def test_the_inside_of_an_image_tests_no_condition():
    kernel, schedule = scheduled(cases.convolution(64, 56, 64, 3), TARGETS[0])
    assert "edges" in schedule.tails.values()
    program = loop_program(kernel, schedule, TARGETS[0])
    inside = [
        s for s in loops(program.body)
        if s.count.literal and 3 < int(s.count.name) < 64
        and any(o.op == "fma" for o in operations(s.body))
        and any(loops(s.body))
    ]  # fmt: skip
    asked = [o.op for s in inside for o in operations(s.body) if o.op in ("less", "select", "and")]
    assert inside and not asked


@pytest.mark.parametrize("hw", (9, 13))
def test_a_unit_takes_lines_together_for_a_block_of_channels(hw):
    target = replace(TARGETS[0], l1=4096, threads=1)
    kernel = cases.convolution(32, hw, 96, 3)
    path = path_text(scheduled(kernel, target)[1].paths["acc"]).split()
    (block,) = (i for i, loop in enumerate(path) if re.fullmatch(r"c/\d+", loop) and i < 4)
    assert path[block - 1].endswith("@") and path[block + 1] == "y/1", path
    assert_right(kernel, {}, target)


def test_a_wider_image_makes_no_longer_program():
    lengths = []
    for hw in (112, 224):
        kernel, schedule = scheduled(cases.convolution(64, hw, 64, 3), TARGETS[0])
        lengths.append(program_text(loop_program(kernel, schedule, TARGETS[0])).count("\n"))
    assert lengths[1] < 1.1 * lengths[0]


@pytest.mark.parametrize("hw", (32, 27))
def test_an_image_read_in_steps_of_two_needs_no_gather(hw):
    kernel = cases.convolution(0, hw, 40, 3, 2, groups=True)
    program = loop_program(*scheduled(kernel, TARGETS[1]), TARGETS[1])
    used = {o.op for o in operations(program.body)}
    assert "shuffle" in used and not used & {"gather", "gather_at"}
    assert_right(kernel, {}, TARGETS[1])


@pytest.mark.parametrize("size", (1, 5, 16, 21))
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_second_element_is_read_and_nothing_beyond(size, target):
    body = cases.load("X", Index.of("k") * 2)
    out = cases.value("y", "k", body, store=cases.store("Y", "k"))
    buffers = [cases.buffer("X", 2 * size - 1), cases.buffer("Y", size)]
    assert_right(cases.kernel("halves", buffers, {"k": size}, [out]), {}, target)


def column_softmax(most):
    """Softmax over the first dimension, whose size is only known to be at most `most`."""
    kernel = cases.softmax(24, "s", {"s": (1, most)})
    turn = {"X": ("k", "m"), "Y": ("k", "m")}
    buffers = [cases.buffer(b.name, "s", 24) for b in kernel.buffers]
    values = []
    for v in kernel.values:
        body = cases.load("X", *turn["X"]) if v.name == "top" else v.body
        if v.name == "e":
            body = cases.op("exp2", cases.sub(cases.load("X", *turn["X"]), cases.read("top")))
        store = v.store and Store("Y", tuple(map(Index.of, turn["Y"])))
        values.append(cases.value(v.name, v.axes, body, v.reduction, store))
    return cases.kernel("columns", buffers, kernel.axes, values, kernel.sizes)


@pytest.mark.parametrize("most", [64, 1 << 30])
def test_rows_of_any_bound_need_no_workspace_of_that_size(most):
    kernel = column_softmax(most)
    assert_right(kernel, {"s": 5}, TARGETS[0])
    made, schedule = scheduled(kernel, TARGETS[0])
    tiles = loop_program(made, schedule, TARGETS[0]).tiles
    assert sum(tile.bytes for tile in tiles) < 1 << 20


def test_parts_of_a_concatenation_are_read_without_a_test():
    """Sum over k of (a[k] if k < 40, else b[k - 40]) * w[n, k]: a loop for each part."""
    kernel = cases.joined_matmul(40, 24, 16, 32)
    program = loop_program(*scheduled(kernel, TARGETS[0]), TARGETS[0])
    assert not [o for o in operations(program.body) if o.op == "select"]
    assert_right(kernel, {}, TARGETS[0])


@pytest.mark.parametrize("first", (1, 13, 63))
def test_parts_that_end_within_a_step_of_the_loop_run_right(first):
    assert_right(cases.joined_matmul(first, 64 - first, 16, 32), {}, TARGETS[0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_windows_of_a_small_image_have_neither_lanes_to_mask_nor_conditions_to_compute(target):
    """Vectors are as short as a row; the places on which the padding depends are written out."""
    taps, conditions = [Index.of(p) + Index.of(t) - 1 for p, t in ("yb", "xd")], []
    for tap in taps:
        conditions += [tap, 3 - tap]
    body = cases.Guard(tuple(conditions), cases.load("X", "c", *taps), cases.const(0.0))
    copy = cases.value("copy", "cbdyx", body, store=cases.store("Y", *"cbdyx"))
    shapes = (cases.buffer("X", 24, 4, 4), cases.buffer("Y", 24, 3, 3, 4, 4))
    kernel = cases.kernel("windows", shapes, dict(c=24, b=3, d=3, y=4, x=4), [copy])
    assert_right(kernel, {}, target)
    prepared, schedule = scheduled(kernel, target)
    (path,) = schedule.paths.values()
    text = " ".join(map(str, path))
    assert text.endswith(" b/1! d/1! y/1! x/1#") and " x/4 " in text
    made = loop_program(prepared, schedule, target)
    (turn,) = [s for s in loops(made.body) if any(o.op == "store" for o in operations(s.body))]
    assert not [o.op for o in operations(turn.body) if o.op in ("cast", "mod", "expand")]


def rows_by_columns(n, k):
    """Rows, of which there are 2 to 128, by a matrix that lies along the sums and changes."""
    kernel = cases.gemm("t", n, k, constant=False, turned=True, sizes={"t": (2, 128)})
    return replace(kernel, hints={"t": 128})


@pytest.mark.parametrize("rows", (5, 70))
def test_a_tile_has_no_vectors_of_chance(rows, monkeypatch):
    """Of 5 rows in lanes the first vector of a block is copied; whoever reads the block reads all
    of it, and what lay there before could be subnormal."""
    target, kernel, loaded = replace(TARGETS[0], threads=2), rows_by_columns(384, 128), []
    plain = program._Run.load

    def load(run, ins, out):
        found = plain(run, ins, out)
        if run.names[ins.args[0].name][2].endswith("tile"):
            loaded.append(found)
        return found

    monkeypatch.setattr(program._Run, "load", load)
    assert_right(kernel, {"t": rows}, target)
    assert loaded and not any(np.isnan(found).any() for found in loaded)


def test_few_rows_of_a_size_of_run_time_are_shared_out():
    """A block of rows is a unit; where a size is smaller than usual there may be only one."""
    target = replace(TARGETS[0], threads=2)
    _, plan = scheduled(rows_by_columns(1536, 576), target)
    units = [loop.axis for loop in plan.paths["acc"] if loop.kind == "parallel"]
    assert units == ["m", "n"]


@pytest.mark.parametrize("m, n, k, l2, path", [
    (128, 64, 144, 80, "n/64@ m/8 n/32 "),
    (64, 64, 192, 16, "n/64@ k/12 m/8 n/32 "), (61, 64, 192, 16, "n/64@ k/12 m/8 n/32 "),
])  # fmt: skip
def test_panels_that_a_unit_copies_are_taken_together(m, n, k, l2, path):
    """A few rows at a time by all of them: the rows come from beyond the second cache. Where the
    sums are long, panels of a block of them at a time."""
    target = replace(TARGETS[0], threads=1, l2=l2 << 10)
    kernel = cases.gemm(m, n, k, constant=False)
    assert_right(kernel, {}, target)
    _, plan = scheduled(kernel, target)
    assert " ".join(map(str, plan.paths["acc"])).startswith(path)
    assert plan.layouts["acc_b"] == ((1, 32), (0, 1), (1, 1))
