"""Gradients of attention a block of queries at a time, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from luminal import Graph, nn, ops
from luminal.train import attention, backward, jvp

torch.manual_seed(0)
CASES = {
    "causal": ((2, 3, 20, 4), (2, 3, 20, 4), {"is_causal": True}),
    "whole": ((2, 3, 16, 4), (2, 3, 10, 4), {"scale": 0.3}),
    "grouped": ((2, 6, 16, 4), (2, 2, 16, 4), {"is_causal": True, "enable_gqa": True}),
    "plain": ((27, 8), (27, 8), {"is_causal": True}),
}


def made(monkeypatch, query, key, options, free=False):
    """A loss of attention that is large, its inputs, and the same of PyTorch. free: the number of
    queries is one of run time."""
    for name, value in (("LONG", 1), ("LARGE", 1), ("BLOCK", 8)):
        monkeypatch.setattr(attention, name, value)
    cx, shapes = Graph(), (query, key, key)
    cx.dim("t", 1, 64, hint=16)
    inputs = [cx.tensor([*shape[:-2], "t" if free and shape[-2] == query[-2] else shape[-2],
                         shape[-1]]) for shape in shapes]  # fmt: skip
    given = [torch.randn(shape, requires_grad=True) for shape in shapes]
    ours = ops.scaled_dot_product_attention(*inputs, **options)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # has a second order
        theirs = F.scaled_dot_product_attention(*given, **options)
    return cx, inputs, given, (ours**2 * ours.cos()).sum(), (theirs**2 * theirs.cos()).sum()


def compared(cx, found, given, wanted):
    outputs = [x.output() for x in found]
    for device in ("reference", "cpu"):
        rt = cx.compile(device, threads=2, cache=False)
        rt(*(x.detach().numpy() for x in given))
        for mine, right in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(rt[mine], right.detach().numpy(), rtol=2e-4, atol=2e-5)
    return rt


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "sizes of run time"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(monkeypatch, name, free):
    cx, inputs, given, ours, theirs = made(monkeypatch, *CASES[name], free)
    found, wanted = backward(ours, inputs), torch.autograd.grad(theirs, given)
    rt = compared(cx, found, given, wanted)
    assert rt._report.plan.loops


@pytest.mark.parametrize("seen", [23, 17])
def test_causal_queries_behind_others(monkeypatch, seen):
    """Parts of them see more keys than come before them, up to all."""
    query, key = (2, 3, 20, 4), (2, 3, seen, 4)
    cx, inputs, given, *_ = made(monkeypatch, query, key, {})
    ours = ops.scaled_dot_product_attention(*inputs, is_causal=True, offset=3)
    mask = torch.ones(20, seen, dtype=torch.bool).tril(3)
    theirs = F.scaled_dot_product_attention(*given, mask)
    found = backward((ours * ours.cos()).sum(), inputs)
    wanted = torch.autograd.grad((theirs * theirs.cos()).sum(), given)
    compared(cx, found, given, wanted)


@pytest.mark.parametrize("summand", [False, True])
@pytest.mark.parametrize("shape", [(16, 10), (2, 1, 1, 10), (2, 3, 16, 10)])
def test_masks(monkeypatch, shape, summand):
    """Rows that see nothing pass no gradient. Summands that need none themselves are masks too."""
    mask = torch.rand(shape) < 0.4
    if shape[-2] > 1:
        mask[..., 3:5, :] = False
    if summand:
        mask = torch.randn(shape).masked_fill(~mask, float("-inf"))
    query, key, _ = CASES["whole"]
    cx, inputs, given, *_ = made(monkeypatch, query, key, {})
    seen = cx.tensor(shape, dtype="f32" if summand else "bool")
    ours = ops.scaled_dot_product_attention(*inputs, seen)
    theirs = F.scaled_dot_product_attention(*given, mask).nan_to_num(0.0)
    found = backward((ours * ours.cos()).sum(), inputs)
    wanted = torch.autograd.grad((theirs * theirs.cos()).sum(), given)
    compared(cx, found, [*given, mask], wanted)


def test_gradients_of_gradients_and_tangents(monkeypatch):
    cx, inputs, given, ours, theirs = made(monkeypatch, *CASES["causal"])
    first = backward(ours, inputs)
    right = torch.autograd.grad(theirs, given, create_graph=True)
    second = backward(sum(g.sin().sum() for g in first), inputs)
    wanted = torch.autograd.grad(sum(g.sin().sum() for g in right), given, retain_graph=True)
    tangent = sum((g * x).sum() for g, x in zip(right, given))
    along = sum((g * x.detach()).sum() for g, x in zip(right, given))
    curve = torch.autograd.grad(along, given)  # the Hessian times the inputs
    ahead = jvp([ours, *first], inputs, inputs)
    compared(cx, [*second, *ahead], given, [*wanted, tangent, *curve])


@pytest.mark.parametrize("hint", [None, (16, 1024)])
def test_lengths_known_at_run_time_are_taken_for_long_where_they_may_be(hint):
    cx = Graph()
    cx.dim("t", 1, 2048, hint=hint)
    inputs = [cx.tensor((1, 4, "t", 32)) for _ in range(3)]
    y = ops.scaled_dot_product_attention(*inputs, is_causal=True)
    for gradient in backward((y * y).sum(), inputs):
        gradient.output()
    rt = cx.compile(cache=False, threads=2)
    rt(*np.random.default_rng(0).standard_normal((3, 1, 4, 1024, 32)).astype("f"))
    assert rt.peak_bytes < 4 * 1024 * 1024 * 4  # of all scores


def test_padding_of_a_layer_keeps_no_scores():
    cx = Graph()
    x, padding = cx.tensor((2, 1024, 32)), cx.tensor((2, 1024), dtype="bool")
    layer = nn.MultiheadAttention(cx, 32, 4, batch_first=True)
    y, _ = layer(x, x, x, key_padding_mask=padding, need_weights=False)
    for gradient in backward((y * y).sum(), [x, *layer.parameters()]):
        gradient.output()
    rt = cx.compile(cache=False, threads=2)
    for w in layer.parameters():
        rt[w] = np.ones([int(n) for n in w.shape], np.float32)
    rt(np.zeros((2, 1024, 32), np.float32), np.zeros((2, 1024), bool))
    assert rt.peak_bytes < 2 * 4 * 1024 * 1024 * 4  # of all scores


def test_scores_of_many_places_are_never_in_memory():
    cx, shape = Graph(), (1, 4, 1024, 32)
    inputs = [cx.tensor(shape) for _ in range(3)]
    y = ops.scaled_dot_product_attention(*inputs, is_causal=True)
    for gradient in backward((y * y).sum(), inputs):
        gradient.output()
    rt = cx.compile(cache=False, threads=2)
    rt(*np.ones((3, *shape), np.float32))
    assert rt.peak_bytes < 4 * 1024 * 1024 * 4  # of all scores
