"""Contractions of 8-bit and 4-bit integers in groups: every machine computes them by its own
instruction, exactly, in a tile of rows; code for all of them compiles."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from default_cases import (
    I,
    add,
    buffer,
    cast,
    const,
    kernel,
    load,
    mul,
    op,
    read,
    store,
    total,
    value,
)  # fmt: skip
from test_default import assert_right

from luminal.backend import cpu
from luminal.backend.cpu.target import named
from luminal.graph.dtype import bf16, f16, f32, i8, i32, u8
from luminal.kernel.kernel import Guard, Position
from luminal.kernel.narrow import largest
from luminal.lowering.legal import check
from luminal.lowering.lower import lower
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

SIZES = {"n": 24, "g": 2, "q": 2, "j": 8}
USES = {  # target -> what bytes, and what nibbles, are multiplied with
    "sse": ("pmaddwd", "pmaddubsw"),
    "avx2": ("vpmaddwd", "vpmaddubsw"),
    "avx512": ("vpmaddwd", "vpmaddubsw"),
    "avxvnni": ("vpdpbusd", "vpdpbusd"),
    "vnni": ("vpdpbusd", "vpdpbusd"),
    "neon": ("fmla", "fmla"),  # the outer sums; bytes are widened and multiplied plainly
    "dotprod": ("sdot", "sdot"),
    "i8mm": ("usdot", "usdot"),
}


def grouped(bits, m, n=24):
    """Y[m, n] = sum over groups of (dot + zero) scale[n, g] XS[m, g]."""
    sizes = {"m": m, **SIZES, "n": n}
    stored = 2 if bits == 8 else 1
    weight = load("W", "n", "g", "q" if bits == 8 else 0, "j", dtype=u8)
    if bits == 4:
        four = Position(load("W", "q").index[0] * 4, u8)
        weight = op("and", op("shift_right", weight, four, dtype=u8), const(15, u8), dtype=u8)
    body = mul(cast(weight, i32), cast(load("X", "m", "g", "q", "j", dtype=i8), i32))
    zero = op("add", read("dot", i32), load("Z", "m", "g", dtype=i32), dtype=i32)
    scales = mul(cast(load("S", "n", "g", dtype=f16), f32), load("XS", "m", "g"))
    g, q, j = (sizes[a] for a in "gqj")
    return kernel(
        f"grouped{bits}",
        [buffer("W", n, g, stored, j, dtype=u8, constant=True), buffer("X", m, g, q, j, dtype=i8),
         buffer("S", n, g, dtype=f16, constant=True), buffer("XS", m, g),
         buffer("Z", m, g, dtype=i32), buffer("Y", m, n)],
        sizes,
        [value("dot", "mng", body, total("qj")),
         value("acc", "mn", mul(cast(zero, f32), scales), total("g")),
         value("out", "mn", read("acc"), store=store("Y", "m", "n"))],
    )  # fmt: skip


def gated(m, n):
    """Two products of the same activations, whose sum of a group is taken here, multiplied."""
    sizes = {"m": m, **SIZES, "n": n}
    g, q, j = (sizes[a] for a in "gqj")
    x = cast(load("X", "m", "g", "q", "j", dtype=i8), i32)
    values, buffers = [], [buffer("X", m, g, q, j, dtype=i8), buffer("Y", m, n)]
    for side in "AB":
        w = cast(load(side, "n", "g", "q", "j", dtype=u8), i32)
        values += [value(f"dot{side}", "mng", mul(w, x), total("qj"))]
        buffers += [buffer(side, n, g, q, j, dtype=u8, constant=True),
                    buffer(f"S{side}", n, g, constant=True)]  # fmt: skip
    values += [value("zero", "mg", x, total("qj"))]
    for side in "AB":
        whole = op("add", read(f"dot{side}", i32), read("zero", i32), dtype=i32)
        scaled = mul(cast(whole, f32), load(f"S{side}", "n", "g"))
        values += [value(f"acc{side}", "mn", scaled, total("g"))]
    both = mul(read("accA"), read("accB"))
    values += [value("out", "mn", both, store=store("Y", "m", "n"))]
    return kernel("gated", buffers, sizes, values)


def signed(m, n, k):
    """Y[m, n] = sum of products of signed bytes, exact, with no contract about precision."""
    w, x = (cast(load(b, a, "k", dtype=i8), i32) for b, a in ("Wn", "Xm"))
    buffers = [buffer("W", n, k, dtype=i8, constant=True), buffer("X", m, k, dtype=i8),
               buffer("Y", m, n, dtype=i32)]  # fmt: skip
    dot = value("dot", "mn", mul(x, w), total("k"), store=store("Y", "m", "n"))
    return kernel("signed", buffers, {"m": m, "n": n, "k": k}, [dot])


def scheduled(case, target):
    (part,) = prepare(case, target)
    return default_schedule(part, target)


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("bits", (8, 4))
@pytest.mark.parametrize("m", (1, 6))
def test_groups_are_right_on_every_machine(bits, m, name):
    assert_right(grouped(bits, m), {}, named(name))


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("bits", (8, 4))
def test_each_machine_has_its_instruction(bits, name):
    target = named(name)
    case, schedule = scheduled(grouped(bits, 6), target)
    text = cpu.render(lower(case, schedule, target), target)
    (code,) = cpu.build([text], target)
    assert USES[name][bits == 4] in code.assembly()


def test_rows_share_a_widened_weight():
    """A tile of rows, both sums in one nest; the activations are widened once, in a value."""
    _, schedule = scheduled(grouped(8, 128, 256), named("avx2"))
    loops = [str(loop) for loop in schedule.paths["dot"]]
    assert "m/4" in loops and "m/1!" in loops
    shared = loops.index("g/1") + 1
    assert schedule.paths["acc"][:shared] == schedule.paths["dot"][:shared]
    assert "dot_b" in schedule.paths and "dot_a" not in schedule.paths


def test_a_sum_apart_from_the_products_collapses_no_pairs():
    """No instruction multiplies what it adds up, though it walks the same axes and lanes."""
    plain = grouped(8, 6)
    dot, acc, out = plain.values
    shifted = op("add", cast(load("W", "n", "g", "q", "j", dtype=u8), i32),
                 load("Z", "m", "g", dtype=i32), dtype=i32)  # fmt: skip
    alone = value("whole", "mn", shifted, total("gqj"))
    both = op("add", read("acc"), cast(read("whole", i32), f32))
    case = replace(plain, values=(dot, acc, alone, replace(out, body=both)))
    for name in ("avx2", "vnni", "dotprod"):
        assert_right(case, {}, named(name))


def test_much_is_computed_in_lanes_although_each_result_is_stored_alone():
    """Two phases of a transposed convolution: channels are lanes, two apart in memory."""
    product = mul(load("X", "y", "c"), load("W", "o", "p", "c"))
    acc = value("acc", "pyo", product, total("c"))
    out = op("recip", add(op("exp2", read("acc")), const(1.0)))
    kept = value("out", "yop", out, store=store("Y", *"yop"))
    buffers = [buffer("X", 64, 24), buffer("W", 24, 2, 24, constant=True), buffer("Y", 64, 24, 2)]
    case = kernel("woven", buffers, {"y": 64, "o": 24, "p": 2, "c": 24}, [acc, kept])
    for name in ("avx2", "avx512"):
        _, schedule = scheduled(case, named(name))
        assert any(loop.kind == "vector" for loop in schedule.paths["out"])
        assert_right(case, {}, named(name))


def test_lanes_are_not_the_few_neighbours_that_each_have_an_expression_of_their_own():
    """Three taps of a weight from four numbers: the weights are lanes, three apart in memory."""
    x, t = [load("X", I(n), I("w")) for n in range(4)], I("t")
    sums = add(add(x[0], x[1]), x[2]), add(x[1], mul(x[2], const(-1.0))), add(add(x[1], x[2]), x[3])
    first, second, third = (mul(v, v) for v in sums)
    pairs = ((-t,), first), ((t - 1, 1 - t), second), ((t - 2,), third)
    parts = [Guard(where, v, const(0.0)) for where, v in pairs]
    taps = value("taps", "wt", add(add(*parts[:2]), parts[2]), store=store("Y", *"wt"))
    case = kernel("taps", [buffer("X", 4, 96), buffer("Y", 96, 3)], {"w": 96, "t": 3}, [taps])
    for name in ("avx2", "avx512"):
        _, schedule = scheduled(case, named(name))
        assert [x.axis for x in schedule.paths["taps"] if x.kind == "vector"] == ["w"]
        assert_right(case, {}, named(name))


def test_blocks_of_a_short_axis_keep_pairs_together():
    """The gradient of the weights of a first convolution: its pairs are two of four images."""
    y, x = I("r") + I("y") * 2, I("s") + I("x") * 2
    product = mul(cast(load("G", "o", "b", "y", "x", dtype=bf16), f32),
                  cast(load("X", "c", y, x, "b", dtype=bf16), f32))  # fmt: skip
    sizes = {"o": 64, "c": 3, "r": 7, "s": 7, "b": 4, "y": 56, "x": 56}
    sums = value("sums", "crso", product, total("byx"))
    kept = value("kept", "ocrs", read("sums"), store=store("Y", *"ocrs"))
    buffers = [buffer("G", 64, 4, 56, 56, dtype=bf16, constant=True),
               buffer("X", 3, 117, 117, 4, dtype=bf16), buffer("Y", 64, 3, 7, 7)]  # fmt: skip
    target = named("vnni")
    quick = tuple(replace(each, cycles=1.0) for each in target.instructions)
    case = kernel("first", buffers, sizes, [sums, kept])
    made, schedule = scheduled(case, replace(target, instructions=quick))
    check(made, schedule)
    assert [x.step for x in schedule.paths["sums"] if x.axis == "b"] == [2, 1]


def test_a_ragged_tile_reads_the_padding_of_its_panel():
    """Packed constants end in whole panels of zeros: no byte of them is loaded under a mask."""
    target = named("avx2")
    case, schedule = scheduled(signed(6, 200, 32), target)
    assert any(200 % step for axis, step in map(_step, schedule.paths["dot"]) if axis == "n")
    text = cpu.render(lower(case, schedule, target), target)
    assert "masked.store" in text and "masked.load" not in text
    assert_right(signed(6, 200, 32), {}, target)


def _step(loop):
    return loop.axis, loop.step


def test_rows_that_are_widened_do_not_fight_for_a_cache():
    """Bytes lie 2,048 apart, but as their instruction takes them a page."""
    _, schedule = scheduled(signed(128, 2048, 2048), named("avx2"))
    steps = [step for axis, step in map(_step, schedule.paths["dot"]) if axis == "m"]
    assert "dot_b" in schedule.paths or "dot_a" in schedule.paths
    assert max(step for step in steps if step < 64) < 8


SIGNED = {"sse": "pmaddwd", "avx2": "vpmaddwd", "vnni": "vpmaddwd", "dotprod": "sdot"}


@pytest.mark.parametrize("name", SIGNED)
def test_signed_bytes_have_an_exact_instruction(name):
    target = named(name)
    case, schedule = scheduled(signed(6, 24, 32), target)
    (code,) = cpu.build([cpu.render(lower(case, schedule, target), target)], target)
    assert SIGNED[name] in code.assembly()
    assert_right(signed(6, 24, 32), {}, target)


@pytest.mark.parametrize("name", ("sse", "avx2", "vnni", "dotprod"))
@pytest.mark.parametrize("m", (1, 6))
def test_two_products_are_right(m, name):
    assert_right(gated(m, 24), {}, named(name))


def test_two_products_take_the_instruction_one_after_the_other():
    """All registers are one product's; what is alike for all lanes stands before the nest."""
    _, schedule = scheduled(gated(128, 256), named("avx2"))
    text = {name: " ".join(map(str, path)) for name, path in schedule.paths.items()}
    order = list(schedule.paths)
    for side in "AB":
        assert text[f"dot{side}"].endswith("$")
        nest = text[f"dot{side}"].partition("g/1")
        assert nest[1] and text[f"acc{side}"].startswith(nest[0] + nest[1])
    assert order[-6:-1] == ["zero", "dotA", "accA", "dotB", "accB"]


def test_largest_number_of_an_expression():
    nibble = op("and", load("W", "n", dtype=u8), const(15, u8), dtype=u8)
    assert largest(nibble, {}) == 15 and largest(load("W", "n", dtype=u8), {}) == 255
    assert largest(op("and", load("W", "n", dtype=i8), const(-2, i8), dtype=i8), {}) == 127
