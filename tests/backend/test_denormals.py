"""Subnormal floats are numbers like others, or zeros where a program is compiled so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal
import luminal.onnx
from luminal import ops
from luminal.backend.cpu.target import host_machine
from luminal.saved import check_saved

SMALL = np.float32([1e-40, -3e-39, 1.2e-38, 1.0])  # of these the third one is normal


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flush", [False, True])
def test_operands_and_results(flush: bool, threads: int) -> None:
    cx = luminal.Graph()
    x = cx.tensor(4, name="x")
    (x * 2.0).output("twice"), (x * 0.5).output("half")
    rt = cx.compile(threads=threads, flush_denormals=flush, cache=False, database=False)
    twice, half = rt(SMALL)
    flushes = flush and host_machine().is_x86
    kept = np.array([not flushes, not flushes, True, True])
    assert np.array_equal(twice, np.where(kept, SMALL * np.float32(2), 0))
    kept[2] = not flushes
    assert np.array_equal(half, np.where(kept, SMALL * np.float32(0.5), 0))
    assert SMALL[0] * np.float32(2) > 0, "whoever calls computes as before"


@pytest.mark.parametrize("options", [{"check": True}, {"search": 2}], ids=str)
def test_what_is_compared_with_numpy_keeps_them(options: dict[str, Any]) -> None:
    """An infinity times a subnormal number is none, times zero it is NaN."""
    cx = luminal.Graph()
    x = cx.tensor((64, 64), name="x")
    (ops.softmax(x * 2.0 - 1.0, 1) @ x).output("y")
    model = luminal.onnx.load(luminal.onnx.export(cx), threads=1, cache=False, database=False,
                              **options)  # fmt: skip
    given = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    weights = np.exp(2 * given) / np.exp(2 * given).sum(1, keepdims=True)
    np.testing.assert_allclose(model.run([given])[0], weights @ given, 1e-4, 1e-5)


def test_checks_of_what_was_compiled_so_find_no_fault(tmp_path: Path) -> None:
    cx = luminal.Graph()
    x = cx.tensor((64, 64), name="x")
    (ops.softmax(x * 2.0 - 1.0, 1) @ x).output("y")
    rt = cx.compile(threads=1, flush_denormals=True, cache=False, database=False)
    assert not rt.check()
    rt.save(tmp_path / "model.luminal")
    assert not check_saved(tmp_path / "model.luminal")


def test_the_texts_of_kernels_are_those_that_run() -> None:
    cx = luminal.Graph()
    (cx.tensor(4, name="x") * 2.0).output("y")
    for flush in (False, True):
        rt = cx.compile(flush_denormals=flush, cache=False, database=False)
        flushes = flush and host_machine().is_x86
        seen = rt.inspected()
        assert seen is not None
        texts = [*rt.sources().values(), seen.listing(0)["IR"]]
        assert all(("ldmxcsr" in text) == flushes for text in texts)


def test_models_of_others_flush_them() -> None:
    cx = luminal.Graph()
    (cx.tensor(4, name="x") * 2.0).output("y")
    model = luminal.onnx.export(cx)
    zeros = host_machine().is_x86
    for flush, options in ((zeros, {}), (False, {"flush_denormals": False})):
        (y,) = luminal.onnx.load(model, **options).run({"x": SMALL})
        assert (y[0] == 0) == flush
