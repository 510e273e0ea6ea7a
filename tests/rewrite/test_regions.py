"""Where programs are cut, and that equal pieces are found to be equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from meaning import check
from oracles.terms import run_regions
from programs import programs

from luminal import ops, train
from luminal.backend import reference
from luminal.graph.graph import Graph
from luminal.graph.passes import program_of, run_passes
from luminal.precision import default_passes
from luminal.rewrite.cuts import cuts_of, facts_of
from luminal.rewrite.normalise import normalise
from luminal.rewrite.optimise import optimise
from luminal.rewrite.regions import MAX_AXES, MAX_TERMS, PLAIN, regions


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(steps=10))
def test_regions_mean_what_the_graph_means(program):
    graph, outputs, feeds = program
    expected = reference.evaluate(graph, outputs, feeds)
    normal = normalise(graph.space, outputs)
    found = run_regions(normal, regions(normal), feeds)
    for node in outputs:
        np.testing.assert_array_equal(found[node], expected[node])


def encoder_layer(graph, x, mask, width, heads):
    """A post-norm transformer layer, as in BERT."""
    batch, length, _ = x.shape

    def linear(t, n):
        return ops.linear(t, graph.parameter((n, t.shape[-1])), graph.parameter((n,)))

    def split(t):
        return t.reshape(batch, length, heads, width // heads).permute(0, 2, 1, 3)

    q, k, v = (split(linear(x, width)) for _ in range(3))
    out = ops.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    out = linear(out.permute(0, 2, 1, 3).reshape(batch, length, width), width)
    x = ops.layer_norm(out + x, width, graph.parameter((width,)), graph.parameter((width,)))
    out = linear(ops.gelu(linear(x, 2 * width)), width)
    return ops.layer_norm(out + x, width, graph.parameter((width,)), graph.parameter((width,)))


def test_channels_of_heads_lie_inside_of_the_heads():
    """Whatever reads them: those of keys are not summed with constants, as heads are."""
    graph = Graph()
    x = graph.tensor((1, 128, 64))
    for _ in range(2):
        x = encoder_layer(graph, x, None, 64, 4)
    x.output()
    program = run_passes(program_of(graph), default_passes("bf16"))
    normal = normalise(graph.space, list(program.roots))
    regions(normal)
    shapes = [list(map(str, b.shape)) for b in normal.buffers if b.kind == "temporary"]
    several = [shape for shape in shapes if {"4", "16"} <= {*shape}]
    assert several and all(shape.index("4") < shape.index("16") for shape in several)


def encoder(layers):
    graph = Graph()
    graph.dim("b", 1, 8)
    graph.dim("s", 1, 64)
    ids = graph.tensor(("b", "s"), dtype="i64")
    mask = graph.tensor(("b", "s"), dtype="bool").unsqueeze(1).unsqueeze(1)
    table = graph.parameter((10, 16))
    x = ops.layer_norm(ops.embedding(ids, table), 16)
    for _ in range(layers):
        x = encoder_layer(graph, x, mask, 16, 4)
    return graph, x


def test_equal_layers_are_equal_regions():
    graph, x = encoder(6)
    _, pieces = check(graph, [x], {"b": 2, "s": 5}, tolerance=1e-3)
    assert len(pieces) == 14  # the rows that the mask leaves blind: once for all layers
    assert len({piece.key for piece in pieces}) == 4


def test_depth_adds_no_distinct_region():
    keys = []
    for layers in (2, 5):
        graph, x = encoder(layers)
        pieces = regions(normalise(graph.space, [x.node]))
        keys.append({piece.key for piece in pieces})
    assert keys[0] == keys[1]


def test_equal_regions_share_terms_but_not_buffers():
    graph, x = encoder(2)
    pieces = regions(normalise(graph.space, [x.node]))
    first, second = pieces[-3], pieces[-1]
    assert first.key == second.key and first.terms is second.terms
    assert set(first.outputs).isdisjoint(second.outputs)


def test_a_key_tells_extents_dtypes_and_constness_apart():
    def key(size, dtype, kind):
        graph = Graph()
        x, w = graph.tensor((4, size), dtype=dtype), getattr(graph, kind)((size,), dtype=dtype)
        (piece,) = regions(normalise(graph.space, [(x * w.expand(4, size)).node]))
        return piece.key

    base = key(8, "f32", "tensor")
    assert base == key(8, "f32", "tensor")
    others = [key(9, "f32", "tensor"), key(8, "f64", "tensor"), key(8, "f32", "parameter")]
    assert base not in others


def test_softmax_and_norms_are_one_region():
    graph = Graph()
    x = graph.tensor((8, 64))
    for out in (ops.softmax(x, -1), ops.layer_norm(x, 64), ops.rms_norm(x, 64)):
        _, pieces = check(graph, [out])
        assert len(pieces) == 1


def test_a_norm_before_one_layer_is_not_cut_off():
    graph = Graph()
    x, w = graph.tensor((8, 64)), graph.parameter((64, 32))
    _, pieces = check(graph, [ops.matmul(ops.rms_norm(x, 64), w)], tolerance=1e-4)
    assert len(pieces) == 1


def test_an_operand_of_several_layers_is_stored_once():
    graph = Graph()
    x = graph.tensor((8, 64))
    h = ops.rms_norm(x, 64)
    out = sum((ops.matmul(h, graph.parameter((64, 32))) for _ in range(2)), ops.zeros(graph, 1))
    normal, pieces = check(graph, [out], tolerance=1e-4)
    assert len(pieces) == 2
    assert [normal.buffers[n].kind for n in pieces[0].outputs] == ["temporary"]


def test_a_rotated_product_is_stored_and_a_gated_one_is_not():
    graph = Graph()
    graph.dim("s", 1, 16)
    product = ops.matmul(graph.tensor(("s", 64)), graph.parameter((64, 32)))
    angle = graph.tensor(("s", 16))
    a, b = product[:, :16], product[:, 16:]
    rotated = ops.cat([a * angle - b, b * angle + a], 1)
    normal, pieces = check(graph, [rotated], {"s": 3}, tolerance=1e-4)
    assert len(pieces) == 2 and normal.buffers[-1].kind == "temporary"
    _, pieces = check(graph, [ops.silu(a) * b], {"s": 3}, tolerance=1e-4)
    assert len(pieces) == 1


def test_the_parts_of_a_concatenation_are_stored_not_the_whole():
    graph = Graph()
    x, w = graph.tensor((2, 4, 8, 8)), graph.parameter((4, 4, 3, 3))
    a = ops.relu(ops.conv2d(x, w, padding=1))
    b = ops.relu(ops.conv2d(a, w, padding=1))
    out = ops.conv2d(ops.cat([a, b], 1), graph.parameter((4, 8, 3, 3)), padding=1)
    normal, pieces = check(graph, [out], tolerance=1e-4)
    stored = [info.shape for info in normal.buffers if info.kind == "temporary"]
    assert len(pieces) == 3 and len(stored) == 2


def test_outputs_that_share_a_reduction_are_one_region():
    graph = Graph()
    x = graph.tensor((8, 64))
    _, pieces = check(graph, [ops.softmax(x, -1), ops.log_softmax(x, -1), ops.logsumexp(x, -1)])
    assert len(pieces) == 1 and len(pieces[0].roots) == 3


def test_an_output_on_the_way_joins_what_it_leads_to():
    graph = Graph()
    x = graph.tensor((8, 64))
    y = ops.softmax(x, -1)
    _, pieces = check(graph, [y, y * 2.0, y])
    assert len(pieces) == 1 and len(pieces[0].roots) == 2


def test_expensive_values_that_layers_share_are_computed_once():
    graph = Graph()
    angles, x = graph.tensor((8, 4)), graph.tensor((8, 4))
    w = [graph.parameter((4, 4)) for _ in range(2)]
    y = ops.matmul(x * ops.cos(angles), w[0])
    y = y + ops.matmul(y * ops.cos(angles), w[1])
    _, pieces = check(graph, [y], tolerance=1e-4)
    cosines = [p for p in pieces if any(t.op == "cos" for t in p.terms.nodes)]
    assert len(cosines) == 1


def test_what_is_cheap_to_do_again_is_not_stored_beside_its_source():
    graph = Graph()
    x, w = graph.tensor((8, 16)), [graph.parameter((16, 16)) for _ in range(3)]
    whole = x @ w[0]
    half = ops.erf(whole)  # on the way to a product, and around it
    normal = normalise(graph.space, [(((half + x) @ w[1]) * half + whole @ w[2]).node])
    stored = cuts_of(facts_of(normal))
    assert {normal.terms.nodes[t].op for t in stored} == {"sum"}


def test_long_chains_are_cut_evenly():
    graph = Graph()
    x = graph.tensor((8, 16))
    for _ in range(40):
        x = ops.relu(ops.matmul(x, graph.parameter((16, 16))))
    pieces = regions(normalise(graph.space, [x.node]))
    assert len({piece.key for piece in pieces}) == 1
    y = graph.tensor((8, 16))
    for number in range(120):
        y = ops.tanh(y) * float(number)
    pieces = regions(normalise(graph.space, [y.node]))
    assert len(pieces) > 1
    for piece in pieces:
        assert len(piece.terms.nodes) * PLAIN <= MAX_TERMS + 1
        assert len(piece.terms.space.axes) <= MAX_AXES


def test_regions_come_in_the_order_of_execution():
    graph, x = encoder(3)
    normal = normalise(graph.space, [x.node])
    known = set(normal.sources.values())
    for piece in regions(normal):
        assert set(piece.inputs) <= known
        assert known.isdisjoint(piece.outputs)
        known |= set(piece.outputs)
    assert set(normal.outputs.values()) <= known


def test_what_gives_memory_back_runs_early():
    """A step of many layers holds their activations, not their gradients as well."""
    graph, layers, bytes_of_one = Graph(), 16, 64 * 16 * 4
    x, weights = graph.tensor((64, 16)), [graph.parameter((16, 16)) for _ in range(layers)]
    for w in weights:
        x = ops.tanh(x @ w)
    train.Step((x * x).sum(), weights, train.Adam())
    states, new = zip(*graph.states)
    normal = normalise(graph.space, [t.node for t in new], [t.node for t in states])
    pieces = regions(normal)
    last = {b: step for step, piece in enumerate(pieces) for b in piece.inputs}
    held, most = 0, 0
    for step, piece in enumerate(pieces):
        sizes = {b: math.prod(map(int, normal.buffers[b].shape)) * 4 for b in last}
        kept = {b for b in (*piece.outputs, *piece.inputs) if normal.buffers[b].kind == "temporary"}
        held += sum(sizes[b] for b in kept.intersection(piece.outputs))
        most = max(most, held)
        held -= sum(sizes[b] for b in kept.intersection(piece.inputs) if last[b] == step)
    assert most < (layers + 4) * bytes_of_one


def test_values_that_are_moved_again_and_again_are_stored():
    graph = Graph()
    x = y = graph.tensor((4, 32))
    for step in range(12):
        y = ops.maximum(y * 0.5, y.roll(step, 1)) + y.flip(1)
    assert x.shape == y.shape
    _, pieces = check(graph, [y])
    assert len(pieces) >= 4


def test_a_cache_that_is_written_and_read_is_stored_by_the_write():
    graph = Graph()
    graph.dim("s", 1, 16)
    cache, w = graph.tensor((48, 8)), graph.parameter((8, 8))
    x, at = graph.tensor(("s", 8)), graph.tensor(("s",), dtype="i64")
    where = at.reshape("s", 1).expand("s", 8)
    updated = cache._scatter(where, ops.matmul(x, w), 0)
    out = ops.matmul(ops.softmax(ops.matmul(x, updated.T), -1), updated)
    normal, pieces = check(
        graph, [updated, out], {"s": 3}, {at: np.array([4, 5, 6])}, tolerance=1e-3
    )
    assert len(pieces) == 2
    assert pieces[0].outputs == (normal.outputs[updated.node],)
    assert normal.outputs[updated.node] in pieces[1].inputs


def test_elementwise_operations_are_one_kernel():
    graph = Graph()
    x = y = graph.tensor((64, 64))
    for number in range(10):
        y = y + ops.mish(x * float(number + 2))
    (region,) = regions(normalise(graph.space, [y.node]))
    assert len(region.terms.nodes) > MAX_TERMS
    plan = optimise(region)
    assert len(plan.pieces) == 1


def test_what_a_convolution_reads_lies_with_its_channels_innermost():
    graph = Graph()
    x = graph.tensor((1, 3, 12, 10))
    for channels in (5, 6, 7):
        weight = graph.parameter((channels, x.shape[1], 3, 3))
        x = ops.relu(ops.conv2d(x, weight, padding=1))
    parts = ops.concatenate([x[:, :3], ops.relu(x[:, 3:])], 1)
    y = ops.conv2d(parts, graph.parameter((8, 7, 1, 1)))
    normal = normalise(graph.space, [y.output().node])
    regions(normal)
    stored = [b.shape for b in normal.buffers if b.kind == "temporary"]
    assert stored and all(list(map(int, shape[:2])) == [12, 10] for shape in stored)


def test_usual_sizes_are_part_of_a_key():
    """A plan that was measured for one token is none for a thousand."""

    def key(hint):
        graph = Graph()
        x = graph.tensor((graph.dim("s", 1, 4096, hint=hint), 256))
        (piece,) = regions(normalise(graph.space, [ops.softmax(x, -1).node]))
        return piece.key

    assert len({key(None), key(1), key(1024)}) == 3 and key(1) == key(1)


@pytest.mark.parametrize("op", [ops.argmax, lambda x, dim: ops.sort(x, dim).values])
def test_what_is_compared_with_itself_is_computed_once(op):
    """Sums of floats in two orders differ, and then no element equals the maximum."""
    graph = Graph()
    x = graph.tensor((4, 5, 6)).sum(-1) * 0.5
    normal = normalise(graph.space, [op(x, 1).node])
    products = {t for t, term in enumerate(normal.terms.nodes) if term.op == "mul"}
    assert products & cuts_of(facts_of(normal))


def shifted(y, n):
    """Rows in places that are data, with rows of the value itself added to them."""
    at = (y.graph.tensor((2,), dtype="i64", name="at") + n) % 20
    return ops.index_add(y, 0, at, y[:2] * 0.5)


def assigned(y, n):
    """y[n:n+2] = y[m:m+2] + 1"""
    start = n % 18
    there = y.graph.literal(True).expand(2, 3).pad([(start, 18 - start), (0, 0)], False)
    rows = y[(n + 5) % 18 :][:2] + 1.0
    return ops.where(there, rows.pad([(start, 18 - start), (0, 0)], 0.0), y)


def masked(y, n):
    return ops.where(y.graph.iota((20, 3), "i0 + i1") == n % 22, y * 2.0 + n, y)


@pytest.mark.parametrize("step", [shifted, assigned, masked])
def test_a_long_chain_is_cut_where_it_is_thin(step):
    """Little is computed again, and no region has more axes than a mask has bits."""
    graph = Graph()
    y = graph.tensor((20, 3))
    for n in range(90):
        y = step(y, n)
    normal = normalise(graph.space, [y.node])
    live = len(facts_of(normal).live)
    pieces = regions(normal)
    assert all(len(piece.terms.space.axes) <= MAX_AXES for piece in pieces)
    assert sum(len(piece.terms.nodes) for piece in pieces) < 3 * live
    assert len(pieces) < 45
