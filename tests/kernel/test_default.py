"""Default schedules: legal and right for kernels of every kind, good where structure says so."""

import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from oracles.program import interpret
from oracles.schedules import schedule_of
from test_prepare import SMALL, assert_same

from luminal.backend.cpu.instructions import DPBF16PS
from luminal.backend.cpu.target import named
from luminal.backend.loops import loop_program, verify_loops
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import bf16, f32, i8
from luminal.graph.index import Index
from luminal.kernel.kernel import Constant, Guard
from luminal.kernel.layout import pack
from luminal.kernel.target import Target
from luminal.lowering.legal import check
from luminal.lowering.verify import instructions
from luminal.scheduling.decisions import Decisions
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

TARGETS = [
    Target("wide", vector_bytes=64, registers=32, threads=2),
    Target("narrow", vector_bytes=16, registers=16, threads=1),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", SMALL)
def test_operand_values_keep_the_meaning(name, target):
    kernel, sizes = SMALL[name]
    arrays = cases.arrays(kernel, np.random.default_rng(2), sizes)
    made = [default_schedule(k, target)[0] for k in prepare(kernel, target)]
    assert_same([kernel], made, arrays, sizes)


def test_a_costly_factor_without_the_lanes_is_computed_in_lanes_of_its_own():
    factor, weight = cases.silu(cases.load("X", "m", "k")), cases.load("W", "n", "k")
    product = cases.mul(factor, weight)
    acc = cases.value("acc", "mn", product, cases.total("k"), cases.store("Y", "m", "n"))
    kernel = cases.kernel(
        "late", [cases.buffer("X", 64, 48), cases.buffer("W", 32, 48, constant=True),
                 cases.buffer("Y", 64, 32)], {"m": 64, "n": 32, "k": 48}, [acc],
    )  # fmt: skip
    made, schedule = default_schedule(kernel, named("avx2"), Decisions({"lane": "n"}))
    check(made, schedule)
    assert str(schedule.paths["acc_a"][-1]) == "k/1#"
    assert_same([kernel], [made], cases.arrays(kernel, np.random.default_rng(0)), {})


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_product_of_few_rows_has_work_for_all_threads(threads):
    """Also where a block of its operand is turned for each unit of work."""
    product = cases.mul(cases.load("X", "m", "k"), cases.load("W", "n", "k"))
    acc = cases.value("acc", "mn", product, cases.total("k"), cases.store("Y", "m", "n"))
    kernel = cases.kernel(
        "few", [cases.buffer("X", 16, 256), cases.buffer("W", 1024, 256),
                cases.buffer("Y", 16, 1024)], {"m": 16, "n": 1024, "k": 256}, [acc],
    )  # fmt: skip
    target = replace(named("avx512"), threads=threads)
    made, schedule = default_schedule(kernel, target)
    check(made, schedule)
    assert [v.name for v in made.values] == ["acc_a", "acc", "acc.stored"]
    size = {"m": 16, "n": 1024}
    shared = [loop for loop in schedule.paths["acc"] if loop.kind == "parallel"]
    assert prod(-(-size[loop.axis] // loop.step) for loop in shared) >= threads
    if threads == 2:  # not 144 of a cache of 12 ways, of which one takes four and the last are 16
        target = replace(target, l1=48 << 10, l1_ways=12)
        assert default_schedule(kernel, target)[1].paths["acc"][0].step == 528


def test_a_gate_is_made_once_for_all_pixels_of_its_channel():
    """A sum that is little work stands in no loop over an axis that it lacks."""
    gate = cases.value("gate", "c", cases.mul(cases.load("W", "c", "k"), cases.load("P", "k")),
                       cases.total("k"))  # fmt: skip
    body = cases.mul(cases.load("X", "p", "c"), cases.read("gate"))
    out = cases.value("out", "pc", body, store=cases.store("Y", "p", "c"))
    buffers = [cases.buffer("W", 96, 24, constant=True), cases.buffer("P", 24),
               cases.buffer("X", 240, 96), cases.buffer("Y", 240, 96)]  # fmt: skip
    kernel = cases.kernel("squeezed", buffers, {"c": 96, "k": 24, "p": 240}, [gate, out])
    made, schedule = default_schedule(kernel, named("avx512"))
    check(made, schedule)
    assert "p" not in {loop.axis for loop in schedule.paths["gate"]}
    assert_same([kernel], [made], cases.arrays(kernel, np.random.default_rng(0)), {})


def test_a_gate_is_not_made_for_each_pixel_of_several_axes():
    """Each axis alone would repeat little of it."""
    pixels = {"h": 16, "w": 16, "d": 16}
    gate = cases.value("gate", "c", cases.mul(cases.load("W", "c", "k"), cases.load("P", "k")),
                       cases.total("k"))  # fmt: skip
    body = cases.mul(cases.load("X", *pixels, "c"), cases.read("gate"))
    out = cases.value("out", "hwdc", body, store=cases.store("Y", *pixels, "c"))
    buffers = [cases.buffer("W", 96, 24, constant=True), cases.buffer("P", 24),
               cases.buffer("X", 16, 16, 16, 96), cases.buffer("Y", 16, 16, 16, 96)]  # fmt: skip
    kernel = cases.kernel("squeezed", buffers, {"c": 96, "k": 24, **pixels}, [gate, out])
    made, schedule = default_schedule(kernel, named("avx512"))
    check(made, schedule)
    assert len(pixels.keys() & {loop.axis for loop in schedule.paths["gate"]}) < 2


def test_what_is_turned_in_blocks_walks_conditions_one_by_one():
    here = Index.of("a")
    edge = Guard((-here,), cases.load("E", here + 1), Constant(0, f32))
    sums = [cases.value("row", "a", cases.load("X"), cases.total("a", scan=True)),
            cases.value("all", "bca", cases.load("X"), cases.total("a", scan=True))]  # fmt: skip
    body = cases.add(cases.add(edge, cases.read("row")), cases.read("all"))
    out = cases.value("out", "abc", body, store=cases.store("Y", "a", "c", "b"))
    buffers = [cases.buffer("E", 2), cases.buffer("X"), cases.buffer("Y", 2, 32, 2)]
    kernel = cases.kernel("turned", buffers, {"a": 2, "b": 2, "c": 32}, [*sums, out])
    assert_right(kernel, {}, TARGETS[0])


def test_a_window_of_channels_takes_several_pixels():
    """Neighbours share most of their windows: only what is new comes from the second cache."""
    moved = [Index.of("h") + Index.of("i"), Index.of("w") + Index.of("j"), Index.of("c")]
    product = cases.mul(cases.load("X", *moved), cases.load("W", "c", "i", "j"))
    acc = cases.value("acc", "hwc", product, cases.total("ij"), cases.store("Y", "h", "w", "c"))
    buffers = [cases.buffer("X", 126, 166, 96), cases.buffer("W", 96, 7, 7, constant=True),
               cases.buffer("Y", 120, 160, 96)]  # fmt: skip
    extents = {"h": 120, "w": 160, "c": 96, "i": 7, "j": 7}
    steps = path(cases.kernel("window", buffers, extents, [acc]), "acc", named("avx2"))
    assert "w/1!" in steps or "h/1!" in steps


def test_a_long_text_behind_a_sum_is_written_once_for_all_rows():
    """Written out for a whole tile, a gelu's derivative was 5 times as slow as alone."""
    for count, kind in ((2, "unroll"), (30, "serial")):
        body = cases.read("acc")
        for _ in range(count):
            body = cases.add(cases.mul(body, cases.const(0.5)), cases.load("Z", "m", "n"))
        product = cases.mul(cases.load("X", "m", "k"), cases.load("W", "n", "k"))
        acc = cases.value("acc", "mn", product, cases.total("k"))
        out = cases.value("out", "mn", body, store=cases.store("Y", "m", "n"))
        buffers = [cases.buffer("X", 64, 48), cases.buffer("W", 64, 48, constant=True),
                   cases.buffer("Z", 64, 64), cases.buffer("Y", 64, 64)]  # fmt: skip
        kernel = cases.kernel("long", buffers, {"m": 64, "n": 64, "k": 48}, [acc, out])
        _, schedule = default_schedule(kernel, named("avx512"))
        assert [loop.kind for loop in schedule.paths["out"] if loop.step == 1][:-1] == [kind]
        assert_right(kernel, {}, named("avx512"))


def test_a_unit_of_work_walks_all_lanes_where_it_has_made_what_lacks_them():
    """A narrower operand that rows share is made once for them, not for each block of lanes."""
    x = cases.cast(cases.cast(cases.load("X", "m", "k"), bf16), f32)
    weight = cases.cast(cases.load("W", "n", "k", dtype=bf16), f32)
    acc = cases.value("acc", "mn", cases.mul(x, weight), cases.total("k"),
                      cases.store("Y", "m", "n"))  # fmt: skip
    buffers = [cases.buffer("X", 1024, 256), cases.buffer("W", 512, 256, dtype=bf16, constant=True),
               cases.buffer("Y", 1024, 512)]  # fmt: skip
    kernel = cases.kernel("narrow", buffers, {"m": 1024, "n": 512, "k": 256}, [acc])
    target = replace(named("avx512"), instructions=(DPBF16PS,))
    made, schedule = default_schedule(kernel, target)
    check(made, schedule)
    shared = [loop.axis for loop in schedule.paths["acc"] if loop.kind == "parallel"]
    assert shared == ["m"] and schedule.paths["acc_a"][0] == schedule.paths["acc"][0]


def test_sums_stored_across_their_lanes_are_turned_in_blocks():
    """Of each second pixel, channels first: up to 46 times as fast as elements one by one."""
    product = cases.mul(cases.load("X", "p", 0, "k"), cases.load("W", "c", "k"))
    acc = cases.value("acc", "cp", product, cases.total("k"), cases.store("Y", "c", "p"))
    buffers = [cases.buffer("X", 40, 2, 24), cases.buffer("W", 96, 24, constant=True),
               cases.buffer("Y", 96, 40)]  # fmt: skip
    kernel = cases.kernel("turned", buffers, {"c": 96, "p": 40, "k": 24}, [acc])
    target = named("avx512")
    program = loop_program(*default_schedule(kernel, target), target)
    assert not any(s.op.startswith("scatter") for s in instructions(program.body))
    assert_right(kernel, {}, target)


def test_a_constant_that_two_values_want_otherwise_is_walked_as_it_lies():
    """Rows of a weight, scaled by their maxima: up to 140 times as fast as far lanes."""
    weight = cases.load("W", "n", "k")
    top = cases.value("top", "n", weight, cases.total("k", "max"))
    out = cases.value("out", "nk", cases.mul(weight, cases.read("top")),
                      store=cases.store("Y", "n", "k"))  # fmt: skip
    buffers = [cases.buffer("W", 96, 128, constant=True), cases.buffer("Y", 96, 128)]
    kernel = cases.kernel("scaled", buffers, {"n": 96, "k": 128}, [top, out])
    _, schedule = default_schedule(kernel, named("avx512"))
    assert not schedule.layouts and str(schedule.paths["top"][-1]) == "k/1#"
    assert_right(kernel, {}, named("avx512"))


def test_a_sum_over_two_axes_walks_far_elements_outside():
    """Rows of 64 KiB, batch first: elements of several share few places of a cache."""
    product = cases.mul(cases.load("G", "t", "b", "m"), cases.load("X", "b", "t", "n"))
    acc = cases.value("acc", "mn", product, cases.total("tb"), cases.store("Y", "m", "n"))
    shapes = {"G": (64, 16, 128), "X": (16, 64, 256), "Y": (128, 256)}
    buffers = [cases.buffer(name, *shape) for name, shape in shapes.items()]
    extents = {"m": 128, "n": 256, "t": 64, "b": 16}
    kernel = cases.kernel("far", buffers, extents, [acc])
    made, schedule = default_schedule(kernel, named("avx512"), Decisions({"lane": "m"}))
    check(made, schedule)
    walked = [loop.axis for loop in schedule.paths["acc"] if loop.axis in "tb"]
    assert walked[0] == "b"
    assert_same([kernel], [made], cases.arrays(kernel, np.random.default_rng(0)), {})


@pytest.mark.parametrize("name", SMALL)
def test_every_axis_is_walked_to_single_steps(name):
    for prepared in prepare(SMALL[name][0], TARGETS[0]):
        kernel, schedule = default_schedule(prepared, TARGETS[0])
        assert schedule_of(schedule.text()) == schedule
        for v in kernel.values:
            for axis in v.points:
                steps = [loop.step for loop in schedule.paths[v.name] if loop.axis == axis]
                assert kernel.axes[axis] == 1 or steps[-1] == 1, (v.name, axis)
                assert steps == sorted(steps, reverse=True), (v.name, axis)


def test_a_schedule_is_deterministic():
    first, second = (default_schedule(cases.gated(64, 96, 80), TARGETS[0]) for _ in range(2))
    assert first == second


def path(kernel, value, target=TARGETS[0]):
    (prepared,) = prepare(kernel, target)
    return [str(loop) for loop in default_schedule(prepared, target)[1].paths[value]]


def test_constant_weights_lie_in_panels_of_the_tile():
    (prepared,) = prepare(cases.gemm(512, 2048, 2048), TARGETS[0])
    _, schedule = default_schedule(prepared, TARGETS[0])
    (dim, width), *_, last = schedule.layouts["B"]
    assert dim == 1 and width % 16 == 0 and last == (1, 1)
    assert f"n/{width}" in str(schedule.text())


def test_constant_rows_of_a_tile_lie_side_by_side():
    """Weights of a 1x1 convolution whose lanes are pixels: rows a page apart fight for one set."""
    (prepared,) = prepare(cases.convolution(1024, 28, 64, 1), TARGETS[0])
    _, schedule = default_schedule(prepared, TARGETS[0])
    (dim, width), *_, last = schedule.layouts["W"]
    assert dim == 0 and last == (0, 1)
    assert width > 1 and f"o/{width}" in schedule.text()


def test_digits_of_a_byte_are_walked_innermost():
    """So that a vector of bytes is read and widened once for both."""
    loops = path(cases.gemv_q4(4096, 64), "acc")
    inner = [loop for loop in loops if loop.endswith("!") and loop[0] in "qj"]
    assert inner[-1] == "q/1!" and len(inner) == 2


@pytest.mark.parametrize("weights", [i8, bf16], ids=str)
def test_pairs_that_are_rounded_first_are_left_to_whole_numbers(weights):
    """Bytes become pairs of bf16 by way of f32, and are rounded: f32 multiplies them sooner.
    Weights that lie in memory as pairs are multiplied so."""
    target = replace(named("vnni"), rounds=True)
    narrow = cases.load("B", "k", "n", dtype=weights)
    rounded = [cases.op("cast", e, dtype=bf16) for e in
               (cases.load("A", "k"), cases.op("cast", narrow, dtype=f32))]  # fmt: skip
    rounded[1] = narrow if weights is bf16 else rounded[1]
    body = cases.mul(*(cases.op("cast", e, dtype=f32) for e in rounded))
    value = cases.value("v", "n", body, cases.total("k"), store=cases.store("C", "n"))
    buffers = [cases.buffer("A", 4096), cases.buffer("C", 4096),
               cases.buffer("B", 4096, 4096, dtype=weights, constant=True)]  # fmt: skip
    kernel = cases.kernel("gemv", buffers, {"n": 4096, "k": 4096}, [value])
    loops = path(kernel, "v", target)
    assert any(loop.endswith("$") for loop in loops) == (weights is bf16)


def test_copies_count_as_often_as_units_of_work_make_them():
    """Keys in lanes would be copied for each query, where the queries are shared out."""
    kernel = cases.rotated_attention(8, "s", 4, 64, sizes={"s": (2, 128)})
    assert "q/1#" in path(kernel, "score", named("avx2", 2))


def test_steps_on_lines_of_their_own_are_taken_in_blocks():
    """A 1x1 convolution of many channels on a small image: rows of pixels stay in the first cache
    while the output channels go by."""
    target = replace(TARGETS[0], l1=32 << 10)
    (prepared,) = prepare(cases.convolution(2048, 14, 256, 1), target)
    _, schedule = default_schedule(prepared, target)
    steps = [loop.step for loop in schedule.paths["acc"] if loop.axis == "c"]
    assert 64 <= max(s for s in steps if s < 2048) <= 256


def test_lanes_come_from_the_target():
    assert "n/1#" in path(cases.gemm(64, 256, 128), "acc")
    assert "n/16!" in path(cases.gemm(64, 256, 128), "acc")
    assert "n/4!" in path(cases.gemm(64, 256, 128), "acc", TARGETS[1])


def test_attention_shares_one_loop_over_keys():
    """So few at a time that values, read across them, leave room in the first cache."""
    for depth, keys in ((64, "k/64"), (128, "k/32")):
        (prepared,) = prepare(cases.attention(2, 128, 128, depth, causal=False), named("avx2"))
        _, schedule = default_schedule(prepared, named("avx2"))
        loops = {str(schedule.paths[name][2]) for name in ("score", "mix", "shrink")}
        assert loops == {keys}


EMPTY = {
    "gemm no rows": (cases.gemm("s", 7, 9, sizes={"s": (0, 8)}), {"s": 0}),
    "gemm no sum": (cases.gemm(4, 7, 0), {}),
    "softmax no rows": (cases.softmax("s", 6, sizes={"s": (0, 8)}), {"s": 0}),
    "scalar": (cases.gemm(1, 1, 1), {}),
    "chain of nothing": (cases.chain(0, 5), {}),
    "attention of one": (cases.attention(1, 1, 1, 1), {}),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_and_single_sizes_run_right(name):
    assert_right(*EMPTY[name], TARGETS[0])


DYNAMIC = {
    "gemm": cases.gemm("s", 40, 33, sizes={"s": (1, 64)}),
    "softmax": cases.softmax("s", "s", sizes={"s": (1, 64)}),
    "layer_norm": cases.layer_norm("s", 37, sizes={"s": (1, 64)}),
    "attention": cases.attention(2, "s", "s", 20, sizes={"s": (1, 80)}),
    "full attention": cases.attention(2, "s", "s", 20, causal=False, sizes={"s": (1, 80)}),
    "rotated attention": cases.rotated_attention(2, "s", 2, 20, sizes={"s": (1, 80)}),
}


@pytest.mark.parametrize("size", [1, 5, 37])
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_program_serves_all_sizes(name, size):
    assert_right(DYNAMIC[name], {"s": size}, TARGETS[0])


def test_a_column_sum_has_its_lanes_along_the_columns():
    assert path(cases.column_sum(2048, 2048), "acc")[-1] == "k/1#"


@pytest.mark.parametrize("images", [2, 32])
def test_a_sum_over_images_has_its_lanes_along_their_pixels(images):
    """Statistics of a batch norm: lanes along channels would gather, each from another page."""
    load = cases.load("X", "n", "c", "p")
    acc = cases.value("acc", "c", load, cases.total("np"), cases.store("Y", "c"))
    buffers = [cases.buffer("X", images, 64, 3136), cases.buffer("Y", 64)]
    extents = {"n": images, "c": 64, "p": 3136}
    assert path(cases.kernel("channels", buffers, extents, [acc]), "acc")[-1] == "p/1#"


def test_what_a_sum_reads_is_made_as_its_own_operands_lie():
    """A norm of computed rows: lanes along the rows would gather what the values are made from."""
    e, squares = cases.read("e"), cases.mul(cases.read("e"), cases.read("e"))
    out = cases.mul(cases.add(e, cases.read("sum")), cases.read("squares"))
    values = [
        cases.value("e", "mk", cases.silu(cases.load("X", "m", "k"))),
        cases.value("sum", "m", e, cases.total("k")),
        cases.value("squares", "m", squares, cases.total("k")),
        cases.value("out", "mk", out, store=cases.store("Y", "m", "k")),
    ]
    buffers = [cases.buffer("X", 512, 2048), cases.buffer("Y", 512, 2048)]
    kernel = cases.kernel("computed", buffers, {"m": 512, "k": 2048}, values)
    assert {path(kernel, name)[-1] for name in ("e", "sum", "squares", "out")} == {"k/1#"}


def interpreted(kernel, arrays, sizes, target):
    """All buffers after preparing, scheduling, lowering and interpreting a kernel."""
    arrays = {name: x.copy() for name, x in arrays.items()}
    for prepared in prepare(kernel, target):
        scheduled, schedule = default_schedule(prepared, target)
        check(scheduled, schedule)
        program = loop_program(scheduled, schedule, target)
        verify_loops(program)
        packed = {}
        for b in scheduled.buffers:
            shape = [int(n.evaluate(sizes)) for n in b.shape]
            if b.name not in arrays:
                arrays[b.name] = np.full(shape, 77, b.dtype.numpy)
            arrays[b.name] = arrays[b.name].reshape(shape)
            layout = program.layouts.get(b.name)
            packed[b.name] = pack(arrays[b.name], layout) if layout else arrays[b.name]
        interpret(program, packed, sizes, 1, target.instructions)
    return arrays


def assert_right(kernel, sizes, target, seed=3, rtol=2e-5):
    arrays = cases.arrays(kernel, np.random.default_rng(seed), sizes)
    got = interpreted(kernel, arrays, sizes, target)
    want = {name: x.copy() for name, x in arrays.items()}
    evaluate(kernel, want, sizes)
    for name in kernel.outputs:
        np.testing.assert_allclose(
            got[name].reshape(-1), want[name].reshape(-1), rtol=rtol, atol=2e-5, err_msg=name
        )


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_constant_that_a_scan_reads_keeps_the_axis_once(target):
    running = cases.value("v", "ab", cases.load("X", "a", "b"), cases.total("b", scan=True))
    out = cases.value("out", "abc", cases.read("v"), store=cases.store("Y", "a", "b", "c"))
    buffers = [cases.buffer("X", 6, 5, constant=True), cases.buffer("Y", 6, 5, 7)]
    kernel = cases.kernel("scan", buffers, {"a": 6, "b": 5, "c": 7}, [running, out])
    assert_right(kernel, {}, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", SMALL)
def test_small_kernels_run_right(name, target):
    assert_right(*SMALL[name], target)
