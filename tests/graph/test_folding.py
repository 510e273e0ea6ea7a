"""Constants that are folded: to the same bits, and only where that takes no more memory."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from luminal.backend import reference
from luminal.graph.folding import fold_constants
from luminal.graph.graph import Graph
from luminal.graph.passes import program_of
from luminal.graph.scalars import SCALARS


def outputs(program, feeds):
    values = reference.evaluate(program.graph, program.outputs, feeds)
    return [values[node] for node in program.outputs]


def same(before, after):
    """Equal bits, but for which NaN it is."""
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        a, b = (x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in (a, b))
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def computed(program):
    return [n.op for n in program.nodes() if n.op not in ("input", "literal", "view")]


def test_literals_fold_in_any_shape():
    graph = Graph()
    x = graph.tensor((2, 3))
    two, three = (graph.literal(v, "f32").expand(2, 3) for v in (2.0, 3.0))
    x._binary("add", two._binary("mul", three).sqrt()).output()
    graph.literal(7, "i64").cast("bf16").output()
    folded = fold_constants(program_of(graph))
    ops = [node.op for node in folded.nodes()]
    assert ops.count("literal") == 2 and "mul" not in ops and "sqrt" not in ops
    feeds = {x: np.zeros((2, 3), np.float32)}
    for before, after in zip(outputs(program_of(graph), feeds), outputs(folded, feeds)):
        np.testing.assert_array_equal(before, after)


def test_what_changes_nothing_goes():
    """A float + 0 stays: it turns -0 into 0."""
    graph = Graph()
    x, n = graph.tensor((3, 2)), graph.tensor((3, 2), "i32")
    for y in (x * 1.0, n + 0, 0 + n * 1, x + 0.0, x * 2.0):
        y.output()
    folded = fold_constants(program_of(graph)).outputs
    assert folded[:3] == (x.node, n.node, n.node)
    assert [node.op for node in folded[3:]] == ["add", "mul"]


def test_parameters_are_not_folded():
    graph = Graph()
    p = graph.parameter((5,), "f32").set(np.ones(5, np.float32))
    p.sqrt().output()
    program = program_of(graph)
    assert fold_constants(program) == program


def test_constants_fold_through_views_and_where_they_are_expanded():
    graph = Graph()
    x = graph.tensor((2, 3, 4))
    scale = graph.constant(np.float32([1, 2, 4]))
    bias = graph.constant(np.int32([7, -8, 9]))
    wide = bias.cast("f32")._binary("mul", scale).reshape((1, 3, 1)).expand(2, 3, 4)
    (x * wide + scale.reshape((3, 1)).expand(2, 3, 4).sqrt()).output()
    folded = fold_constants(program_of(graph))
    assert computed(folded) == ["mul", "add"]
    feeds = {x: np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    same(outputs(program_of(graph), feeds), outputs(folded, feeds))


def test_constants_without_elements_stay():
    graph = Graph()
    none, row = (graph.constant(np.zeros(shape, np.float32)) for shape in ((0, 3), 3))
    for y in (none * none, none.cast("i32"), none + row, none.cast("i32").sum(0)):
        y.output()
    before = program_of(graph)
    same(outputs(before, {}), outputs(fold_constants(before), {}))


def test_bytes_stay_bytes_and_their_sums_fold():
    graph = Graph()
    x = graph.tensor((8, 64), "i32")
    w = graph.constant(np.arange(512).astype(np.int8).reshape(8, 64))
    wide = w.cast("i32")
    (x * wide).output()
    (x + wide._reduce("sum", [1]).unsqueeze(1).expand(8, 64)).output()
    folded = fold_constants(program_of(graph))
    assert computed(folded) == ["cast", "mul", "add"]


def test_equal_values_become_one_number():
    graph = Graph()
    x = graph.tensor((4,))
    c = graph.constant(np.float32([-2, 2, -2, 2]))
    (x + (c * c)).output()
    (x * graph.constant(np.float32([0.0, 0.0, -0.0, 0.0])).sqrt()).output()
    folded = fold_constants(program_of(graph))
    kinds = [sorted(s.op for s in node.inputs) for node in folded.outputs]
    assert kinds == [["input", "view"], ["input", "input"]]  # -0 is another number than 0


def test_folding_again_makes_nothing_new():
    graph = Graph()
    c = graph.constant(np.float32([1, 2]))
    (graph.tensor((2,)) * c.sqrt()).output()
    first, count = fold_constants(program_of(graph)), len(graph.sources)
    assert fold_constants(program_of(graph)) == first == fold_constants(first)
    assert len(graph.sources) == count


HOSTILE = {
    "f32": [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.5, 3e38, 1e-45, 16777217.0],
    "f64": [0.0, -0.0, np.nan, np.inf, 1e308, -1e-320, 0.1],
    "bf16": [0.0, -0.0, np.nan, 3e38, 1.0078125, -2.5],
    "i8": [-128, 127, 0, -1, 1, 100], "u8": [0, 255, 1, 128], "bool": [0, 1],
    "i32": [-(2**31), 2**31 - 1, 0, -1, 7], "i64": [-(2**63), 2**63 - 1, 0, -1],
    "u32": [0, 2**32 - 1, 5],
}  # fmt: skip


@given(st.integers(0, 2**63), st.lists(st.integers(0, 10**6), min_size=1, max_size=10))
@example(2424091946895, [469])
@settings(max_examples=100, deadline=None)
def test_random_constants_fold_to_what_the_reference_gives(seed, choices):
    rng = np.random.default_rng(seed)
    graph = Graph()

    def source(kind):
        made = rng.choice(np.array(HOSTILE[kind]), (3, 4))
        with np.errstate(all="ignore"):
            whole = graph.constant(made.astype(graph.literal(0, kind).dtype.numpy))
        row = whole.narrow(0, int(rng.integers(3)), 1).expand(3, 4)
        return [whole, row, whole.flip(1), graph.literal(HOSTILE[kind][-1], kind).expand(3, 4)]

    pools = {kind: source(kind) for kind in HOSTILE}
    names = sorted(set(SCALARS) - {"sin", "cos"})
    for n in choices:
        kind = list(pools)[n % len(pools)]
        pool, op = pools[kind], names[n // 16 % len(names)]
        row = SCALARS[op]
        a, b = pool[n // 512 % len(pool)], pool[n // 2048 % len(pool)]
        number = a.dtype.kind
        if n % 7 == 0:
            dims, what = [n // 7 % 2], ("sum", "max", "min", "prod")[n // 14 % 4]
            signed = number == "float" and what in ("max", "min")  # of 0 and -0 either is right
            new = (a + 0.0 if signed else a)._reduce(what, dims).unsqueeze(dims[0]).expand(3, 4)
        elif op == "cast":
            new = a.cast(list(pools)[n // 64 % len(pools)])
        elif op == "select":
            new = graph.apply(op, [pools["bool"][n // 64 % len(pools["bool"])], a, b])
        elif (row.domain == "float") > (number == "float") or (
            row.domain == "integer" and number == "float"
        ):
            continue
        elif row.result == "bool":
            new = graph.apply(op, [a, b])
        else:
            new = graph.apply(op, [a, b][: row.arity])
        pools[str(new.dtype)].append(new)
    for pool in pools.values():
        pool[-1].output()
        pool[-1].pad((1, 2, 0, 1)).exp().output() if pool[-1].dtype.is_float else None
    with np.errstate(all="ignore"):
        same(outputs(program_of(graph), {}), outputs(fold_constants(program_of(graph)), {}))
