"""Passes: what they change, what they keep, and a pass that a user writes."""

import numpy as np
import pytest

from luminal.errors import CompileError, Unsupported
from luminal.graph import reference
from luminal.graph.graph import Graph
from luminal.graph.passes import (
    Program,
    default_passes,
    fold_constants,
    program_of,
    rewrite,
    run_passes,
    widen_half,
)


def outputs(program, feeds):
    values = reference.evaluate(program.graph, program.outputs, feeds)
    return [values[node] for node in program.outputs]


def test_half_is_computed_in_f32_and_rounded_after_each_operation():
    graph = Graph()
    x, y = graph.tensor((64,), "bf16"), graph.tensor((64,), "bf16")
    z = x._binary("mul", y)._binary("add", x)._unary("exp2")
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
    moved = x.flip(0).gather_node(i, 0).scatter_node(i, x, 0)
    moved.output()
    graph.tensor((4,)).cast("bf16").cast("f32").output()
    program = program_of(graph)
    assert run_passes(program, default_passes()) == program


def test_literals_fold_in_any_shape():
    graph = Graph()
    x = graph.tensor((2, 3))
    two, three = (graph.literal(v, "f32").expand(2, 3) for v in (2.0, 3.0))
    x._binary("add", two._binary("mul", three)._unary("sqrt")).output()
    graph.literal(7, "i64").cast("bf16").output()
    folded = fold_constants(program_of(graph))
    ops = [node.op for node in folded.nodes()]
    assert ops.count("literal") == 2 and "mul" not in ops and "sqrt" not in ops
    feeds = {x: np.zeros((2, 3), np.float32)}
    for before, after in zip(outputs(program_of(graph), feeds), outputs(folded, feeds)):
        np.testing.assert_array_equal(before, after)


def test_arrays_are_not_folded():
    graph = Graph()
    c = graph.constant(np.ones(5, np.float32))
    c._unary("sqrt").output()
    program = program_of(graph)
    assert fold_constants(program) == program


def test_a_pass_of_a_user():
    graph = Graph()
    x = graph.tensor((3,))
    x._unary("sin")._binary("add", x).flip(0).output()

    def sine_is_its_argument(program):
        def rule(node, inputs):
            return inputs[0] if node.op == "sin" else None

        return rewrite(program, rule)

    program = run_passes(program_of(graph), [*default_passes(), sine_is_its_argument])
    (result,) = outputs(program, {x: np.float32([1, 2, 3])})
    np.testing.assert_array_equal(result, [6, 4, 2])
    assert [n.op for n in program.nodes()] == ["input", "add", "view"]


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
    x._unary("sin").output()
    with pytest.raises(CompileError, match="Program"):
        run_passes(program_of(graph), [lambda program: None])
    with pytest.raises(CompileError, match="same outputs"):
        run_passes(program_of(graph), [lambda p: Program(p.graph, ())])
    with pytest.raises(CompileError, match="shape or dtype"):
        rewrite(program_of(graph), lambda node, inputs: x.cast("f64").node)
    with pytest.raises(Unsupported, match="int3"):
        default_passes("int3")
