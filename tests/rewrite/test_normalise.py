"""What views, masks, gathers and reductions become as terms over named axes."""

from __future__ import annotations

import numpy as np
import pytest
from meaning import check, maps_of, ops_of

from luminal import ops
from luminal.graph.graph import Graph
from luminal.graph.index import Index
from luminal.ops.attention import causal
from luminal.rewrite.cuts import reachable
from luminal.rewrite.normalise import normalise


def graph_with(*shapes, dtype="f32"):
    graph = Graph()
    return graph, *(graph.tensor(shape, dtype=dtype) for shape in shapes)


# ---- views that are only axes


@pytest.mark.parametrize(
    "movement",
    [
        lambda x: x.permute(2, 0, 1),
        lambda x: x.reshape(24, 8),
        lambda x: x.reshape(4, 3, 2, 2, 4).permute(0, 2, 1, 3, 4).reshape(8, 24),
        lambda x: x.unsqueeze(1).expand(4, 5, 6, 8),
        lambda x: x.repeat(1, 2, 1),
        lambda x: x.repeat_interleave(3, 1),
        lambda x: x.unfold(2, 4, 4),
        lambda x: x.reshape(2, 2, 6, 8).permute(1, 0, 2, 3).reshape(2, 2, 48),
    ],
)
def test_structural_views_vanish(movement):
    graph, x = graph_with((4, 6, 8))
    normal, _ = check(graph, [movement(x)])
    assert ops_of(normal) == ["input"]


def test_symbolic_splits_and_merges_vanish():
    graph = Graph()
    graph.dim("s", 1, 64)
    x = graph.tensor(("s", 2, 32))
    merged = x.reshape("s*2", 32).reshape("s", 64).reshape("s", 4, 16).permute(1, 0, 2)
    normal, _ = check(graph, [merged], {"s": 5})
    assert ops_of(normal) == ["input"]


# ---- views that need a map


@pytest.mark.parametrize(
    "movement, maps",
    [
        (lambda x: x[1:3], ["a2 + 1, a1"]),
        (lambda x: x.flip(1), ["a0, -a2 + 3"]),
        (lambda x: x.diagonal(), ["a1, a1"]),
        (lambda x: x.unfold(0, 3, 1), ["a2 + a3, a1"]),
    ],
)
def test_other_views_read_at_a_map(movement, maps):
    graph, x = graph_with((6, 4))
    normal, _ = check(graph, [movement(x)])
    assert [sorted(m.split(", ")) for m in maps_of(normal)] == [sorted(m.split(", ")) for m in maps]


def test_an_odd_reshape_is_one_read():
    graph, x = graph_with((6, 4))
    normal, _ = check(graph, [ops.exp2(x).reshape(8, 3)])
    assert ops_of(normal).count("read") == 1


def test_two_fills_of_one_value_are_one_guard():
    graph, x = graph_with((6, 4))
    padded = x.pad(((1, 1), (0, 0)), 7).pad(((0, 0), (2, 0)), 7)
    normal, _ = check(graph, [padded])
    assert ops_of(normal).count("guard") == 1


def test_a_padded_view_of_a_split_dimension_has_no_floors():
    """The condition of the view proves that its digits do not carry."""
    graph, x = graph_with((3, 16))
    heads = x.reshape(3, 4, 4)
    rotated = ops.cat([-heads[..., 2:], heads[..., :2]], -1)
    normal, _ = check(graph, [rotated])
    assert not any("//" in m for m in maps_of(normal))


# ---- one axis twice


def test_a_product_with_its_own_transpose_renames():
    graph, x = graph_with((6, 6))
    normal, _ = check(graph, [ops.matmul(x, x.T), x + x.T])
    assert len(maps_of(normal)) == 2


def test_a_residual_around_a_square_layer_renames_the_stored_side():
    graph, x = graph_with((5, 8))
    w = graph.parameter((8, 8))
    normal, _ = check(graph, [x + ops.matmul(x, w)])
    (read,) = [t for t in normal.terms.nodes if t.op == "read"]
    assert normal.terms.nodes[read.children[0]].op == "input"


def test_softmax_shares_the_axis_of_its_reductions():
    graph, x = graph_with((5, 8))
    normal, _ = check(graph, [ops.softmax(x, -1)])
    assert maps_of(normal) == []
    assert len(normal.terms.space.axes) == 2


# ---- masks


@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_causal_masks_are_guards(offset):
    graph, x = graph_with((6, 6))
    mask = ops.where(causal(x, offset), x, float("-inf"))
    normal, _ = check(graph, [ops.exp2(mask)])
    assert "select" not in ops_of(normal) and ops_of(normal).count("guard") == 1


def test_complements_and_both_sides():
    graph, x, y = graph_with((6, 6), (6, 6))
    i, j = graph.iota((6, 6), "i0"), graph.iota((6, 6), "i1")
    band = ops.logical_and(i <= j + 1, j <= i + 1)
    outputs = [
        ops.where(i >= j, x, y), ops.where(ops.logical_not(i >= j), x, y), ops.where(band, x, y),
        ops.where(ops.logical_or(i < 2, j < 3), x, y), ops.where(i == j, x, y),
        ops.where(ops.logical_and(i < j, x < y), x, y), ops.where(i != j, x, y),
    ]  # fmt: skip
    normal, _ = check(graph, outputs)
    assert ops_of(normal).count("select") == 1  # the one whose condition is data


