"""Operands that are made once before the kernel that reads them, in its layout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from default_cases import (
    add,
    buffer,
    cast,
    const,
    load,
    mul,
    op,
    read,
    store,
    sub,
    total,
    value,
)  # fmt: skip
from oracles.schedules import schedule_of
from test_default import assert_right

import luminal
from luminal import ops, train
from luminal.backend.cpu.target import named
from luminal.graph.dtype import DType, bf16, f32, i8, i32, u8
from luminal.graph.index import Index
from luminal.kernel.kernel import Expression, Guard, Kernel, Value, walk
from luminal.lowering.lower import lower
from luminal.lowering.verify import instructions
from luminal.precision import default_passes
from luminal.runtime.show import program_text
from luminal.scheduling import estimate, once, several
from luminal.scheduling.default import default_schedule, drafted
from luminal.scheduling.draft import Draft
from luminal.scheduling.laid_out import makers_apart
from luminal.scheduling.once import NAME
from luminal.scheduling.prepare import prepare

TARGET = named("avx512")


def product(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Rows of both sides: neither is as lanes want it."""
    x, w = cx.tensor((24, 40), dtype), cx.tensor((37, 40), dtype)
    if dtype == "i8":
        x, w = x.cast("i32"), w.cast("i32")
    return ops.matmul(x, w.T)


