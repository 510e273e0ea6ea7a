"""Lanes, copies and units follow how what is read lies in memory."""

import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from default_cases import (
    LOWEST,
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
    silu,
    store,
    sub,
    total,
    value,
)  # fmt: skip
from test_default import TARGETS, assert_right

from luminal.backend.cpu.target import named
from luminal.graph.dtype import bf16, f32
from luminal.kernel.kernel import Guard
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

CHOOSING = [named("avx512", 2), named("avx2", 2)]


def first_convolution(c=3, high=480, wide=640, o=24):
    """Of a planar picture, 3 x 3 in steps of two; channels last behind it."""
    y, x = I("y") * 2 + "r" - 1, I("x") * 2 + "s" - 1
    image = Guard((y, x), load("X", "c", y, x), const(0.0))
    body = op("max", add(read("acc"), load("bias", "o")), const(0.0))
    return kernel(
        "first",
        [buffer("X", c, high, wide), buffer("W", o, c, 3, 3, constant=True),
         buffer("bias", o, constant=True), buffer("Y", high // 2, wide // 2, o)],
        {"y": high // 2, "x": wide // 2, "o": o, "c": c, "r": 3, "s": 3},
        [value("acc", "yxo", mul(image, load("W", "o", "c", "r", "s")), total("crs")),
         value("out", "yxo", body, store=store("Y", "y", "x", "o"))],
    )  # fmt: skip


def last_convolution(c=24, high=240, wide=160):
    """Transposed, 2 x 2 in steps of two, to one channel: pixels lie far apart, channels do not."""
    product = mul(op("max", load("X", "y", "x", "c"), const(0.0)), load("W", "c", "r", "s"))
    return kernel(
        "last",
        [buffer("X", high, wide, c), buffer("W", c, 2, 2, constant=True),
         buffer("Y", high, 2, wide, 2)],
        {"y": high, "r": 2, "x": wide, "s": 2, "c": c},
        [value("acc", "yrxs", product, total("c"), store("Y", "y", "r", "x", "s"))],
    )  # fmt: skip


def pooled(high=240, wide=320, c=24):
    y, x = I("y") + "r", I("x") + "s"
    body = Guard((I(high) - y - 1, I(wide) - x - 1), load("X", y, x, "c"), const(-1e30))
    acc = value("acc", "yxc", body, total("rs", "max"), store("Y", "y", "x", "c"))
    buffers = [buffer("X", high, wide, c), buffer("Y", high, wide, c)]
    return kernel("pool", buffers, {"y": high, "x": wide, "c": c, "r": 2, "s": 2}, [acc])


def turned_in_blocks(n=48, m=64):
    """Rows of a matrix as blocks of 32 x 32 of the turned one, rounded."""
    row, column = I("b") * 32 + "j", I("a") * 32 + "i"
    rounded = op("cast", load("X", row, column), dtype=bf16)
    copy = value("copy", "abij", rounded, store=store("Y", "a", "b", "i", "j"))
    buffers = [buffer("X", 32 * m, 32 * n), buffer("Y", n, m, 32, 32, dtype=bf16)]
    return kernel("turned", buffers, {"a": n, "b": m, "i": 32, "j": 32}, [copy])


def joined(m=6400, k=96, n=32):
    """A product with two arrays side by side, one of them activated."""
    second = silu(add(load("B", "m", I("k") - k // 2), load("bias", I("k") - k // 2)))
    body = Guard((I(k // 2 - 1) - "k",), load("A", "m", "k"), second)
    buffers = [buffer("A", m, k // 2), buffer("B", m, k // 2),
               buffer("bias", k // 2, constant=True),
               buffer("W", k, n, constant=True), buffer("Y", m, n)]  # fmt: skip
    acc = value("acc", "mn", mul(body, load("W", "k", "n")), total("k"), store("Y", "m", "n"))
    return kernel("joined", buffers, {"m": m, "n": n, "k": k}, [acc])


def of_a_softmax(h=48, q=256, k=256, d=64):
    """The gradient of a softmax whose weights are in memory, of attention: row by row."""
    product = mul(cast(load("G", "h", "q", "d", dtype=bf16), f32),
                  cast(load("V", "h", "k", "d", dtype=bf16), f32))  # fmt: skip
    weight = load("P", "h", "q", "k")
    return kernel(
        "of_a_softmax",
        [buffer("G", h, q, d, dtype=bf16), buffer("V", h, k, d, dtype=bf16),
         buffer("P", h, q, k), buffer("Y", h, q, k)],
        {"h": h, "q": q, "k": k, "d": d},
        [value("dot", "hqk", product, total("d")),
         value("mean", "hq", mul(weight, read("dot")), total("k")),
         value("out", "hqk", mul(weight, sub(read("dot"), read("mean"))),
               store=store("Y", *"hqk"))],
    )  # fmt: skip


def running_sums(k=64, m=4096):
    """The sum of exponentials down the columns, their maximum as it is found."""
    x, top = load("X", "k", "m"), read("top", so_far=True)
    shrink = value("shrink", "m", op("exp2", sub(read("before"), top)))
    return kernel(
        "running_sums",
        [buffer("X", k, m), buffer("Y", m)],
        {"m": m, "k": k},
        [value("before", "m", top), value("top", "m", x, total("k", "max", start=const(LOWEST))),
         shrink, value("p", "mk", op("exp2", sub(x, top))),
         value("sum", "m", read("p"), total("k", rescale=read("shrink"))),
         value("out", "m", add(op("log2", read("sum")), read("top")), store=store("Y", "m"))],
    )  # fmt: skip


def paths(made, target):
    *_, last = prepare(made, target)
    scheduled, schedule = default_schedule(last, target)
    return scheduled, {name: list(path) for name, path in schedule.paths.items()}


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
@pytest.mark.parametrize("make", [first_convolution, last_convolution])
def test_lanes_are_pixels_of_a_row(make, target):
    """Those of a column lie on as many pages."""
    _, found = paths(make(), target)
    lanes = {loop.axis for loop in found["acc"] if loop.kind == "vector"}
    assert lanes & {"x", "o", "s"} and "y" not in lanes


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
def test_lanes_follow_what_lighter_sums_read(target):
    """Both factors of the product are alike; the weights lie along the keys."""
    _, found = paths(of_a_softmax(), target)
    for name in ("dot", "mean", "out"):
        assert [x.axis for x in found[name] if x.kind == "vector"] == ["k"]


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
def test_lanes_of_running_sums_are_neighbours_in_memory(target):
    """Although the exponentials are nearly all of the work."""
    _, found = paths(running_sums(), target)
    assert all([x.axis for x in path if x.kind == "vector"] == ["m"] for path in found.values())


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
def test_units_of_a_pool_are_rows(target):
    _, found = paths(pooled(), target)
    assert [loop.axis for loop in found["acc"] if loop.kind == "parallel"] == ["y"]


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
def test_all_threads_turn_an_operand(target):
    """An axis that is turned in registers, 32 long, is one block: its rows are shared out too."""
    (part,) = prepare(turned_in_blocks(), target)
    made, schedule = default_schedule(part, target)
    shared = [x for x in schedule.paths["copy"] if x.kind == "parallel"]
    assert prod(-(-int(made.axes[x.axis]) // x.step) for x in shared) >= 2 * target.threads


@pytest.mark.parametrize("target", CHOOSING, ids=lambda t: t.name)
def test_a_factor_that_takes_long_is_made_before(target):
    """In lanes of its own; those of the product are its columns."""
    scheduled, found = paths(joined(), target)
    (name,) = {v.name for v in scheduled.values} - {"acc"}
    ends = {n: path[-1] for n, path in found.items()}
    assert ends[name].axis == "k" and ends["acc"].axis == "n"
    assert {loop.kind for loop in ends.values()} == {"vector"}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    "made",
    [first_convolution(3, 12, 40, 5), last_convolution(6, 5, 9), pooled(5, 7, 3), joined(9, 20, 7),
     of_a_softmax(2, 9, 20, 8), running_sums(9, 20)],
    ids=lambda k: k.name,
)
def test_they_run_right(made, target):
    assert_right(made, {}, replace(target, threads=2))
