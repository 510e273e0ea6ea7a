"""Who gets the gradient where several elements are equal: as PyTorch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from luminal import Graph, ops, train

from .test_gradients import Derivatives, draw, of_torch

WITH_TIES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "max": (lambda x, y: x.maximum(y), [[1, 2, 3], [1, 0, 3]]),
    "max of": (lambda x: x.amax(1), [[[1, 3, 3], [2, 2, 2]]]),
    "min of": (lambda x: x.amin((0, 1)), [[[1, 3, 1], [2, 2, 1]]]),
    "relu": (lambda x: x.relu(), [[-1, 0, 2]]),
    "clamp": (lambda x: x.clamp(0, 2) * x.clamp(min=-1), [[-1, 0, 1, 2, 3]]),
    "clamp and relu": (lambda x: x.clamp(min=0) + x.relu() * 3, [[-1, 0, 1]]),
    "abs": (lambda x: x.abs(), [[-1, 0, 2]]),
    "cummax": (lambda x: x.cummax(0).values, [[1, 3, 3, 2, 3, 4]]),
    "cummin": (lambda x: x.cummin(0).values, [[4, 3, 3, 2, 3, 4]]),
    "prod": (lambda x: x.prod(1), [[[2, 0, 3], [0, 0, 4], [2, 3, 4]]]),
    "pow of whole numbers": (lambda x, y: x**y, [[2, 3, 0, 5, 0], [3, 2, 2, 0, 0]]),
    "cumprod": (lambda x: x.cumprod(1), [[[2, 0, 3, 5], [0, 2, 0, 4], [2, 3, 4, 5]]]),
    "max along": (lambda x: x.max(1)[0], [[[1, 3, 3], [2, 2, 2]]]),
    "min along": (lambda x: x.min(0, keepdim=True)[0] + x.amin(0), [[[1, 3], [1, 2]]]),
    "median": (lambda x: x.median() * x.median(0)[0], [[1, 1, 2, 1, 2, 2]]),
    "nanmedian": (lambda x: x.nanmedian() * x.nanmedian(0)[0], [[1, 1, 2, 1, 2, 2]]),
    "mode": (lambda x: x.mode(1)[0], [[[1, 3, 3], [2, 2, 2], [3, 1, 2]]]),
    "mode kept": (lambda x: x.mode(0, True)[0], [[[1, 3], [1, 2]]]),
    "clamp_min": (lambda x, y: x.clamp_min(0) * x.clamp_min(y), [[-1, 0, 1], [0, 0, 1]]),
    "clamp_max": (lambda x, y: x.clamp_max(0) * x.clamp_max(y), [[-1, 0, 1], [0, 0, 1]]),
    "clamp of tensors": (
        lambda x, a, b: x.clamp(a, b), [[[-1, 0, 1], [2, 3, 4]], [0, 0, 3], [[2], [2]]],
    ),
}
POOLS = {  # of (batch, channels, 6, 9) whole numbers
    "apart": lambda m, x: m.max_pool2d(x, 2),
    "overlapping": lambda m, x: m.max_pool2d(x, 3, 2, 1),
    "with indices": lambda m, x: m.max_pool2d(x, 3, 2, 1, return_indices=True)[0],
    "beyond": lambda m, x: m.max_pool2d(x, 2, 3, 0, 2, ceil_mode=True),
    "of one": lambda m, x: m.max_pool1d(x[0], 4),
    "of three": lambda m, x: m.max_pool3d(x, 2),
    "adaptive": lambda m, x: m.adaptive_max_pool2d(x, (2, 3)),
    "adaptive, uneven": lambda m, x: m.adaptive_max_pool2d(x, (None, 4)),
    "adaptive, of one": lambda m, x: m.adaptive_max_pool1d(x[0], 2),
}


@pytest.mark.parametrize("name", WITH_TIES)
def test_ties_and_zeros_as_pytorch_has_them(name: str) -> None:
    function, values = WITH_TIES[name]
    arrays = [np.array(v, np.float64) for v in values]
    d = Derivatives(function, arrays)
    (weight,) = draw([tuple(d.y.shape)], 2)
    along = draw([a.shape for a in arrays], 5)
    feeds = (d.inputs, arrays), (d.along, along), ([d.weight], [weight])
    tangent, *gradients = d.values([d.tangent, *d.gradients], *feeds)
    for mine, theirs in zip(gradients, of_torch(function, arrays, weight)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    pulled = sum((g * v).sum() for g, v in zip(gradients, along))
    np.testing.assert_allclose(pulled, (weight * tangent).sum(), rtol=1e-9)


@pytest.mark.parametrize("name", POOLS)
def test_all_goes_to_the_first_maximum_of_a_window(name: str) -> None:
    x = draw([(2, 3, 6, 9)])[0].round().astype(np.float32)
    leaf = torch.tensor(x, requires_grad=True)
    y = POOLS[name](torch.nn.functional, leaf)
    (weight,) = draw([tuple(y.shape)], 1)
    weight = weight.astype(np.float32)
    (y * torch.tensor(weight)).sum().backward()
    cx = Graph()
    source, tangent = cx.tensor(x.shape), cx.tensor(x.shape)
    y = POOLS[name](ops, source)
    slope = train.backward((y * cx.constant(weight)).sum(), [source])[0].output()
    pushed = (train.jvp([y], [source], [tangent])[0] * cx.constant(weight)).sum().output()
    rt = cx.compile(threads=1)
    rt[source], rt[tangent] = x, x
    rt.run()
    np.testing.assert_allclose(rt[slope], leaf.grad, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rt[pushed], (leaf.grad.numpy() * x).sum(), rtol=1e-4, atol=1e-4)
