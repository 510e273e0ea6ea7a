"""Attention by matrices on `device="cuda:sim"`, which looks for races, beside NumPy."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from luminal import ops
from luminal.backend import devices
from luminal.backend.cuda import gpu, nvrtc
from luminal.backend.cuda.matrices import instructions_of
from luminal.backend.cuda.simulator import CUDA, Simulator, found_compiler
from luminal.backend.loops import verify_loops
from luminal.errors import VerifyError
from luminal.graph import Graph
from luminal.graph.dtype import DType, bf16, f16, f32, i64
from luminal.kernel.program import Instruction, Val
from luminal.scheduling.decisions import Decisions
from luminal.scheduling.default import default_schedule

from .test_cuda_staged import rewritten

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")


def wanted(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """(heads, queries, width) and (kv heads, keys, width) -> (heads, queries, width), in f64."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, len(q) // len(k), 0) for array in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: np.ndarray = weights / weights.sum(-1, keepdims=True) @ v
    return found


def attention(size: int, dtype: DType = bf16) -> Graph:
    """Of 16 heads, causal, 128 wide."""
    graph = Graph()
    q, k, v = (graph.tensor((16, size, 128), dtype) for _ in range(3))
    ops.scaled_dot_product_attention(q, k, v, is_causal=True).output()
    return graph


@pytest.mark.parametrize("arch, heads, kv_heads, width, causal, dtype, sizes", [
    ("sm_90a", 4, 2, 64, True, bf16, [(270, 270), (1, 1), (17, 17)]),
    ("sm_80", 4, 2, 64, True, bf16, [(270, 270), (1, 1)]),
    ("sm_90a", 2, 2, 128, False, bf16, [(65, 400), (3, 64)]),
    ("sm_90a", 1, 1, 80, False, f32, [(100, 37)]),
    ("sm_80", 2, 1, 128, True, f16, [(65, 65)]),
])  # fmt: skip
def test_attention(
    arch: str, heads: int, kv_heads: int, width: int, causal: bool, dtype: DType,
    sizes: list[tuple[int, int]],
) -> None:  # fmt: skip
    like = replace(CUDA, target=replace(CUDA.target, instructions=instructions_of(arch)))
    devices.register("cuda races", lambda: Simulator(races=True, language=like))
    graph, rng = Graph(), np.random.default_rng(0)
    graph.dim("s", 1, 512)
    graph.dim("t", 1, 512)
    shapes = ((heads, "s"), (kv_heads, "t"), (kv_heads, "t"))
    given = [graph.tensor((n, size, width), dtype) for n, size in shapes]
    q, k, v = (x.cast(f32) for x in given)
    y = ops.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).output()
    rt = graph.compile("cuda races", precision="bf16", cache=False)
    assert any("mma_" in text for text in rt.sources().values())
    assert arch == "sm_90a" or not any("wgmma_" in text for text in rt.sources().values())
    staged = any(tile.turns for kernel in rt.kernels for tile in kernel.program.tiles)
    assert staged is (width % 64 == 0 and dtype is bf16)  # keys and values are copied ahead
    for queries, keys in sizes:
        arrays = []
        for x, (n, _), count in zip(given, shapes, (queries, keys, keys)):
            arrays.append(rng.standard_normal((n, count, width)).astype(dtype.numpy))
            rt[x] = arrays[-1]
        rt.run(s=queries, t=keys)
        error = np.abs(rt[y] - wanted(*arrays, causal)).max()
        assert error < 2**-6, error  # factors have 8 bits


@pytest.mark.parametrize("fault", [None, "await", "barrier", "mod", "mma_bf16_rows_1"])
def test_tiles_of_a_stream_are_verified(fault: str | None) -> None:
    """No wait, no barriers, one part of a tile for all turns, or sums that nobody finishes."""
    rt = attention(512).compile("cuda:sm_80", precision="bf16", cache=False)
    (kernel,) = rt.kernels
    zero, (turns,) = Val("0", i64, literal=True), {tile.turns for tile in kernel.program.tiles}

    def change(s: Instruction) -> list[Instruction]:
        if s.op != fault or (fault == "mod" and s.args[1].name != str(turns)):
            return [s]
        if fault and fault.startswith("mma"):
            return [replace(s, attrs=(1,))]
        return [replace(s, args=(zero, s.args[1]))] if fault == "mod" else []

    changed = replace(kernel.program, body=list(rewritten(kernel.program.body, change)))
    with pytest.raises(VerifyError) if fault else nullcontext():
        verify_loops(changed)


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_spills_nothing(arch: str) -> None:
    rt = attention(4096).compile(f"cuda:{arch}", precision="bf16", cache=False)
    (found,) = gpu.Cuda(arch).resources(list(rt.sources().values()))
    assert found["spilled"] == 0 and found["registers"] <= 255


def test_a_search_has_the_loads_without_tiles() -> None:
    """Among its choices are fewer stages, and none."""
    kernel = attention(4096).compile("cuda:sm_90a", precision="bf16", cache=False).kernels[0]
    target, decisions = gpu.Cuda("sm_90a").target(1), Decisions({"stages": 0})
    _, schedule = default_schedule(kernel.kernel, target, decisions)
    assert schedule.stages == 0 and 2 in decisions.made["stages"].options
