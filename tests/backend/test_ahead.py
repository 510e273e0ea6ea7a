"""Kernels are built while others are lowered."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from luminal import CompileError, Graph, ops
from luminal.backend import cpu


def attention(graph: Graph) -> None:
    """Of several kernels, one with tiles in the workspace."""
    query, key = (graph.tensor((2, 96, 64), name=name) for name in ("query", "key"))
    ops.matmul(ops.softmax(ops.matmul(query, key.mT), -1), key).sin().output("out")


def test_each_kernel_is_built_once_and_garbage_is_collected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[str] = []

    def build(given: Any, target: Any) -> Any:
        texts.extend(given)
        return original(given, target)

    original = cpu.build
    monkeypatch.setattr(cpu, "build", build)
    graph = Graph()
    attention(graph)
    program = graph.compile(threads=2, cache=False)
    assert len(texts) == len(set(texts)) == len(program.kernels) and gc.isenabled()
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 2, 96, 64), dtype=np.float32)
    scores = query @ key.swapaxes(1, 2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.sin(shares / shares.sum(-1, keepdims=True) @ key)
    assert np.abs(program(query, key) - expected).max() < 1e-4


def test_what_llvm_refuses_is_told_where_the_program_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(given: Any, target: Any) -> Any:
        raise CompileError("LLVM refused")

    monkeypatch.setattr(cpu, "build", build)
    graph = Graph()
    attention(graph)
    with pytest.raises(CompileError, match="LLVM refused"):
        graph.compile(cache=False)
