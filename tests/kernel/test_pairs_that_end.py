"""Products of pairs end where what lies in memory is zero beyond, as other products do."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import default_cases as cases
import numpy as np
import pytest
from default_cases import buffer, cast, load, mul, store, total, value
from test_default import interpreted

from luminal.backend.cpu.target import named
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import bf16, f32
from luminal.graph.index import Index
from luminal.kernel.kernel import Kernel
from luminal.scheduling import several
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

PLAIN = named("vnni")
FAST = tuple(replace(i, cycles=1.0) for i in PLAIN.instructions)  # as on some machines
TARGET = replace(PLAIN, instructions=FAST)
HEADS, ROWS, WIDTH = 2, 40, 32


def product(below: bool, constant: bool = False) -> Kernel:
    """Of a triangle's rows with an array, or of its columns: S[h, q, k] is 0 where k > q."""
    over, kept = ("k", "q") if below else ("q", "k")
    body = mul(cast(load("S", *"hqk", dtype=bf16), f32),
               cast(load("V", "h", over, "d", dtype=bf16), f32))  # fmt: skip
    last = (None, Index.of("q") + 1) if below else (Index.of("k"), None)
    acc = value("acc", f"h{kept}d", body, total(over), store=store("Y", "h", kept, "d"))
    shapes = [buffer("S", HEADS, ROWS, ROWS, dtype=bf16, constant=constant),
              buffer("V", HEADS, ROWS, WIDTH, dtype=bf16, constant=constant),
              buffer("Y", HEADS, ROWS, WIDTH)]  # fmt: skip
    sizes = dict(h=HEADS, q=ROWS, k=ROWS, d=WIDTH)
    return cases.kernel("ended", shapes, sizes, [replace(acc, domain={over: last})])


@pytest.mark.parametrize("below", [True, False])
def test_products_of_pairs_end_with_a_triangle(below: bool) -> None:
    (kernel,) = prepare(product(below, constant=True), TARGET)
    made, schedule = default_schedule(kernel, TARGET)
    assert made.value("acc").domain == kernel.value("acc").domain
    assert any(loop.kind == "collapse" for loop in schedule.paths["acc"])
    arrays = cases.arrays(kernel, np.random.default_rng(0), {})
    arrays["S"] = np.tril(arrays["S"])
    got = interpreted(kernel, arrays, {}, TARGET)
    evaluate(kernel, arrays, {})
    np.testing.assert_allclose(got["Y"], arrays["Y"], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("below", [True, False])
def test_so_they_do_behind_operands_made_before(
    below: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in {"LEAST_POINTS": 0, "LEAST_LAUNCHES": 0.0, "GAIN": inf}.items():
        monkeypatch.setattr(several, name, number)
    (kernel,) = prepare(product(below), TARGET)
    *makers, reader = several.several(kernel, TARGET)
    ends = kernel.value("acc").domain
    assert makers and ends and {v.name: v.domain for v in reader.values} == {"acc": ends}


def test_packed_operands_lie_product_by_product() -> None:
    """A product apart from others, as those of heads are, is one piece of memory."""
    (kernel,) = prepare(product(True, constant=True), TARGET)
    _, schedule = default_schedule(kernel, TARGET)
    assert schedule.layouts["V"][0] == (0, 1)
