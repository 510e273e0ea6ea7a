"""Windows with strides and dilations that are no multiples of each other, over padded images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from luminal import Graph, ops
from luminal.train import backward

torch.manual_seed(0)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("wide, padding", [(2, 1), (3, 1), (4, 2)])
def test_against_torch(stride, dilation, wide, padding):
    given = torch.randn(1, 3, 16, 17), torch.randn(2, 3, wide, wide)
    cx = Graph()
    x, w = (cx.tensor(tuple(t.shape)) for t in given)
    where = stride, padding, dilation
    made = [ops.conv2d(x, w, None, *where), ops.max_pool2d(x, wide, *where)]
    made += backward((made[0] ** 2).sum(), [x, w])
    image, weight = (t.clone().requires_grad_() for t in given)
    wanted = [F.conv2d(image, weight, None, *where), F.max_pool2d(image, wide, *where)]
    wanted += torch.autograd.grad((wanted[0] ** 2).sum(), [image, weight])
    for result in made:
        result.output()
    rt = cx.compile(threads=1, cache=False)
    rt(*(t.numpy() for t in given))
    for mine, right in zip(made, wanted, strict=True):
        np.testing.assert_allclose(rt[mine], right.detach(), rtol=1e-4, atol=1e-3)


def test_rows_that_end_within_a_window():
    """How far a window goes depends on its place in two ways, so only a place says it."""
    cx = Graph()
    cx.tensor((4, 7)).pad([(0, 0), (1, 1)], 0.0).windows([1], (2,), (3,), (2,)).sum(-1).output()
    x = np.arange(1.0, 29, dtype=np.float32).reshape(4, 7)
    first, third = np.pad(x, [(0, 0), (1, 0)])[:, 0:7:3], np.pad(x, [(0, 0), (1, 1)])[:, 2:9:3]
    np.testing.assert_array_equal(cx.compile(threads=1, cache=False)(x), first + third)
