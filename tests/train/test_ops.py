"""The gradients of all operations: those of the cases of their own tests, in f64, are PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from ops.all_cases import CASES, Case
from ops.cases import to_torch

from luminal import Graph, train
from luminal.backend.reference.graph import evaluate

EXCEPT = (
    "logit small",  # 0 or a slope beyond its limits, where PyTorch has NaN
)


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if is_float(array) else array


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def check(case: Case) -> bool:
    """False where there is no gradient."""
    arrays = [wide(array) for array in case.inputs]
    floats = [n for n, array in enumerate(arrays) if is_float(array)]
    if not floats or not all(np.isfinite(arrays[n]).all() for n in floats):
        return False
    leaves = [to_torch(array).requires_grad_(n in floats) for n, array in enumerate(arrays)]
    try:
        theirs = listed(case.theirs(*leaves))
        used = [n for n, y in enumerate(theirs) if y.is_floating_point() and y.requires_grad]
        random = np.random.default_rng(0)
        weights = [random.standard_normal(tuple(theirs[n].shape)) for n in used]
        pairs = zip(used, map(torch.tensor, weights))
        torch.stack([(theirs[n].double() * w).sum() for n, w in pairs]).sum().backward()
    except RuntimeError:  # PyTorch has no gradient
        return False
    graph = Graph()
    inputs = [graph.tensor(array.shape, array.dtype) for array in arrays]
    mine = listed(case.ours(*inputs))
    made = train.vjp(
        [mine[n] for n in used],
        [graph.constant(w).cast(mine[n].dtype) for n, w in zip(used, weights)],
        [inputs[n] for n in floats],
    )
    with np.errstate(all="ignore"):
        values = evaluate(graph, [g.node for g in made], dict(zip(inputs, arrays)))
    for n, gradient in zip(floats, made):
        known = leaves[n].grad
        wanted = np.zeros(arrays[n].shape) if known is None else known.numpy()
        np.testing.assert_allclose(values[gradient.node], wanted, 1e-6, 1e-8, err_msg=case.name)
    return True


@pytest.mark.parametrize("part", range(4))
def test_operations(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [check(case) for case in CASES[part::4] if case.name not in EXCEPT]
    assert sum(found) > 150
