"""What the default choice decides: the kernels that an expert would write."""

from __future__ import annotations

import pytest
from plan_nets import program, region_of

from luminal import Graph, ops
from luminal.rewrite.extract import classes_of
from luminal.rewrite.lower_plan import lower_plan
from luminal.rewrite.optimise import optimise
from luminal.rewrite.plan import Plan
from luminal.rewrite.saturate import saturate

KERNELS = {
    "softmax": (1, 1), "layer_norm": (1, 1), "rms_norm_matmul": (1, 2),
    "linear_gelu_residual": (1, 1), "gated_mlp": (1, 1), "attention_causal": (1, 1),
    "attention_masked": (1, 2), "cross_entropy": (1, 1), "chain_30": (1, 1),
    "conv_norm_relu": (1, 1), "depthwise_pointwise": (2, 2), "pools": (2, 2),
    "embedding_norm": (1, 2), "embedding_dynamic": (1, 2), "lstm_cell": (1, 2),
    "bert_layer": (9, 10), "int8_linear": (1, 1), "scans": (2, 2),
    "rotated_scores": (5, 5), "placed_projection": (2, 3), "packed_linear": (1, 1),
}  # fmt: skip


def plan_of(name: str) -> Plan:
    return optimise(program(name, large=True).region)


def work(plan: Plan) -> list:
    return [piece for piece in plan.pieces if not plan.classes.constant[piece.roots[0]]]


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_counts(name):
    least, most = KERNELS[name]
    plan = plan_of(name)
    assert least <= len(work(plan)) <= most, plan.describe()


@pytest.mark.parametrize("name", ["attention_causal", "attention_masked"])
def test_attention_is_online_and_keeps_no_square(name):
    plan = plan_of(name)
    steps = lower_plan(plan)
    assert any(n.op == "osum" for piece in plan.pieces for _, n in piece.body)
    kept = (
        buffer for step in steps for buffer in step.kernel.buffers
        if step.arguments[buffer.name].kind == "temporary"
    )  # fmt: skip
    assert all(len(buffer.shape) < 2 for buffer in kept)  # which rows see nothing at all
    assert any(v.reduction and v.reduction.rescale for v in steps[-1].kernel.values)


def test_projections_are_not_made_inside_attention():
    plan = plan_of("bert_layer")
    online = [p for p in plan.pieces if any(n.op == "osum" for _, n in p.body)]
    assert len(online) == 1
    assert sum(1 for _, n in online[0].body if n.op == "sum") == 1  # the scores alone


def test_a_contraction_is_a_product_of_two_factors():
    (step,) = [s for s in lower_plan(plan_of("conv_norm_relu")) if not s.constant]
    (value,) = [v for v in step.kernel.values if v.reduction]
    assert value.body.op == "mul" and len(value.body.args) == 2
    assert len(value.reduction.over) == 3


def test_batch_norm_goes_into_the_weights_once():
    steps = lower_plan(plan_of("conv_norm_relu"))
    made = {s.arguments[b] for s in steps if s.constant for b in s.kernel.outputs}
    assert made
    (run,) = [s for s in steps if not s.constant]
    packed = {run.arguments[b.name] for b in run.kernel.buffers if b.constant}
    assert made & packed


def test_int8_weights_are_not_widened_in_memory():
    (step,) = lower_plan(plan_of("int8_linear"))
    assert not step.constant
    assert "i8" in {b.dtype.name for b in step.kernel.buffers}


def test_packed_weights_are_not_unpacked_in_memory():
    (step,) = lower_plan(plan_of("packed_linear"))
    assert not step.constant
    assert {"u8", "f16"} <= {b.dtype.name for b in step.kernel.buffers}


@pytest.mark.parametrize("name", ["int8_linear", "packed_linear"])
def test_one_row_is_scaled_behind_the_sum(name):
    """Inside, the scale would be one more operation for each weight."""
    (step,) = lower_plan(plan_of(name))
    (inner,) = [v for v in step.kernel.values if v.over]
    scales = [b.name for b in step.kernel.buffers if b.constant and len(b.shape) == 1]
    assert scales and not any(load.buffer in scales for load in inner.loads)


def test_a_contraction_that_is_placed_elsewhere_is_made_at_its_own_points():
    plan = plan_of("placed_projection")
    names, space = plan.classes.encoding.names, plan.classes.encoding.space
    made = [(piece, c) for piece in plan.pieces for c, n in piece.body if n.op == "sum"]
    extents = {str(space.axes[a]) for _, c in made for a in names(plan.classes.axes[c])}
    assert "1024" not in extents, plan.describe()
    assert sum(piece.roots == (c,) for piece, c in made) >= 1


def test_a_scatter_copies_its_base_once_and_says_so():
    steps = lower_plan(plan_of("cache_update"))
    assert [s.copies for s in steps] == [True, False, True, False]
    stores = [v.store for s in steps if not s.copies for v in s.kernel.values if v.store]
    assert [s.mode for s in stores] == ["set", "sum"]
    assert all(s.slots and s.ordered for s in stores)


def test_every_class_has_a_dtype_and_an_order():
    region = program("bert_layer").region
    engine, encoding, _ = saturate(region)
    classes = classes_of(engine, encoding, region)
    assert len(classes.order) == len(classes.alternatives) == len(classes.dtype)


def test_the_factors_of_a_power_are_counted_once():
    graph = Graph()
    y = graph.tensor((4, 8))
    for _ in range(40):
        y = y * y
    plan = optimise(region_of(graph, [ops.sum(y, 1).node]).region)
    assert len(plan.pieces) == 1
