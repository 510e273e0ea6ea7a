"""Attention in one pass whose products go through registers of matrices (Intel AMX), in the
interpreter and, where the processor has them, for real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from default_cases import attention
from lower_cases import Case, arrays_of, compare, run_native
from oracles.program import interpret
from test_fragment_attention import narrow

from luminal import Graph, ops
from luminal.backend import devices
from luminal.backend.reference.kernels import evaluate
from luminal.graph.dtype import bf16
from luminal.kernel.kernel import Kernel
from luminal.lowering.legal import check
from luminal.lowering.lower import lower
from luminal.lowering.verify import instructions, verify
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

from .interpreted import Interpreted
from .test_tiles import AMX, HERE, products


def run(kernel: Kernel, sizes: dict[str, int]) -> None:
    """A product of each kind, and what the kernel means: behind the last key there are zeros."""
    (part,) = prepare(kernel, AMX)
    made, schedule = default_schedule(part, AMX)
    check(made, schedule)
    program = lower(made, schedule, AMX)
    verify(program)
    assert sum(s.op == "tdpbf16ps" for s in instructions(program.body)) >= 2
    want = arrays_of(Case(kernel, schedule, sizes))
    given = {n: a.copy() for n, a in want.items()}
    evaluate(kernel, want, sizes)
    got = {n: a.copy() for n, a in given.items()}
    interpret(program, got, sizes, 2, AMX.instructions)
    found = [got, run_native(program, given, sizes, AMX)] if HERE else [got]
    for each in found:
        compare("O", each["O"], want["O"], 1e-2)


@pytest.mark.parametrize("q, k, d, causal, groups", [
    (64, 128, 64, False, 1), (64, 128, 64, True, 1), (37, 70, 32, False, 1), (37, 37, 32, True, 1),
    (16, 5, 32, False, 1), (130, 131, 96, False, 1), (20, 33, 64, False, 2), (70, 65, 32, True, 2),
])  # fmt: skip
def test_all_products_are_of_matrices(q: int, k: int, d: int, causal: bool, groups: int) -> None:
    run(narrow(attention(2, q, k, d, causal, groups)), {})


@pytest.mark.parametrize("s", [1, 31, 64, 65, 96, 130])
@pytest.mark.parametrize("causal", [False, True])
def test_sizes_of_run_time(s: int, causal: bool) -> None:
    run(narrow(attention(2, "s", "s", 32, causal, sizes={"s": (1, 200)})), {"s": s})


@pytest.mark.parametrize("q, k, d", [(64, 64, 48), (4, 64, 64)])
def test_what_they_do_not_fit_is_left_to_vectors(q: int, k: int, d: int) -> None:
    (part,) = prepare(narrow(attention(2, q, k, d)), AMX)
    assert not products(lower(*default_schedule(part, AMX), AMX))


@pytest.mark.parametrize("result", ["bf16", "f32"])
def test_weights_are_rounded_where_all_else_is(
    monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    """As PyTorch does with operands of bf16; not where what comes of them is f32."""
    monkeypatch.setitem(devices._LOADERS, "interpreted", lambda: Interpreted("amx"))
    graph = Graph()
    given = [graph.tensor((2, 64, 64), "bf16") for _ in "qkv"]
    q, k, v = (t.cast("f32") for t in given)
    ops.scaled_dot_product_attention(q, k, v).cast(result).output()
    drawn = np.random.default_rng(0).standard_normal((3, 2, 64, 64), dtype=np.float32)
    feeds = drawn.astype(bf16.numpy)
    runs = [graph.compile(device="reference"), graph.compile("interpreted")]
    want, got = (np.asarray(each(*feeds), np.float32) for each in runs)
    bound = 2e-2 if result == "bf16" else 1e-5
    assert np.abs(got - want).max() < bound * np.abs(want).max()
    found = set[str]().union(*(products(k.program) for k in runs[1].kernels))
    assert found == ({"tdpbf16ps"} if result == "bf16" else set())


def test_rows_of_any_length_keep_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bf16 asked for: weights are rounded, too; nothing of queries x keys is in memory."""
    monkeypatch.setitem(devices._LOADERS, "interpreted", lambda: Interpreted("amx"))
    graph = Graph()
    shape: Any = (2, graph.dim("s", 1, 300, hint=256), 64)
    q, k, v = (graph.tensor(shape, name=name) for name in "qkv")
    ((q @ k.transpose(1, 2) / 8).softmax(-1) @ v).output()
    given = np.random.default_rng(0).standard_normal((3, 2, 75, 64), dtype=np.float32)
    runs = [graph.compile(device="reference"), graph.compile("interpreted", precision="bf16")]
    want, got = (each(*given) for each in runs)
    assert np.abs(got - want).max() < 2e-2 * np.abs(want).max()
    stream = next(k for k in runs[1].kernels if any(v.rescale for v in k.kernel.values))
    assert "tdpbf16ps" in products(stream.program)
    assert all(len(b.shape) < 4 and b.shape[-1] == 64 for b in stream.kernel.buffers)
