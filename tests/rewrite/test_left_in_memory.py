"""What kernels leave in memory is known to those that read it, of any region."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from luminal import ops, train
from luminal.backend import cpu
from luminal.graph.graph import Graph
from luminal.kernel.kernel import Apply


def gradients(length, width=8, heads=2, causal=True, **options):
    """Of attention, by queries, keys and values; and how to run them for a length."""
    graph = Graph()
    shape = (heads, length or "s", width)
    if length is None:
        graph.dim("s", 1, 64)
    given = [graph.tensor(shape) for _ in range(3)]
    mixed = ops.scaled_dot_product_attention(*given, is_causal=causal)
    made = train.backward(mixed.square().sum(), given)
    for each in made:
        each.output()
    rt = graph.compile(**{"threads": 1} | options)

    def run(n):
        rng = np.random.default_rng(n)
        for tensor in given:
            rt[tensor] = rng.standard_normal((heads, n, width)).astype(np.float32)
        rt.run()
        return [np.array(rt[tensor]) for tensor in given], [np.array(rt[each]) for each in made]

    return rt, run


def expected(q, k, v):
    """The same in f64, written out."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    score = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2])
    score = np.where(np.tril(np.ones(score.shape[1:], bool)), score, -np.inf)
    p = np.exp(score - score.max(2, keepdims=True))
    p /= p.sum(2, keepdims=True)
    out = 2 * (p @ v)
    dp = out @ v.swapaxes(1, 2)
    ds = p * (dp - (dp * p).sum(2, keepdims=True)) / np.sqrt(q.shape[2])
    return ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ out


def ended(rt):
    """Sums of products that end before all of what they read."""
    values = [v for made in rt.kernels for v in made.kernel.values if v.factors]
    return [v for v in values if {*v.domain} & {*v.over}]


def test_products_with_weights_that_are_zero_above_the_diagonal_end_there():
    rt, run = gradients(48)
    assert len(ended(rt)) >= 3  # of queries, keys, values; attention itself too
    assert not ended(gradients(48, causal=False)[0])
    given, found = run(48)
    for one, other in zip(found, expected(*given)):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 33, 64])
def test_they_end_at_the_diagonal_of_any_length(length):
    rt, run = gradients(None)
    assert len(ended(rt)) >= 3
    given, found = run(length)
    for one, other in zip(found, expected(*given)):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_what_is_computed_again_is_read_as_it_is():
    """`checkpoint` casts its inputs to their own dtype, which is no operation."""
    rt, _ = gradients(48)
    for made in rt.kernels:
        for e in (e for v in made.kernel.values for e in v.parts):
            assert not (isinstance(e, Apply) and e.op == "cast" and e.args[0].dtype is e.dtype)


def stepless(rt):
    """Sums that walk no step where two of the axes that they keep say so."""
    values = [v for made in rt.kernels for v in made.kernel.values if v.factors]
    ends = ((v, high) for v in values for _, high in v.domain.values() if high is not None)
    return [v for v, high in ends if len({*v.axes} & high.names()) == 2]


@pytest.mark.parametrize("length", [130, 200])
def test_scores_above_the_diagonal_are_not_computed(length, monkeypatch):
    """Wide vectors have other tiles, of which the shorter one leaves nothing out."""
    machines = sys.modules[cpu.host.__module__]
    narrow = replace(machines.host(), vector_bytes=32)
    monkeypatch.setattr(machines, "_host", lambda: narrow)
    rt, run = gradients(length, 16, cache=False)
    assert stepless(rt)
    given, found = run(length)
    for one, other in zip(found, expected(*given)):
        np.testing.assert_allclose(one, other, atol=5e-5)


def test_sums_of_rows_look_at_no_more_of_a_product():
    """Those of weights that are 0 above the diagonal, times the product."""
    graph, n = Graph(), 130
    o, v, w = (graph.tensor((2, n, size)) for size in (16, 16, n))
    weights, slopes = ops.tril(w), o @ v.mT
    out = ops.tril(w * (slopes - (weights * slopes).sum(-1, keepdim=True)))
    out.output()
    rt = graph.compile(threads=1, cache=False)
    assert stepless(rt)
    given = [np.random.default_rng(0).normal(size=s).astype(np.float32)
             for s in ((2, n, 16), (2, n, 16), (2, n, n))]  # fmt: skip
    found, slopes, lower = rt(*given), given[0] @ given[1].swapaxes(1, 2), np.tril(given[2])
    want = lower * (slopes - (lower * slopes).sum(-1, keepdims=True))
    np.testing.assert_allclose(found, want, atol=1e-4)


@pytest.mark.parametrize("precision, error", [("f32", 2e-5), ("bf16", 5e-2)])
def test_so_it_is_on_a_gpu(precision, error):
    """In bf16 a number is rounded before the loop over units begins."""
    rt, run = gradients(40, 16, device="cuda:sim", threads=None, precision=precision)
    assert len(ended(rt)) >= 3
    given, found = run(40)
    for one, other in zip(found, expected(*given)):
        np.testing.assert_allclose(one, other, atol=error)


@pytest.mark.parametrize("kept", [False, True])
def test_rows_that_are_written_into_a_triangle_are_read_whole(kept):
    """What is written into memory ends what was known of it."""
    graph, rng = Graph(), np.random.default_rng(0)
    shapes = (32, 32), (32, 32), (5, 32)
    x, w, rows = map(graph.tensor, shapes)
    at = np.array([0, 3, 7, 1, 20])
    lower = ops.tril((x @ x).exp())
    product = ops.index_put(lower, (graph.constant(at),), rows) @ w
    for each in (product, lower) if kept else (product,):
        each.output()
    rt = graph.compile(threads=1)
    given = [rng.normal(0, 0.2, shape).astype(np.float32) for shape in shapes]
    for tensor, array in zip((x, w, rows), given):
        rt[tensor] = array
    rt.run()
    whole = np.tril(np.exp(given[0] @ given[0]))
    whole[at] = given[2]
    np.testing.assert_allclose(rt[product], whole @ given[1], atol=1e-5)