def test_known_conditions_leave_no_guard():
    graph, x, y = graph_with((6,), (6,))
    i = graph.iota((6,), "i0")
    normal, _ = check(graph, [ops.where(i < 6, x, y), ops.where(i < 0, x, y)])
    assert "guard" not in ops_of(normal)


def test_concat_is_guards_over_plain_reads():
    graph, x, y, z = graph_with((2, 3), (2, 4), (2, 5))
    normal, _ = check(graph, [ops.cat([x, y, z], 1)])
    nodes = normal.terms.nodes
    live = reachable(normal.terms, [normal.roots[0].term])
    guards = [t for t in map(nodes.__getitem__, live) if t.op == "guard"]
    reads = [nodes[t].children[0] for t in live if nodes[t].op == "read"]
    assert all(nodes[source].op == "input" for source in reads)
    assert len(guards) == 2 and all(len(g.attribute) == 1 for g in guards)


# ---- gather and scatter


def test_gather_at_an_index_is_a_read():
    graph, x = graph_with((6, 4))
    index = graph.iota((3, 4), "2*i0 + 1")
    normal, _ = check(graph, [x._gather(index, 0)])
    assert "gather" not in ops_of(normal) and "read" in ops_of(normal)


def test_gather_at_an_index_outside_is_clamped():
    graph, x = graph_with((6, 4))
    index = graph.iota((5, 4), "3*i0 - 2")
    check(graph, [x._gather(index, 0)])


def test_gather_from_a_split_dimension_clamps_the_whole_index():
    graph, x = graph_with((6, 4))
    index = graph.tensor((5, 4), dtype="i64")
    split = ops.exp2(x).reshape(2, 3, 4).permute(1, 0, 2)
    values = np.array([-7, 0, 4, 5, 9])[:, None].repeat(4, 1)
    check(graph, [x._gather(index, 0), split], given={index: values})


def test_embedding():
    graph, table = graph_with((10, 4))
    ids = graph.tensor((2, 3), dtype="i64")
    normal, pieces = check(graph, [ops.embedding(ids, table)])
    assert ops_of(normal).count("gather") == 1 and len(pieces) == 1


@pytest.mark.parametrize("mode", ["set", "sum", "max", "prod"])
def test_scatter(mode):
    graph, base, values = graph_with((6, 4), (5, 4))
    index = graph.tensor((5,), dtype="i64")
    where = index.reshape(5, 1).expand(5, 4)
    outputs = [base._scatter(where, values, 0, mode)]
    zero = graph.literal(0.0, "f32").expand(6, 4)
    outputs.append(zero._scatter(where, values, 0, mode))
    one = graph.literal(1.5, "f32").expand(5, 4)
    outputs.append(base._scatter(where, one, 0, mode))
    check(graph, outputs, given={index: np.array([0, 5, 0, -1, 6])})


def test_scatter_into_a_single_row():
    graph, base, values = graph_with((1, 4), (3, 4))
    index = graph.tensor((3, 4), dtype="i64")
    given = {index: np.array([[0, 1, 0, -1], [0, 0, 2, 0], [1, 1, 0, 0]])}
    check(graph, [base._scatter(index, values, 0, "sum")], given=given)


def test_cache_update_at_run_time_positions():
    graph = Graph()
    graph.dim("s", 1, 16)
    cache, new = graph.tensor((48, 2, 4)), graph.tensor(("s", 2, 4))
    at = graph.tensor(("s",), dtype="i64")
    where = at.reshape("s", 1, 1).expand("s", 2, 4)
    updated = cache._scatter(where, new, 0)
    outputs = [updated, ops.sum(updated * 2.0, 0)]
    check(graph, outputs, {"s": 3}, {at: np.array([7, 8, 9])})


# ---- reductions along what a value does not depend on


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("size", [0, 1, 3, 70])
def test_reductions_over_broadcast_dimensions(op, size):
    graph = Graph()
    graph.dim("n", 0, 100)
    x = graph.tensor((4,), dtype="f64")
    repeated = x.unsqueeze(1)
    check(graph, [repeated.expand(4, size)._reduce(op, (1,))])
    check(graph, [repeated.expand(4, "n")._reduce(op, (1,))], {"n": size})


def test_an_empty_sum_of_nan_is_zero():
    graph = Graph()
    graph.dim("n", 0, 100)
    x = graph.tensor((2,), dtype="f64")
    total = x.unsqueeze(1).expand(2, "n")._reduce("sum", (1,))
    given = {x: np.array([np.nan, np.inf])}
    check(graph, [total], {"n": 0}, given)


