"""What takes the place of a kernel that no schedule walks means the same, down to single values."""

from __future__ import annotations

import numpy as np
import pytest
from default_cases import (
    I,
    attention,
    buffer,
    const,
    convolution,
    gated,
    gemm,
    layer_norm,
    load,
    mul,
    op,
    read,
    scatter,
    softmax,
    store,
    sub,
    total,
    value,
)
from default_cases import kernel as kernel_of
from lower_cases import TARGET, Case, arrays_of, compare

from luminal.backend.reference.kernels import evaluate
from luminal.kernel.domains import derive_domains
from luminal.kernel.kernel import Guard, Kernel, verify_scopes
from luminal.lowering.legal import check
from luminal.scheduling.default import default_schedule
from luminal.scheduling.divide import divided


def masked(m: int) -> Kernel:
    """Sums of exponents of each row up to its diagonal: nobody looks at what lies behind it."""
    inside = Guard((I("q") - I("k"),), read("score"), const(-np.inf))
    e = op("exp2", sub(read("inside"), read("top")))
    return derive_domains(kernel_of(
        "masked", [buffer("X", m, m), buffer("Y", m)], {"q": m, "k": m},
        [value("score", "qk", mul(load("X", "q", "k"), const(2.0))), value("inside", "qk", inside),
         value("top", "q", read("inside"), total("k", "max")),
         value("sum", "q", e, total("k"), store=store("Y", "q"))],
    ))  # fmt: skip


KERNELS = {
    "attention": (attention(2, 5, 7, 3), {}),
    "groups": (attention(4, 5, 7, 3, causal=False, groups=2), {}),
    "convolution": (convolution(3, 6, 4, 3), {}),
    "gated": (gated(5, 6, 7), {}),
    "masked": (masked(5), {}),
    "matrices": (gemm("s", 6, 7, sizes={"s": (1, 9)}), {"s": 4}),
    "norm": (layer_norm(5, 8), {}),
    "scatter": (scatter(6, 4, 3), {}),
    "softmax": (softmax(5, 8), {}),
}


def parts_of(kernel: Kernel) -> list[Kernel]:
    """Divided until nothing more can be."""
    parts = divided(kernel)
    return [each for part in parts for each in parts_of(part)] if parts else [kernel]


@pytest.mark.parametrize("name", KERNELS)
def test_parts_mean_the_same(name: str) -> None:
    kernel, sizes = KERNELS[name]
    want = arrays_of(Case(kernel, None, sizes))
    arrays = {buffer: array.copy() for buffer, array in want.items()}
    evaluate(kernel, want, sizes)
    for part in parts_of(kernel):
        verify_scopes(part)
        for made, array in arrays_of(Case(part, None, sizes)).items():
            arrays.setdefault(made, np.full_like(array, 77))
        evaluate(part, {b.name: arrays[b.name] for b in part.buffers}, sizes)
        between = set(part.outputs) - set(kernel.outputs)
        assert not any((arrays[b] == 77).any() for b in between), "read without a mask"
    for out in kernel.outputs:
        compare(out, arrays[out], want[out], 1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_each_part_has_a_schedule(name: str) -> None:
    for part in parts_of(KERNELS[name][0]):
        check(*default_schedule(part, TARGET))


def test_a_stream_is_cut_only_where_it_ends() -> None:
    halves = divided(attention(2, 5, 7, 3))
    streams = [any(v.reads(so_far=True) for v in half.values) for half in halves]
    assert sum(streams) == 1
