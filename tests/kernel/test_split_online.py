"""Online reductions in parts: attention of few rows over many keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal
from luminal import ops
from luminal.backend.cuda.shape import group_target
from luminal.backend.reference.kernels import evaluate
from luminal.graph import Graph, Tensor
from luminal.kernel.kernel import Buffer, Kernel
from luminal.scheduling import split
from luminal.scheduling.prepare import prepare

HEADS, DEEP, MOST = 2, 8, 100
SPELLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "attention": lambda s, v, mask: ops.matmul(ops.softmax(s, 2), v),
    "masked": lambda s, v, mask: ops.matmul(ops.softmax(ops.where(mask, s, -np.inf), 2), v),
    "softmin": lambda s, v, mask: ops.matmul(ops.softmax(-s, 2), v),
}


def recorded(name: str) -> tuple[Graph, list[Tensor], Tensor]:
    cx = luminal.Graph()
    n = cx.dim("n", 1, MOST, hint=64)
    q = cx.tensor((HEADS, 1, DEEP), name="q")
    k, v = (cx.tensor((HEADS, n, DEEP), name=name) for name in "kv")
    mask = cx.tensor((HEADS, 1, n), "bool", name="mask")
    y = SPELLINGS[name](q @ k.transpose(1, 2), v, mask).output("y")
    return cx, [q, k, v], y


def attention(name: str) -> Kernel:
    cx, _, _ = recorded(name)
    rt = cx.compile(device="cuda:sm_90a", cache=False, database=False)
    (made,) = rt.report.kernels
    return made.kernel


@pytest.mark.parametrize("name", SPELLINGS)
def test_parts_come_to_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = attention(name)
    monkeypatch.setattr(split, "LEAST_WORK", 1)
    first, second = prepare(kernel, group_target(132))
    for n in (1, 2, 31, 33, 64, MOST):
        rng = np.random.default_rng(n)
        arrays = {b.name: _filled(rng, b, n) for b in kernel.buffers}
        want, got = ({name: a.copy() for name, a in arrays.items()} for _ in range(2))
        evaluate(kernel, want, {"n": n})
        for part in (first, second):
            for b in part.buffers:
                shape = [int(d.evaluate({"n": n})) for d in b.shape]
                got.setdefault(b.name, np.full(shape, np.nan, b.dtype.numpy))
            evaluate(part, got, {"n": n})
        for out in kernel.outputs:
            np.testing.assert_allclose(got[out], want[out], rtol=2e-5, atol=1e-6)


def _filled(rng: np.random.Generator, buffer: Buffer, n: int) -> np.ndarray:
    shape = [int(d.evaluate({"n": n})) for d in buffer.shape]
    if buffer.dtype.kind == "bool":
        mask = rng.random(shape) < 0.3
        mask[..., : n // 2] = False  # whole parts in which nothing counts
        mask[..., -1] = True
        return mask
    return rng.standard_normal(shape).astype(np.float32) * 3


def test_it_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST_WORK", 1)
    cx, inputs, y = recorded("attention")
    rt = cx.compile(device="cuda:sim", cache=False, database=False)
    assert len(rt.report.kernels) == 2
    for n in (1, 7, 64):
        rng = np.random.default_rng(n)
        q, k, v = (rng.standard_normal((HEADS, m, DEEP)).astype(np.float32) for m in (1, n, n))
        for tensor, array in zip(inputs, (q, k, v)):
            rt[tensor] = array
        rt.run()
        s = q @ k.transpose(0, 2, 1)
        e = np.exp(s - s.max(-1, keepdims=True))
        wanted = e / e.sum(-1, keepdims=True) @ v
        np.testing.assert_allclose(rt[y], wanted, rtol=1e-4, atol=1e-5)


def test_enough_rows_stay_one_kernel() -> None:
    kernel = attention("attention")
    assert len(prepare(kernel, group_target(132))) == 1


def test_factors_see_the_maximum_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are walked inside the loop over keys, and maxima are kept in memory of their own."""
    monkeypatch.setattr(split, "LEAST_WORK", 1)
    monkeypatch.setattr(split, "ONLINE", 128)
    cx = luminal.Graph()
    q, v = cx.tensor((6, 5)), cx.tensor((6, 5))
    y = ops.softmax(q @ q.T, 1).matmul(v).output()
    rng = np.random.default_rng(0)
    given = {x: rng.standard_normal((6, 5)).astype(np.float32) for x in (q, v)}
    found = []
    for device in ("cuda:sim", "reference"):
        rt = cx.compile(device=device, cache=False, database=False)
        for x, array in given.items():
            rt[x] = array
        rt.run()
        found.append(np.array(rt[y]))
    np.testing.assert_allclose(*found, rtol=1e-5)
