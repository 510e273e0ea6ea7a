"""Subnormal floats are numbers like others, or zeros where a program is compiled so."""

from __future__ import annotations

import numpy as np
import pytest

import luminal
from luminal.backend.cpu.target import host_machine

SMALL = np.float32([1e-40, -3e-39, 1.2e-38, 1.0])  # of these the third one is normal


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flush", [False, True])
def test_operands_and_results(flush: bool, threads: int) -> None:
    cx = luminal.Graph()
    x = cx.tensor(4, name="x")
    cast = (x * 2.0).output("twice"), (x * 0.5).output("half")
    rt = cx.compile(threads=threads, flush_denormals=flush, cache=False, database=False)
    twice, half = rt(SMALL)
    flushes = flush and host_machine().is_x86
    kept = np.array([not flushes, not flushes, True, True])
    assert np.array_equal(twice, np.where(kept, SMALL * np.float32(2), 0)) and len(cast) == 2
    kept[2] = not flushes
    assert np.array_equal(half, np.where(kept, SMALL * np.float32(0.5), 0))
    assert SMALL[0] * np.float32(2) > 0, "whoever calls computes as before"


def test_models_of_others_flush_them() -> None:
    cx = luminal.Graph()
    (cx.tensor(4, name="x") * 2.0).output("y")
    model = luminal.onnx.export(cx)
    zeros = host_machine().is_x86
    for flush, options in ((zeros, {}), (False, {"flush_denormals": False})):
        (y,) = luminal.onnx.load(model, **options).run({"x": SMALL})
        assert (y[0] == 0) == flush
