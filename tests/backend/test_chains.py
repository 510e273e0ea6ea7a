"""Chains of byte products are added in 16 bits only where the largest numbers fit."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend import cpu
from luminal.graph.dtype import i8, i32, u8
from luminal.kernel.program import Program

from . import native

LANES, DEEP, LINKS = 8, 4, 20


def chained(
    mask: int, read_twice: bool = False, links: int = LINKS, weight: int | None = None
) -> Program:
    """out = the sum of products of neighbouring bytes: those of `a`, masked, and of `b`; times a
    weight that was a byte of its own sign."""

    def build(body: native.Body, at) -> None:
        total = first = native.literal(0, i32, LANES)
        for link in range(links):
            offset = link * LANES * DEEP
            a, b = (body.emit("load", (at(name),), dtype, LANES * DEEP, (offset,))
                    for name, dtype in (("a", u8), ("b", i8)))  # fmt: skip
            low = body.emit("and", (a, native.literal(mask, u8, LANES * DEEP)), u8, LANES * DEEP)
            total = body.emit("vpmaddubsw", (total, low, b), i32, LANES)
            first = total if link == 0 else first
        if read_twice:
            total = body.emit("add", (total, first), i32, LANES)
        if weight is not None:
            narrow = native.literal(weight, i8, LANES)
            wide = body.emit("cast", (narrow,), i32, LANES)
            total = body.emit("mul", (wide, total), i32, LANES)
        body.effect("store", (total, at("out")), (0,))

    size = LANES * DEEP * LINKS
    buffers = (native.buffer("a", u8, size), native.buffer("b", i8, size),
               native.buffer("out", i32, size))  # fmt: skip
    return native.blocks(buffers, size, build)


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("mask", (1, 15, 63, 127))
@pytest.mark.parametrize("b", (-128, 127))
def test_the_largest_sums_are_exact(b: int, mask: int, target: str) -> None:
    size = LANES * DEEP * LINKS
    arrays = {"a": np.full(size, 255, np.uint8), "b": np.full(size, b, np.int8),
              "out": np.zeros(size, np.int32)}  # fmt: skip
    for read_twice in (False, True):
        native.run(chained(mask, read_twice), arrays, _with_bytes(target))
        wanted = mask * b * DEEP * (LINKS + read_twice)
        assert (arrays["out"][:LANES] == wanted).all()


@pytest.mark.parametrize(("mask", "rounds"), [(1, 1), (15, 3), (63, 10), (127, 20)])
def test_as_many_links_as_fit_wait(mask: int, rounds: int) -> None:
    text = cpu.render(chained(mask), cpu.named("avx2"))
    assert text.count("call <16 x i16> @llvm.x86.avx2.pmadd.ub.sw") == LINKS
    assert text.count("call <8 x i32> @llvm.x86.avx2.pmadd.wd") == rounds


@pytest.mark.parametrize("target", native.TARGETS)
@pytest.mark.parametrize("weight", (-128, -1, 127))
def test_a_weight_joins_the_last_sum(weight: int, target: str) -> None:
    """As long as all before it is in 16 bits."""
    size = LANES * DEEP * LINKS
    arrays = {"a": np.full(size, 255, np.uint8), "b": np.full(size, -128, np.int8),
              "out": np.zeros(size, np.int32)}  # fmt: skip
    for mask, links in ((127, 1), (15, 8), (15, 9)):
        native.run(chained(mask, links=links, weight=weight), arrays, _with_bytes(target))
        assert (arrays["out"][:LANES] == weight * mask * -128 * DEEP * links).all()


@pytest.mark.parametrize(("links", "rounds"), [(1, 1), (8, 1), (9, 2)])
def test_a_weight_costs_nothing_more(links: int, rounds: int) -> None:
    text = cpu.render(chained(15, links=links, weight=9), cpu.named("avx2"))
    assert text.count("call <8 x i32> @llvm.x86.avx2.pmadd.wd") == rounds
    assert (text.count("mul <8 x i32>") == 0) == (rounds == 1)


def _with_bytes(name: str):
    """A target by name, or a skip where it has another instruction for bytes."""
    target = native.target_of(name)
    if "vpmaddubsw" not in {instruction.name for instruction in target.instructions}:
        pytest.skip("it multiplies bytes otherwise")
    return target