def columns(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Neighbours in the lanes, whose pairs along the sum are rows apart; of the other side both."""
    x, w = cx.tensor((48, 64), dtype), cx.tensor((64, 96), dtype)
    if dtype == "i8":
        x, w = x.cast("i32"), w.cast("i32")
    return ops.matmul(x, w)


def sized(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """One side has as many rows as a run says."""
    cx.dim("n", 1, 64)
    return ops.matmul(cx.tensor((24, 40), dtype), cx.tensor(("n", 40), dtype).T)


def convolution(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Windows over padding; panels end inside an image row."""
    x, w = cx.tensor((2, 6, 7, 7), dtype), cx.tensor((20, 6, 3, 3), dtype)
    return ops.conv2d(x, w, padding=1)


def bytes_of_an_image(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """What is multiplied is widened before it is padded."""
    x, w = cx.tensor((2, 8, 7, 7), "u8"), cx.tensor((20, 8, 3, 3), "i8")
    return ops.conv2d(x.cast("i32"), w.cast("i32"), padding=1)


def inside(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Windows without padding, of steps."""
    x, w = cx.tensor((1, 8, 9, 9), dtype), cx.tensor((20, 8, 3, 3), dtype)
    return ops.conv2d(x, w, stride=2)


def strided_convolution(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Of what is made of each element of an image; an odd one ends inside of a window."""
    x, w = cx.tensor((3, 6, 7, 7), dtype), cx.tensor((20, 6, 3, 3), dtype)
    return ops.conv2d(ops.relu(x), w, stride=2, padding=1)


def weight_gradient(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Its lanes are digits of channel, row and column: panels end inside of them."""
    x, w = cx.tensor((2, 6, 8, 8), dtype), cx.tensor((24, 6, 3, 3), dtype)
    loss = (ops.conv2d(x, w, padding=1) * cx.tensor((2, 24, 8, 8), dtype)).sum()
    return train.backward(loss, [w])[0]


def weight_gradient_of_maxima(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Windows of what is made of each element of an image."""
    x, w = cx.tensor((2, 6, 8, 8), dtype), cx.tensor((24, 6, 3, 3), dtype)
    loss = (ops.conv2d(ops.relu(x), w, padding=1) * cx.tensor((2, 24, 8, 8), dtype)).sum()
    return train.backward(loss, [w])[0]


def strided_gradient(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """One, two or four taps of a window meet a place, as its row and column are even or odd."""
    x, w = cx.tensor((2, 6, 8, 8), dtype), cx.tensor((24, 6, 3, 3), dtype)
    y = ops.conv2d(x, w, stride=2, padding=1)
    return train.vjp([y], [cx.tensor((2, 24, 4, 4), dtype)], [x])[0]


def padded_by_a_number(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Bytes whose zero is another number: what is outside counts."""
    x, w = cx.tensor((2, 8, 7, 7), "u8"), cx.tensor((20, 8, 3, 3), "i8")
    return ops.conv2d(x.pad([(0, 0), (0, 0), (1, 1), (1, 1)], 3).cast("i32"), w.cast("i32"))


def reflected(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Windows of sound that goes back at its ends: an index is a minimum of maxima."""
    x, w = cx.tensor((3, 1, 40), dtype), cx.tensor((20, 1, 16), dtype)
    return ops.conv1d(ops.pad(x, (6, 6), "reflect"), w, stride=4)


def harmonics(cx: luminal.Graph, dtype: str) -> luminal.Tensor:
    """Windows of channels that are one image, each moved by another number of columns."""
    x, w = cx.tensor((1, 9, 30), dtype), cx.tensor((20, 3, 3, 5), dtype)
    moved = [x.pad([(0, 0), (0, 0), (n, 4 - n)]) for n in (0, 1, 4)]
    return ops.conv2d(ops.stack(moved, 1), w, padding=(1, 2))


CASES: list[tuple[Any, str]] = [
    (product, "f32"), (product, "bf16"), (product, "i8"), (sized, "f32"),
    (columns, "bf16"), (columns, "i8"),
    (convolution, "f32"), (convolution, "bf16"), (weight_gradient, "f32"),
    (weight_gradient_of_maxima, "f32"), (strided_gradient, "f32"), (strided_convolution, "f32"),
    (padded_by_a_number, "u8"), (reflected, "f32"), (harmonics, "f32"),
]  # fmt: skip


OVER_IMAGES = (
    convolution, strided_convolution, weight_gradient, weight_gradient_of_maxima, strided_gradient,
    padded_by_a_number, reflected, harmonics,
)  # fmt: skip
WINDOWS = [case for case in CASES if case[0] in OVER_IMAGES]
DEEP: list[tuple[tuple[Any, str], tuple[int, ...], str]] = [
    ((convolution, "bf16"), (0,), "deep"), ((bytes_of_an_image, "i8"), (0,), "deep"),
    ((inside, "bf16"), (0,), "deep"),
]  # fmt: skip
TURNED = [(case, (0, 1), "turned") for case in WINDOWS
          if case[0] in (convolution, strided_convolution, strided_gradient)]  # fmt: skip
WAYS = [(case, sides, "spelled out") for case in CASES for sides in ((0,), (1,), (0, 1))]


@pytest.mark.parametrize(
    "case, sides, way",
    [*WAYS, *((case, (0, 1), "padded") for case in WINDOWS), *DEEP, *TURNED],
    ids=lambda p: " ".join(getattr(x, "__name__", str(x)) for x in p) if isinstance(p, tuple) else p
)  # fmt: skip
def test_what_is_made_once_changes_no_result(
    case: tuple[Any, str], sides: tuple[int, ...], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deep: neighbours along the channels that are summed up lie side by side. turned: one place
    of all images does."""
    function, dtype = case
    monkeypatch.setattr(several, "LEAST_POINTS", 0)
    monkeypatch.setattr(several, "LEAST_LAUNCHES", 0.0)
    monkeypatch.setattr(several, "GAIN", inf)

    def ways(kernel: Kernel, draft: Draft, products: list[Value]) -> Iterator[list[Kernel]]:
        """This one, once."""
        for v in products:
            if all(once._movable(kernel, v.factors[n]) for n in sides):
                channels = v.over if way == "deep" else ("",)
                forms: list[once.Form | None] = [
                    partial(once._joined, last=a, inside=inside)
                    for a in channels for inside in (False, True)
                ]  # fmt: skip
                if way == "turned":
                    forms = [partial(once._turned, last=a, over=v.over) for a in v.axes]
                forms = [None] if way == "spelled out" else forms
                bodies = [once._narrow(side) for side in v.factors]
                made = (once._apart(kernel, v, bodies, sides, form) for form in forms)
                yield next(filter(None, made))

    monkeypatch.setattr(several, "_ways", ways)
    cx = luminal.Graph()
    function(cx, dtype).output()
    rt = cx.compile(device="cpu", threads=2, cache=False, database=False)
    laid = {b.name for made in rt.kernels for b in made.kernel.buffers if NAME in b.name}
    assert len({name.removesuffix("_rows") for name in laid}) == len(sides)
    want, random = cx.compile(device="reference"), np.random.default_rng(0)
    for n in (37, 5) if function is sized else (0,):
        shapes = [[e if isinstance(e, int) else n for e in t.shape] for t in cx.inputs]
        given = [random.integers(-8, 8, shape).astype(t.dtype.numpy)
                 for t, shape in zip(cx.inputs, shapes)]  # fmt: skip
        np.testing.assert_array_equal(rt(*given), want(*given))


def test_taps_that_are_none_are_not_summed_up() -> None:
    """Operands that are spelled out are 0 there; the loops of their reader end before."""
    cx = luminal.Graph()
    shapes = (16, 64, 16, 16), (128, 64, 3, 3), (128, 64, 1, 1), (16, 128, 8, 8)
    x, w, beside, g = map(cx.tensor, shapes)
    both = ops.conv2d(x, w, stride=2, padding=1), ops.conv2d(x, beside, stride=2)
    train.vjp(both, [g, g], [x])[0].output()
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    summed = [v for made in rt.kernels for v in made.kernel.values if v.reduction]
    ends = [high for v in summed for _, high in v.domain.values() if high is not None]
    assert ends and all(len(end.names()) == 1 for end in ends)  # by even and odd


def test_a_product_that_loops_would_do_again_is_a_kernel_of_its_own() -> None:
    """That of a 1 x 1 convolution with a stride, backwards: at places that are even only."""
    cx = luminal.Graph()
    shapes = (16, 256, 8, 8), (512, 256, 3, 3), (512, 256, 1, 1), (16, 512, 4, 4)
    x, w, beside, g = map(cx.tensor, shapes)
    both = ops.conv2d(x, w, stride=2, padding=1), ops.conv2d(x, beside, stride=2)
    train.vjp(both, [g, g], [x])[0].output()
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    products = [[v for v in made.kernel.values if v.reduction] for made in rt.kernels]
    assert sorted(map(len, products))[-2:] == [1, 1]


def test_windows_are_turned_along_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two axes are contiguous, the taps of a window and its places: the longer one is. Machines
    with a larger second cache read windows where they lie."""
    machines = sys.modules[named.__module__]
    small = replace(machines.host(), vector_bytes=32, registers=16, l2=512 << 10)
    monkeypatch.setattr(machines, "_host", lambda: small)
    cx = luminal.Graph()
    x, w, g = (cx.tensor(s) for s in ((16, 64, 32, 32), (64, 64, 3, 3), (16, 64, 32, 32)))
    train.vjp([ops.conv2d(x, w, padding=1)], [g], [w])[0].output()
    plain = default_passes()  # as a sum, not in tiles
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False, passes=plain)
    copies = [(made.kernel.axes, path[-2].axis) for made in rt.kernels
              for name, path in made.schedule.paths.items() if name.endswith("v0_b")]  # fmt: skip
    axes, turned = copies[0]  # by each unit of work, or by a kernel before
    assert int(axes[turned]) in (32, 34)  # places of the image, or of it with its padding


def test_of_a_window_as_long_as_its_taps_neither_is_taken_for_the_places() -> None:
    """Whatever the order of a set of names."""

    def places(a: int, b: int, over: str) -> bool:
        kernel = cases.kernel("window", [], {"a": a, "b": b}, [])
        return once._places(kernel, Index.of("a") + "b", over)

    assert places(8, 4, "a") and not places(8, 4, "b") and places(4, 4, "ab")
    assert not places(4, 4, "a") and not places(4, 4, "b")


@pytest.mark.parametrize("channels, wide", [(64, 32), (256, 8)])
def test_windows_are_read_where_they_lie(channels: int, wide: int) -> None:
    """A line of an image serves eight places and three taps: it may come from the second cache
    each time. Only the weight is laid out before."""
    made = several.several(changing(channels, wide), TARGET)
    assert [len(part.outputs) for part in made] == [1, 1]
    (copied,) = (b for b in made[-1].buffers if b.name.startswith(NAME))
    assert copied.constant and int(prod(copied.shape)) == 9 * channels**2


@pytest.mark.parametrize("channels, wide, dear", [(64, 32, False), (512, 4, True)])
def test_windows_are_dear_where_each_place_is_on_a_line_of_its_own(
    channels: int, wide: int, dear: bool
) -> None:
    """A tile takes a row of places of one image, or the same place of several images."""
    kernel = changing(channels, wide)
    (summed,) = (v for v in kernel.values if v.reduction)
    _, (_, reader), *_ = once.operands_before(kernel, summed, summed.factors)
    draft = drafted(reader, TARGET)
    (summed,) = (v for v in draft.found.values if v.reduction)
    factor = estimate._windowed(draft, summed)
    assert factor > 2 if dear else factor < 1.1


def test_what_is_worked_out_for_each_element_is_made_once() -> None:
    """Which of several moved images, and whether it has ended: windows of a whole one, with all of
    them as channels, ask no more."""
    cx = luminal.Graph()
    x, w = cx.tensor((1, 96, 128)), cx.tensor((16, 8, 3, 15))
    moved = [x.pad([(0, 0), (0, 0), (5 * n, 35 - 5 * n)]) for n in range(8)]
    ops.conv2d(ops.stack(moved, 1), w, padding=(1, 7)).output()
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    (product,) = (v for made in rt.kernels for v in made.kernel.values if v.factors)
    assert not any(isinstance(e, Guard) for e in walk(product.body))
    image = np.random.default_rng(0).standard_normal((1, 96, 128)).astype(np.float32)
    weight = np.random.default_rng(1).standard_normal((16, 8, 3, 15)).astype(np.float32)
    want = cx.compile(device="reference")(image, weight)
    np.testing.assert_allclose(rt(image, weight), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, dtype", [("avx2", "i16"), ("vnni", None)])
def test_an_image_is_widened_once_where_an_instruction_takes_it_wider(
    name: str, dtype: str | None
) -> None:
    """AVX2 multiplies no bytes of any size: each would be moved, widened and spread out for all
    lanes in the inner loop. VNNI reads them as they lie."""
    y, x = Index.of("y") + "r" - 1, Index.of("x") + "s" - 1
    inside = (y, 39 - y, x, 39 - x)
    image = Guard(inside, load("X", y, x, "c", dtype=u8), const(0, u8))
    acc = value("acc", "yxo", mul(cast(image, i32), cast(load("W", *"ocrs", dtype=i8), i32)),
                total("crs"), store=store("Y", *"yxo"))  # fmt: skip
    weights = buffer("W", 64, 64, 3, 3, dtype=i8, constant=True)
    given = [buffer("X", 40, 40, 64, dtype=u8), weights, buffer("Y", 40, 40, 64, dtype=i32)]
    axes = {"y": 40, "x": 40, "o": 64, "c": 64, "r": 3, "s": 3}
    kernel = prepare(cases.kernel("image", given, axes, [acc]), named(name))[0]
    made = [b for b in several.several(kernel, named(name))[-1].buffers if b.name.startswith(NAME)]
    assert [(b.dtype.name, b.shape) for b in made] == ([(dtype, (42, 42, 64))] if dtype else [])


def test_places_of_several_images_are_brought_together() -> None:
    """Copied so that a tile finds the same place of all images on one line, and ends at padding:
    10 of 12 taps of each row and column of 4 x 4 are there."""
    kernel = changing(512, 4)
    (summed,) = (v for v in kernel.values if v.reduction)
    *_, (turned, _, reader) = once.operands_before(kernel, summed, summed.factors, rows=summed.axes)
    assert [*map(int, turned.buffer(turned.outputs[0]).shape)][-1] == 16
    draft = drafted(reader, TARGET)
    (summed,) = (v for v in draft.found.values if v.reduction)
    assert estimate._windowed(draft, summed) < 1.1
    assert estimate._walked(draft, summed) == pytest.approx((10 / 12) ** 2)


def changing(channels: int, wide: int) -> Kernel:
    """A convolution, 3 x 3 over 16 images, of which nothing is known before a run."""
    fixed = cases.convolution(channels, wide, channels, 3, batch=16)
    buffers = tuple(replace(b, constant=False) for b in fixed.buffers)
    return prepare(replace(fixed, buffers=buffers), TARGET)[0]


def test_the_estimate_knows_what_is_padding() -> None:
    """Of 3 x 3 windows of an image of 8 x 8 with its padding 2 of 24 places by taps lie outside,
    each way: by the ends of a loop one, where they are written out the other."""
    *_, reader = several.several(changing(256, 8), TARGET)
    draft = drafted(reader, TARGET)
    (summed,) = (v for v in draft.found.values if v.reduction)
    assert draft.facts.spelled and estimate._walked(draft, summed) == pytest.approx((11 / 12) ** 2)


def pairs_of_rows(rows: int) -> Kernel:
    """Pairs of rows of f32 as panels of six columns of bf16."""
    places = Index.of("r") * 2 + Index.of("p"), Index.of("b") * 6 + Index.of("c")
    body = cases.cast(load("X", *places), bf16)
    copy = value("copy", "brcp", body, store=store("Y", *"brcp"))
    shapes = buffer("X", 2 * rows, 96), buffer("Y", 16, rows, 6, 2, dtype=bf16)
    return cases.kernel("pairs", shapes, dict(b=16, r=rows, c=6, p=2), [copy])


def test_pairs_of_rows_are_read_line_by_line() -> None:
    """A panel at a time would come back to each line when it has left the cache; and vectors that
    are only partly used are still vectors, not elements from anywhere."""
    made, schedule = default_schedule(prepare(pairs_of_rows(1024), TARGET)[0], TARGET)
    text = " ".join(map(str, schedule.paths["copy"]))
    assert text.endswith("@ b/1 r/1 c/8 p/2 c/1# p/1#") and text.startswith("r/")
    assert "gather" not in program_text(lower(made, schedule, TARGET))
    assert_right(pairs_of_rows(9), {}, TARGET)


def pairs_of_taps(padded: bool, width: int) -> Kernel:
    """Weights (o, i, taps), or windows under their padding, as pairs of i for each o."""
    pair = Index.of("i") * 2 + "p"
    seen: Expression = load("X", Index.of("b") * 32 + "o", pair, Index.of("t"))
    if padded:
        inside = Index.of("t") + "o" - 1
        seen = Guard((inside, width - inside), load("X", pair, "b", inside), const(0.0))
    copy = value("copy", "btiop", cast(seen, bf16), store=store("Y", *"btiop"))
    shape = (16, 4, width + 1) if padded else (128, 16, 9)
    shapes = buffer("X", *shape), buffer("Y", 4, 9, 8, 32, 2, dtype=bf16)
    return cases.kernel("taps", shapes, dict(b=4, t=9, i=8, o=32, p=2), [copy])


@pytest.mark.parametrize("padded", [False, True])
def test_pairs_apart_in_memory_fill_vectors_too(padded: bool) -> None:
    """Neither half of a lane lies beside its neighbour's: two gathered vectors are interleaved. Of
    windows each half has its own conditions."""
    kernel, target = pairs_of_taps(padded, 33), replace(TARGET, maskable=1)
    made, schedule = default_schedule(prepare(kernel, target)[0], target)
    assert " ".join(map(str, schedule.paths["copy"])).endswith("o/1# p/1#")
    assert "shuffle" in program_text(lower(made, schedule, target))
    assert_right(kernel, {}, target)


@pytest.mark.parametrize("dtype", [bf16, f32])
@pytest.mark.parametrize("pad", [0, 1])
def test_pictures_are_turned_in_registers_with_their_padding(dtype: DType, pad: int) -> None:
    """Channels innermost: rows of a block run along the picture, under the conditions of all their
    places at once; columns are stored."""
    y, x = Index.of("y") - pad, Index.of("x") - pad
    seen: Expression = load("X", "c", y, x, dtype=dtype)
    if pad:
        seen = Guard((y, x, 31 - y, 31 - x), seen, const(0.0, dtype))
    copy = value("copy", "yxc", cast(seen, bf16), store=store("Y", *"yxc"))
    shapes = buffer("X", 32, 32, 32, dtype=dtype), buffer("Y", 34, 34, 32, dtype=bf16)
    sizes = {"y": 32 + 2 * pad, "x": 32 + 2 * pad, "c": 32}
    kernel, target = cases.kernel("turned", shapes, sizes, [copy]), replace(TARGET, maskable=1)
    made, schedule = default_schedule(prepare(kernel, target)[0], target)
    assert " ".join(map(str, schedule.paths["copy"])).endswith("x/1! c/1#")
    program = lower(made, schedule, target)
    inner = [s for s in instructions(program.body) if s.op == "shuffle"]
    assert len(inner) % 64 == 0 and inner  # four stages of a block of 16 x 16
    assert_right(kernel, {}, target)


def test_pictures_with_channels_innermost_are_read_as_they_lie() -> None:
    """A block as tall as its lanes: nothing is turned, though places along it may be padding."""
    y, x = Index.of("y") - 1, Index.of("x") - 1
    seen = Guard((y, x, 31 - y, 31 - x), load("X", y, x, "c"), const(0.0))
    copy = value("copy", "yxc", seen, store=store("Y", *"yxc"))
    shapes = buffer("X", 32, 32, 16), buffer("Y", 34, 34, 16)
    kernel = cases.kernel("picture", shapes, {"y": 34, "x": 34, "c": 16}, [copy])
    text = program_text(lower(kernel, schedule_of("copy: y/1@ x/16 x/1! c/1#"), TARGET))
    assert "shuffle" not in text and "gather" not in text


@pytest.mark.parametrize("width", [14, 32])
def test_results_that_lie_in_turns_are_stored_in_vectors(width: int) -> None:
    """Of two neighbours one is made of a sum, one of a difference, as pixels of a tile are."""
    first, second = load("X", "c", "x"), load("Z", "c", "x")
    chosen = Guard((Index.of("p") - 1,), sub(read("s"), second), add(read("s"), first))
    values = [value("s", "cx", add(first, second)),
              value("out", "cxp", chosen, store=store("Y", *"cxp"))]  # fmt: skip
    shapes = buffer("X", 24, width), buffer("Z", 24, width), buffer("Y", 24, width, 2)
    kernel = cases.kernel("turns", shapes, {"c": 24, "x": width, "p": 2}, values)
    _, schedule = default_schedule(prepare(kernel, TARGET)[0], TARGET)
    assert " ".join(map(str, schedule.paths["out"])).endswith("c/1# p/1#")  # of one axis
    assert_right(kernel, {}, TARGET)


@pytest.mark.parametrize("maskable", [1, 4])
def test_narrow_elements_are_loaded_under_masks_where_that_is_cheap(maskable: int) -> None:
    """Panels of six columns, out of numbers of two bytes; else one by one."""
    whole, target = pairs_of_rows(9), replace(TARGET, maskable=maskable)
    kernel = replace(whole, buffers=(buffer("X", 18, 96, dtype=bf16), whole.buffers[1]))
    body = load("X", *whole.values[0].body.args[0].index, dtype=bf16)
    kernel = replace(kernel, values=(replace(whole.values[0], body=body),))
    made, schedule = default_schedule(prepare(kernel, target)[0], target)
    assert ("gather" in program_text(lower(made, schedule, target))) == (maskable > 2)
    assert_right(kernel, {}, target)


@pytest.mark.parametrize("columns, many", [(1536, False), (6144, True)])
def test_a_few_pages_in_turns_are_foreseen(columns: int, many: bool) -> None:
    """Panels of six columns out of pairs of rows: ten pairs of a unit are followed through all
    columns; where only one column block of many rows is wanted, each line comes late."""
    places = Index.of("r") * 2 + Index.of("p"), Index.of("b") * 6 + Index.of("c")
    copy = value("copy", "brcp", cast(load("X", *places), bf16), store=store("Y", *"brcp"))
    blocks = 1 if many else columns // 6
    shapes = buffer("X", 2048, columns), buffer("Y", blocks, 1024, 6, 2, dtype=bf16)
    kernel = cases.kernel("pages", shapes, dict(b=blocks, r=1024, c=6, p=2), [copy])
    draft = drafted(prepare(kernel, TARGET)[0], TARGET)
    each = estimate.late(draft, draft.found.values[0])
    assert (each > 1.0) == many


def test_no_pairs_are_read_along_a_window_that_ends() -> None:
    """Places of a picture that lie inside begin at odd ones too."""
    plain = named("vnni", 2)
    fast = (replace(i, cycles=1.0) for i in plain.instructions)  # as some machines are
    target = replace(plain, instructions=tuple(fast))
    y, x = Index.of("y") + "r" - 1, Index.of("x") + "s" - 1
    seen = Guard((y, x, 7 - y, 7 - x), load("X", "n", "c", y, x, dtype=bf16), const(0.0, bf16))
    pair = [cast(load("G", *"onyx", dtype=bf16), f32), cast(seen, f32)]
    acc = value("acc", "ocrs", mul(*pair), total("nyx"), store=store("W", *"ocrs"))
    shapes = [buffer("X", 16, 256, 8, 8, dtype=bf16), buffer("W", 256, 256, 3, 3),
              buffer("G", 256, 16, 8, 8, dtype=bf16, constant=True)]  # fmt: skip
    sizes = dict(o=256, c=256, r=3, s=3, n=16, y=8, x=8)
    (kernel,) = prepare(cases.kernel("gradient", shapes, sizes, [acc]), target)
    made, schedule = default_schedule(kernel, target)
    assert kernel.value("acc").domain.keys() >= {"x"}
    assert not any(loop.kind == "collapse" for loop in schedule.paths["acc"])
    lower(made, schedule, target)


def test_what_changes_is_made_once_and_constants_are_packed() -> None:
    """The same convolution; a weight that is known before a run needs no kernel."""
    (fixed,) = prepare(cases.convolution(128, 16, 128, 3, batch=16), TARGET)
    assert several.several(fixed, TARGET) == [fixed]
    buffers = tuple(replace(b, constant=False) for b in fixed.buffers)
    *makers, reader = several.several(replace(fixed, buffers=buffers), TARGET)
    assert makers_apart([*makers, reader]) == (makers, [reader])
    assert {m.outputs[0] for m in makers} == {b.name for b in reader.buffers if b.constant}
    assert not makes_operands(reader) and makes_operands(replace(fixed, buffers=buffers))


def test_channels_side_by_side_stay_so_in_what_windows_are_written_out_to() -> None:
    """Though the weights have the taps inside of the channels."""
    y, x = Index.of("y") + "r" - 1, Index.of("x") + "s" - 1
    seen = Guard((y, x, 27 - y, 27 - x), load("X", y, x, "c"), const(0.0))
    pair = [cast(cast(seen, bf16), f32), cast(load("W", *"ocrs", dtype=bf16), f32)]
    acc = value("acc", "yxo", mul(*pair), total("crs"), store=store("Y", *"yxo"))
    shapes = [buffer("X", 28, 28, 128), buffer("W", 128, 128, 3, 3, dtype=bf16, constant=True),
              buffer("Y", 28, 28, 128)]  # fmt: skip
    made = cases.kernel("conv", shapes, dict(y=28, x=28, o=128, c=128, r=3, s=3), [acc])
    amx = named("amx", 2)
    maker, _ = several.several(prepare(made, amx)[0], amx)
    assert maker.values[0].axes[-1] == "c"


@pytest.mark.parametrize("size, apart", [(3072, True), (256, False)])
def test_long_arrays_beside_a_short_product_are_walked_by_a_kernel_of_their_own(
    size: int, apart: bool
) -> None:
    """A weight's gradient and its update: in tiles of the product a few lines here and there."""
    mean = add(mul(load("m", "n", "k"), const(0.9)), mul(read("acc"), const(0.1)))
    kernel = cases.kernel(
        "update",
        [buffer("x", 64, size), buffer("g", 64, size),
         *(buffer(name, size, size) for name in ("m", "w", "m2", "w2"))],
        {"r": 64, "n": size, "k": size},
        [value("acc", "nk", mul(load("g", "r", "n"), load("x", "r", "k")), total("r")),
         value("mean", "nk", mean, store=store("m2", "n", "k")),
         value("new", "nk", add(load("w", "n", "k"), read("acc")), store=store("w2", "n", "k"))],
    )  # fmt: skip
    (whole,) = prepare(kernel, TARGET)
    *first, last = several.several(whole, TARGET)
    assert bool(first) == apart and last.outputs == ("m2", "w2")
    assert apart == any(b.name in first[-1].outputs for b in last.buffers if first)


@pytest.mark.parametrize("long, apart", [(True, True), (False, False)])
def test_nobody_waits_for_what_is_stored(long: bool, apart: bool) -> None:
    """A bias is added in the tiles of a product, a long array in a kernel of its own."""
    beside = load("b", "m", "n") if long else load("b", "n")
    kernel = cases.kernel(
        "linear",
        [buffer("x", 1024, 256), buffer("w", 1120, 256), buffer("y", 1024, 1120),
         buffer("b", *([1024] * long), 1120)],
        {"m": 1024, "n": 1120, "k": 256},
        [value("acc", "mn", mul(load("x", "m", "k"), load("w", "n", "k")), total("k")),
         value("out", "mn", add(read("acc"), beside), store=store("y", "m", "n"))],
    )  # fmt: skip
    (whole,) = prepare(kernel, TARGET)
    *first, last = several.several(whole, TARGET)
    assert apart == any(b.name in part.outputs for b in last.buffers for part in first)


def makes_operands(kernel: Kernel) -> bool:
    return bool(drafted(kernel, TARGET).operands)


def test_what_is_copied_for_a_row_of_sums_lies_along_their_lanes() -> None:
    """Scores that are summed up behind their product: otherwise each factor would be gathered."""
    rows = cast(cast(load("X", "h", "m", "k"), f32), f32)
    body = mul(rows, load("W", "h", "n", "k"))
    seen = Guard((Index.of("m") - Index.of("n"),), read("product"), const(-inf))
    score = op("exp2", sub(seen, read("top")))
    values = [
        value("product", ("h", "m", "n"), body, total(("k",))),
        value("top", ("h", "m"), seen, total(("n",), "max")),
        value("power", ("h", "m", "n"), score),
        value("sum", ("h", "m"), read("power"), total(("n",))),
        value("out", ("h", "m", "n"), op("div", read("power"), read("sum")),
              store=store("Y", "h", "m", "n")),
    ]  # fmt: skip
    buffers = [buffer("X", 12, 128, 64), buffer("W", 12, 128, 64, constant=True),
               buffer("Y", 12, 128, 128)]  # fmt: skip
    kernel = cases.kernel("k", buffers, {"h": 12, "m": 128, "n": 128, "k": 64}, values)
    (part,) = prepare(kernel, TARGET)
    made, schedule = default_schedule(part, TARGET)
    assert any(v.name.startswith("product_") for v in made.values)
    assert "gather" not in program_text(lower(made, schedule, TARGET))


def test_a_factor_may_read_a_value_twice_that_its_draft_lacks() -> None:
    """The square of a maximum, rounded for pairs: drafts write the maximum into an operand."""
    top = op("max", load("X", "m", "k"), const(0.0))
    rounded = cast(cast(mul(read("top"), read("top")), bf16), f32)
    weight = cast(cast(load("W", "k", "n"), bf16), f32)
    values = [value("top", "mk", top),
              value("acc", "mn", mul(rounded, weight), total("k"), store("Y", "m", "n"))]
    shapes = buffer("X", 2048, 64), buffer("W", 64, 64), buffer("Y", 2048, 64)
    kernel = cases.kernel("square", shapes, dict(m=2048, n=64, k=64), values)
    target = replace(named("vnni", 2), rounds=True)
    (whole,) = prepare(kernel, target)
    assert "top" not in {v.name for v in drafted(whole, target).facts.values}
    assert several.several(whole, target)[-1].outputs == ("Y",)


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_what_is_read_twice_are_right(turned: bool) -> None:
    cx, rng = luminal.Graph(), np.random.default_rng(0)
    x, w = cx.tensor((64, 2048) if turned else (2048, 64)), cx.tensor((64, 64))
    y = ops.relu(x.T if turned else x)
    ((y * y + y) @ w).output()
    a, b = (rng.standard_normal(t.shape, np.float32) for t in (x, w))
    got = cx.compile(precision="bf16", threads=2, cache=False, database=False)(a, b)
    top = np.maximum(a.T if turned else a, 0)
    want = (top * top + top) @ b
    assert np.abs(got - want).max() < 1e-2 * np.abs(want).max()


def test_little_work_is_left_alone() -> None:
    (kernel,) = prepare(cases.gemm(16, 16, 16, constant=False), TARGET)
    assert several.several(kernel, TARGET) == [kernel]


def test_rows_that_drive_each_other_out_are_laid_out_first() -> None:
    """The gradient of a weight reads both sides across. Rows 4 KiB apart share 8 lines of the first
    cache, and 128 of the second: each tile of 4 columns would fetch every line again."""
    target = replace(named("avx2"), l2=512 << 10)
    body = mul(load("x", "k", "m"), load("y", "k", "n"))
    kernel = cases.kernel(
        "gradient", [buffer(name, 1024, 1024) for name in ("x", "y", "out")],
        dict.fromkeys("mnk", 1024),
        [value("acc", "mn", body, total("k"), store("out", "m", "n"))],
    )  # fmt: skip
    (whole,) = prepare(kernel, target)
    *makers, reader = several.several(whole, target)
    made = {b.name for maker in makers for b in maker.buffers if NAME in b.name}
    assert len(made) == 2 and all(b.constant for b in reader.buffers if b.name in made)


def test_an_operand_is_made_behind_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader was parted before: all that is made once had come first of all."""
    monkeypatch.setattr(several, "LEAST_POINTS", 0)
    monkeypatch.setattr(several, "LEAST_LAUNCHES", 0.0)
    monkeypatch.setattr(several, "GAIN", inf)

    def ways(kernel: Kernel, draft: Draft, products: list[Value]) -> Iterator[Sequence[Kernel]]:
        parted = list(several._behind_sums(kernel))
        made = (once.operands_before(kernel, v, v.factors) for v in products)
        yield from parted[-1:] or (way for each in made for way in each)

    monkeypatch.setattr(several, "_ways", ways)
    cx = luminal.Graph()
    x = cx.tensor((3, 4))
    (x * x.max(0).values).sum(1).output()
    rt = cx.compile(device="cpu", threads=1, cache=False, database=False)
    names = [{b.name for b in made.kernel.buffers} for made in rt.kernels]
    assert any(name.startswith(NAME) for each in names[1:] for name in each)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(rt(array), (array * array.max(0)).sum(1))


@pytest.mark.parametrize("copied", [True, False])
def test_a_sum_is_not_parted_from_a_copy_of_it(copied: bool) -> None:
    row = value("row", "m", load("X", "m", "k"), total("k"))
    body = read("row") if copied else add(read("row"), const(1.0))
    values = [row, value("out", "m", body, store=store("Y", "m"))]
    buffers = [buffer("X", 8, 16), buffer("Y", 8)]
    kernel = cases.kernel("summed", buffers, {"m": 8, "k": 16}, values)
    assert len(list(several._behind_sums(kernel))) == (0 if copied else 1)