def test_integers_wrap_as_in_numpy():
    graph = Graph()
    x = graph.tensor((4,), dtype="i8")
    counted = x.unsqueeze(1).expand(4, 300)._reduce("sum", (1,))
    far = ops.mul(graph.iota((200,), "i0", "i8"), graph.literal(3, "i8").expand(200))
    normal, _ = check(graph, [counted, far], given={x: np.array([1, -2, 100, 7], np.int8)})
    assert "index" in ops_of(normal)


def test_scans_walk_one_axis():
    graph, x = graph_with((4, 6))
    outputs = [x.scan("sum", 1), x.reshape(24).scan("max", 0), x.T.reshape(24).scan("sum", 0)]
    outputs.append(x.unsqueeze(1).expand(4, 3, 6).scan("sum", 1))
    check(graph, outputs)


# ---- buffers and outputs


def test_outputs_have_an_axis_for_each_dimension():
    graph, x = graph_with((4, 1))
    normal, _ = check(graph, [x.expand(4, 3), x, x])
    assert [len(root.axes) for root in normal.roots] == [2, 1]


def test_buffers_carry_what_the_runtime_needs():
    graph = Graph()
    x, p = graph.tensor((4, 6), dtype="f64"), graph.parameter((6,), dtype="f64")
    c = graph.constant(np.ones(6))
    out = x * p.expand(4, 6) + c.cast("f64").expand(4, 6)
    normal = normalise(graph.space, [out.node])
    kinds = {info.kind: info.constant for info in normal.buffers}
    assert kinds == {"input": False, "parameter": True, "constant": True, "output": False}
    assert "sum" not in normal.describe() and "mul" in normal.describe()


def test_numbers_stay_what_they_are():
    graph, x = graph_with((3,))
    zero, minus = (graph.literal(v, "f32").expand(3) for v in (0.0, -0.0))
    nan = graph.literal(float("nan"), "f32").expand(3)
    normal, _ = check(graph, [x * zero, x * minus, x * nan])
    constants = [t.attribute for t in normal.terms.nodes if t.op == "const"]
    assert [repr(c) for c in constants] == ["0.0", "-0.0", "nan"]


def test_convolution_and_pooling():
    graph = Graph()
    x, w, b = graph.tensor((2, 3, 7, 7)), graph.parameter((4, 3, 3, 3)), graph.parameter((4,))
    y = ops.relu(ops.conv2d(x, w, b, stride=2, padding=1))
    normal, pieces = check(graph, [ops.max_pool2d(y, 3, 2, 1)])
    assert len(pieces) == 2  # a window reads what was reduced
    assert not any("//" in m for m in maps_of(normal))


def test_patches_are_a_plain_contraction():
    graph = Graph()
    x, w = graph.tensor((2, 3, 8, 8)), graph.parameter((5, 3, 4, 4))
    normal, _ = check(graph, [ops.conv2d(x, w, stride=4)])
    assert "read" not in ops_of(normal)


def test_symbolic_attention():
    graph = Graph()
    graph.dim("s", 1, 64)
    q, k = graph.tensor((2, 4, "s", 8)), graph.tensor((2, 2, "s", 8))
    v = graph.tensor((2, 2, "s", 8))
    out = ops.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    for size in (1, 7):
        normal, pieces = check(graph, [out], {"s": size})
    assert len(pieces) == 1 and ops_of(normal).count("guard") == 1


def test_what_is_computed_keeps_its_axes_where_a_mask_from_memory_has_others():
    graph = Graph()
    graph.dim("s", 1, 16)
    x, mask = graph.tensor((2, "s", 8)), graph.tensor((2, "s"))
    scores = ops.matmul(x, x.mT) * mask.unsqueeze(1)
    mixed = ops.softmax(ops.matmul(scores, x), -1)
    pooled = ops.sum(mixed * mask.unsqueeze(2), 1)
    normal, _ = check(graph, [pooled], {"s": 3}, tolerance=1e-4)
    terms = normal.terms.nodes
    assert {terms[t.children[0]].op for t in terms if t.op == "read"} == {"input"}


def test_the_same_index_beside_two_packed_weights_does_not_tie_their_axes():
    graph = Graph()
    shifts = graph.iota((2, 1), Index.of("i0") * 4).cast("u8")

    def unpacked(rows: int, columns: int):
        packed = graph.tensor((rows, 1, columns // 2), dtype="u8")
        return ((packed >> shifts) & 15).reshape(rows, columns).cast("f32")

    x = graph.tensor((3, 32))
    out = ops.matmul(ops.matmul(x, unpacked(16, 32).mT), unpacked(8, 16).mT)
    normal, _ = check(graph, [out], tolerance=1e-4)
    assert "read" not in ops_of(normal)


def test_conditions_that_share_their_parts_are_not_written_out():
    graph, x = graph_with((8, 8))
    mask = ops.lt(graph.iota((8, 8), "i0"), graph.iota((8, 8), "i1"))
    for step in range(40):
        above, below = ops.gt(x, float(step)), ops.lt(x, -float(step))
        mask = ops.logical_and(ops.logical_or(mask, above), ops.logical_or(mask, below))
    normal, _ = check(graph, [ops.where(mask, x, 0.0)])
    assert len(normal.terms.nodes) < 40 * 10
