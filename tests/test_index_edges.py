"""Index arithmetic at the ends of i32 and i64: the compiled program is what the reference says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luminal import Graph, Tensor, ops
from luminal.errors import DimError
from luminal.graph.index import Index

BITS = {"i8": 7, "u8": 8, "i32": 31, "u32": 32, "i64": 63, "u64": 64}


@st.composite
def numbers(draw, dtype: str) -> int:
    """Near a power of two, most often the last ones of the dtype or of a narrower one."""
    bits = BITS[dtype]
    power = draw(st.sampled_from([n for n in (0, 4, 7, 30, 31, 32, 61, 62, 63, 64) if n <= bits]))
    value = (1 << power) + draw(st.integers(-3, 3))
    if dtype[0] == "i" and draw(st.booleans()):
        value = -value
    least = -(1 << bits) if dtype[0] == "i" else 0
    return min(max(value, least), (1 << bits) - 1)


@st.composite
def positions(draw, graph: Graph, shape: tuple, dtype: str, depth: int = 2) -> Tensor:
    """Integers that the compiler knows as indices, or nearly."""
    kind = draw(st.sampled_from(["iota", "literal", "add", "mul", "floor_div", "mod", "cast"]))
    if depth == 0 or kind in ("iota", "literal"):
        if kind == "literal":
            return graph.literal(draw(numbers(dtype)), dtype).expand(*shape)
        dim = draw(st.integers(0, len(shape) - 1))
        step = draw(st.sampled_from([1, -1, 3, 1 << 28, 1 << 30, (1 << 31) - 1, 1 << 59]))
        start = draw(st.sampled_from([0, -5, 1 << 31, (1 << 62) - 1]))
        return graph.iota(shape, Index.of(f"i{dim}") * step + start, dtype)
    if kind == "cast":
        narrow = draw(st.sampled_from(sorted(BITS)))
        return draw(positions(graph, shape, narrow, depth - 1)).cast(dtype)
    x = draw(positions(graph, shape, dtype, depth - 1))
    if kind in ("floor_div", "mod"):
        divisor = graph.literal(max(1, abs(draw(numbers(dtype)))) % (1 << BITS[dtype]) or 1, dtype)
        return graph.apply(kind, [x, divisor.expand(*shape)])
    if kind == "mul":
        return x * graph.literal(draw(numbers(dtype)), dtype)
    return x + draw(positions(graph, shape, dtype, depth - 1))


@st.composite
def masks(draw, graph: Graph, shape: tuple, depth: int = 2) -> Tensor:
    """Comparisons of positions, joined."""
    kind = draw(st.sampled_from(["less", "less", "equal", "and", "or", "not"]))
    if depth and kind == "not":
        return ~draw(masks(graph, shape, depth - 1))
    if depth and kind in ("and", "or"):
        a, b = draw(masks(graph, shape, depth - 1)), draw(masks(graph, shape, depth - 1))
        return a & b if kind == "and" else a | b
    dtype = draw(st.sampled_from(["i32", "i64", "i64", "u64", "i8"]))
    a, b = (draw(positions(graph, shape, dtype)) for _ in range(2))
    return graph.apply("equal" if kind == "equal" else "less", [a, b])


@st.composite
def programs(draw) -> tuple[Graph, dict[str, np.ndarray], dict[str, int]]:
    """A mask over an input, a gather and a scatter at such indices, the indices themselves."""
    graph = Graph()
    graph.dim("s", 1, 40)
    shape = draw(st.sampled_from([(19,), (3, 17), ("s",), ("s", 5), (2, "s")]))
    x = graph.tensor(shape, name="x")
    at = draw(positions(graph, shape, draw(st.sampled_from(["i64", "i32", "u64"]))))
    uses = draw(st.sets(st.sampled_from(["where", "gather", "scatter", "value"]), min_size=1))
    if "where" in uses:
        ops.where(draw(masks(graph, shape)), x, x * 0.5 - 1.0).output("where")
    if "gather" in uses:
        x._gather(at, 0).output("gather")
    if "scatter" in uses:
        (x * 0.0)._scatter(at, x, 0).output("scatter")
    if "value" in uses:
        at.output("value")
    size = draw(st.sampled_from([1, 7, 16, 33]))
    sizes = {"s": size} if "s" in shape else {}
    actual = tuple(size if n == "s" else n for n in shape)
    return graph, {"x": np.arange(np.prod(actual), dtype=np.float32).reshape(actual) + 1}, sizes


@given(programs())
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_indices_near_the_ends(program):
    graph, arrays, sizes = program
    results = []
    for device in ("cpu", "reference"):
        rt = graph.compile(device=device, threads=1)
        for name, array in arrays.items():
            rt[name] = array
        rt.run(**{name: size for name, size in sizes.items() if name in rt.sizes})
        results.append({name: np.array(rt[name]) for name in rt.outputs})
    for name, wanted in results[1].items():
        np.testing.assert_array_equal(results[0][name], wanted, err_msg=name)


DEVICES = pytest.mark.parametrize("device", ["cpu", "reference"])


@DEVICES
def test_lanes_far_apart(device):
    graph = Graph()
    x = graph.tensor((16,))
    far = graph.iota((16,), "i0") * 1_000_000_000
    y = ops.where(far < 5_000_000_000, x, x * 0.0).output()
    rt = graph.compile(device=device)
    rt[x] = np.ones(16, np.float32)
    rt.run()
    assert rt[y].tolist() == [1.0] * 5 + [0.0] * 11


@DEVICES
def test_a_gather_clamps_the_upper_half_of_u64_to_the_end(device):
    graph = Graph()
    x, at = graph.tensor((6,)), graph.tensor((4,), "u64")
    rows = ops.embedding(at, x.unsqueeze(1)).squeeze(1)
    read = [y.output() for y in (x._gather(at, 0), ops.index_select(x, 0, at), rows)]
    written = ops.scatter(x, 0, at, ops.full(graph, (4,), 9.0)).output()
    rt = graph.compile(device=device)
    rt[x], rt[at] = np.arange(6, dtype=np.float32), np.uint64([1, 1 << 63, (1 << 64) - 1, 5])
    rt.run()
    assert [rt[y].tolist() for y in read] == [[1.0, 5.0, 5.0, 5.0]] * 3
    assert rt[written].tolist() == [0.0, 9.0, 2.0, 3.0, 4.0, 9.0]


@DEVICES
def test_a_divisor_that_is_zero_at_run_time(device):
    graph = Graph()
    graph.dim("t", 0, 10)
    x, z = graph.tensor(("s", "t")), graph.tensor(("s//t",))
    (x * 2.0).output()
    (z * 2.0).output()
    rt = graph.compile(device=device)
    rt[x], rt[z] = np.ones((4, 0), np.float32), np.ones(2, np.float32)
    with pytest.raises(DimError, match=r"the divisor t of .* must be positive"):
        rt.run()


def test_a_divisor_that_depends_on_a_position():
    with pytest.raises(DimError, match=r"divisor i0 .* may not be positive"):
        Graph().iota((4,), Index.of(8) // Index.of("i0"))
