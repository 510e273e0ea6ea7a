"""Every operation beside PyTorch's: (name, ours, theirs, inputs), run by every backend.

`run_case(case, runner)` records the case and compares; a runner computes all outputs
as one program: `(graph, output tensors, {tensor: array}) -> arrays`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from luminal.graph import Graph, Tensor

Runner = Callable[[Graph, Sequence[Tensor], dict[Tensor, np.ndarray]], list[np.ndarray]]
CASES: list[Case] = []
TOLERANCE = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}
TORCH = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}


@dataclass(frozen=True)
class Case:
    """One comparison. `scale`: how many times the dtype's tolerance is allowed, relative to the
    element and (as `floor`) to 1."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    scale: float = 1.0
    floor: float = 1.0


def case(
    name: str, ours: Any, theirs: Any, *inputs: np.ndarray, scale: float = 1.0, floor: float = 1.0
) -> None:
    """Add one case."""
    CASES.append(Case(name, ours, theirs, inputs, scale, floor))


# ---- inputs

BF16 = ml_dtypes.bfloat16
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    1e-30,
    -1e-7,
    3e38,
    -88.5,
    20.0,
    np.inf,
    -np.inf,
    np.nan,
]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return (np.abs(normal(*shape, dtype=np.float64, seed=seed)) + 0.1).astype(dtype)


def unit(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 7).uniform(0.01, 0.99, shape).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(high + sum(shape)).integers(low, high, shape).astype(dtype)


def booleans(*shape: int) -> np.ndarray:
    return integers(*shape, low=0, high=2).astype(bool)


def special(dtype: Any = np.float32) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(SPECIAL, np.float64).astype(dtype)


def pairs(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Every special value with every other."""
    values = special(dtype)
    first, second = np.meshgrid(values, values, indexing="ij")
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


# ---- running


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == BF16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def from_torch(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.float().numpy().astype(BF16)
    return np.asarray(tensor.resolve_conj().numpy())


def run_case(case: Case, runner: Runner) -> None:
    """Record, run, compare dtype, shape and values with PyTorch's."""
    graph = Graph()
    tensors = [graph.tensor(a.shape, a.dtype, f"x{i}") for i, a in enumerate(case.inputs)]
    results = case.ours(*tensors)
    expected = case.theirs(*map(to_torch, case.inputs))
    results = results if isinstance(results, (tuple, list)) else (results,)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(results) == len(expected)
    feeds = dict(zip(tensors, case.inputs))
    for got, ours, theirs in zip(runner(graph, results, feeds), results, expected, strict=True):
        assert ours.dtype.name == TORCH[theirs.dtype], case.name
        wanted = from_torch(theirs)
        assert got.shape == wanted.shape, case.name
        compare(got, wanted, case)


def compare(got: np.ndarray, wanted: np.ndarray, case: Case) -> None:
    name = (
        "bf16"
        if wanted.dtype == BF16
        else {"f8": "f64", "f4": "f32", "f2": "f16"}.get(wanted.dtype.str[1:])
    )
    if name is None:
        np.testing.assert_array_equal(got, wanted, case.name)
        return
    tolerance = TOLERANCE[name] * case.scale
    np.testing.assert_allclose(
        got.astype(np.float64),
        wanted.astype(np.float64),
        rtol=tolerance,
        atol=tolerance * case.floor,
        err_msg=case.name,
    )
