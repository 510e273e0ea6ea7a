"""Passes: what they change, what they keep, and a pass that a user writes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal import ops
from luminal.backend import reference
from luminal.errors import CompileError, Unsupported
from luminal.graph.dtype import bf16
from luminal.graph.graph import Graph
from luminal.graph.passes import Program, program_of, rewrite, run_passes
from luminal.precision import default_passes
from luminal.precision.halves import widen_half


def outputs(program, feeds):
    values = reference.evaluate(program.graph, program.outputs, feeds)
    return [values[node].astype(np.float64) for node in program.outputs]  # NumPy: bf16 NaN != NaN


def test_half_is_computed_in_f32_and_rounded_after_each_operation():
    graph = Graph()
    x, y = graph.tensor((64,), "bf16"), graph.tensor((64,), "bf16")
    z = x._binary("mul", y)._binary("add", x).exp2()
    z._reduce("sum", [0]).output()
    x._binary("less", y).output()
    program = program_of(graph)
    wide = run_passes(program, default_passes())
    for node in wide.nodes():
        if node.op not in ("input", "cast"):
            assert all(source.dtype.name == "f32" for source in node.inputs)
    rng = np.random.default_rng(1)
    feeds = {t: rng.normal(size=64).astype(t.dtype.numpy) for t in (x, y)}
    for before, after in zip(outputs(program, feeds), outputs(wide, feeds)):
        np.testing.assert_array_equal(before, after)


def test_movement_and_rounding_casts_stay():
    graph = Graph()
    x, i = graph.tensor((4,), "f16"), graph.tensor((4,), "i64")
    moved = x.flip(0)._gather(i, 0)._scatter(i, x, 0)
    moved.output()
    graph.tensor((4,)).cast("bf16").cast("f32").output()
    program = program_of(graph)
    assert run_passes(program, default_passes()) == program


def test_a_pass_of_a_user():
    graph = Graph()
    x, y = graph.tensor((3,)), graph.tensor((3,))
    x._binary("div", y)._binary("add", x).flip(0).output()

    def divide_by_multiplying(program):
        def rule(node, inputs):
            if node.op != "div":
                return None
            inverse = program.graph.add("recip", (inputs[1],))
            return program.graph.add("mul", (inputs[0], inverse))

        return rewrite(program, rule)

    program = run_passes(program_of(graph), [*default_passes(), divide_by_multiplying])
    (result,) = outputs(program, {x: np.float32([1, 2, 3]), y: np.float32([2, 4, 8])})
    np.testing.assert_array_equal(result, [3.375, 2.5, 1.5])
    ops = [n.op for n in program.nodes()]
    assert sorted(ops) == ["add", "input", "input", "mul", "recip", "view"]
    assert all(node in graph.locations for node in program.nodes())


def test_states_go_through_passes():
    graph = Graph()
    state = graph.tensor((2,), "bf16")
    new = state._binary("add", state)
    graph.donate(state, new)
    program = widen_half(program_of(graph))
    ((source, after),) = program.states
    assert source is state.node and after.op == "cast" and program.roots == (after,)


def test_wrong_passes_are_refused():
    graph = Graph()
    x = graph.tensor((3,))
    x.sin().output()
    with pytest.raises(CompileError, match="Program"):
        run_passes(program_of(graph), [lambda program: None])
    with pytest.raises(CompileError, match="same outputs"):
        run_passes(program_of(graph), [lambda p: Program(p.graph, ())])
    with pytest.raises(CompileError, match="shape or dtype"):
        rewrite(program_of(graph), lambda node, inputs: x.cast("f64").node)
    with pytest.raises(Unsupported, match="int3"):
        default_passes("int3")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=12), st.sampled_from(["bf16", "f16"]))
@settings(max_examples=40, deadline=None)
def test_default_passes_keep_the_meaning_of_random_graphs(choices, kind):
    graph = Graph()
    x = graph.tensor((4, 4), kind)
    pool = [x, graph.literal(0.3, kind).expand(4, 4), graph.literal(-2.0, kind).expand(4, 4)]
    unary, binary = ("exp2", "sqrt", "floor", "sin"), ("add", "mul", "max", "less", "select")
    for n in choices:
        a, b = pool[n % len(pool)], pool[n // 7 % len(pool)]
        op = (*unary, *binary, "sum", "scan", "view")[n // 49 % 12]
        if op in unary:
            pool.append(getattr(a, op)())
        elif op == "select":
            pool.append(graph.apply("select", [a._binary("less", b), a, b]))
        elif op in binary:
            new = a._binary(op, b)
            pool.append(new.cast(kind) if op == "less" else new)
        elif op == "sum":
            pool.append(a._reduce("sum", [1]).unsqueeze(0).expand(4, 4))
        else:
            pool.append(a.scan("sum", 0) if op == "scan" else a.T.roll(1, 0))
    pool[-1].output()
    program = program_of(graph)
    array = np.random.default_rng(0).normal(size=(4, 4)).astype(x.dtype.numpy)
    with np.errstate(all="ignore"):
        before = outputs(program, {x: array})
        after = outputs(run_passes(program, default_passes()), {x: array})
    np.testing.assert_array_equal(before, after)


def test_what_was_widened_is_not_rounded_again():
    """bf16 of f32 of bf16 is what was there: attention of bf16 in bf16 has no copies of q and k."""
    graph = Graph()
    q, k, v = (graph.tensor((1, 2, 64, 64), bf16) for _ in range(3))
    ops.scaled_dot_product_attention(q, k, v).output()
    rt = graph.compile("cuda:sm_90a", precision="bf16", cache=False, database=False)
    assert not [made.name for made in rt.kernels if made.name.endswith("_cast")]
