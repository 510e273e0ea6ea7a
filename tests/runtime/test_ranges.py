"""Kernels for ranges of a size: chosen by the sizes of a run, all on one copy of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from luminal import Graph, ops
from luminal.errors import DimError
from luminal.graph.dtype import i64
from luminal.graph.index import Index
from luminal.kernel.kernel import Kernel
from luminal.kernel.ranges import kernels_by_range, ranges_of
from luminal.rewrite.by_range import Alternative
from luminal.search import plans

WIDTH, OUT = 96, 160


def product(hint: Sequence[int] | int | None, kind: str = "f32", **options: Any) -> Any:
    """rows @ weight^T for 1 .. 64 rows: (executable, function of rows, expected)."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((OUT, WIDTH), dtype=np.float32)
    graph = Graph()
    rows = graph.dim("rows", 1, 64, hint=hint)
    x = graph.tensor((rows, WIDTH))
    w = graph.parameter((OUT, WIDTH), kind)
    y = ops.silu(ops.linear(x, w.cast("f32"))).output()
    w.set(weight.astype(w.dtype.numpy))
    rt = graph.compile(database=False, **options)

    def run(count: int) -> tuple[np.ndarray, np.ndarray]:
        given = random.standard_normal((count, WIDTH), dtype=np.float32)
        rt[x] = given
        rt.run()
        plain = given @ weight.astype(w.dtype.numpy).astype(np.float32).T
        return rt[y], plain / (1 + np.exp(-plain))

    return rt, run


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("hint", [(1, 64), (1, 8, 32), (5, 20)])
def test_every_size_gets_the_kernel_of_its_range(hint: tuple[int, ...], kind: str) -> None:
    rt, run = product(hint, kind, threads=2)
    for count in (1, 2, 64, 1, 5, 6, 8, 9, 33, 20, 21, 1):
        got, wanted = run(count)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-4)
    assert len(rt.kernels) == len(hint)


def test_the_ranges_share_the_packed_weights() -> None:
    one, run_one = product(64)
    many, run_many = product((1, 8, 64))
    run_one(64), run_many(1), run_many(8), run_many(64)
    spare = 4096 * 8  # workspaces of other tiles
    assert many.peak_bytes < one.peak_bytes + WIDTH * OUT * 4 / 2 + spare
    assert len({kernel.schedule.text() for kernel in many.kernels}) > 1


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_all_ranges_walk_the_panels_of_the_largest(kind: str) -> None:
    (largest,) = product(64, kind)[0].kernels
    (layout,) = largest.schedule.layouts.values()
    width = layout[0][1]
    for made in product((1, 8, 64), kind)[0].kernels:
        assert layout in made.schedule.layouts.values()
        (path,) = (made.schedule.paths[v.name] for v in made.kernel.values if v.reduction)
        (lane,) = (loop.axis for loop in path if loop.kind == "vector")
        tiles = [loop.step for loop in path if loop.axis == lane and not loop.constant]
        assert tiles and all(step % width == 0 for step in tiles)


def test_a_size_of_one_value_is_no_size() -> None:
    rt, _ = product((1, 64))
    first, second = rt.kernels
    assert first.program.sizes == ("rows",) and not second.program.sizes


def test_ranges_cover_all_sizes_once() -> None:
    sizes = {"s": (0, 9), "t": (2, 40), "u": (1, 3)}
    kernel = Kernel("", (), {"a": Index.of("s")}, (), sizes)
    usual = {"s": (0, 4), "t": (2, 8, 40), "u": (2,), "unused": (1, 5)}
    found = [ranges for ranges, _ in kernels_by_range(kernel, usual)]
    assert len(found) == 6
    for s in range(10):
        for t in range(2, 41):
            at = {"s": s, "t": t}
            assert sum(all(a <= at[n] <= b for n, a, b in r) for r in found) == 1


def test_a_hint_outside_the_bounds_is_refused() -> None:
    with pytest.raises(DimError, match="hint"):
        Graph().dim("rows", 1, 8, hint=(1, 9))


def test_a_row_of_a_table_at_a_run_time_position() -> None:
    """With one token, the row is a size and no axis: such a table keeps its layout."""
    graph = Graph()
    tokens, position = graph.dim("tokens", 1, 8, hint=(1, 8)), graph.dim("position", 0, 8)
    table = np.random.default_rng(0).standard_normal((16, 32), dtype=np.float32)
    x = graph.tensor((tokens, 32))
    y = (x * graph.constant(table).narrow(0, position, tokens)).output()
    rt = graph.compile(database=False)
    for at, count in ((3, 1), (0, 8), (8, 1), (5, 2)):
        given = np.full((count, 32), 2.0, np.float32)
        rt[x] = given
        rt.run(position=at)
        np.testing.assert_array_equal(rt[y], 2 * table[at : at + count])


# ---- plans by range


@pytest.fixture
def plans_differ(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each range has a plan of its own, whatever they cost; how many alternatives there were."""
    counts = []

    def several(chooser: Any, plan: Any, usual: Any) -> Any:
        sizes = {n: chooser.classes.encoding.space.sizes[n] for n in usual}
        ranges = ranges_of(sizes, usual)
        pool = [plan, *chooser.plans(4)[1:]]
        counts.append(len(pool))
        return [Alternative(*each, pool[n % len(pool)]) for n, each in enumerate(ranges)]

    monkeypatch.setattr(plans, "alternatives", several)
    return counts


def test_each_range_may_have_a_plan_of_its_own(plans_differ: list[int]) -> None:
    """A norm, a product of quantised weights, a state that takes rows, attention over it."""
    random = np.random.default_rng(0)
    graph = Graph()
    rows, at = graph.dim("rows", 1, 16, hint=(1, 8, 16)), graph.dim("at", 0, 16)
    x = graph.tensor((rows, 32), name="x")
    raw = random.integers(-9, 9, (24, 32)).astype(np.int8)
    scale = random.random((24, 1), dtype=np.float32) / 50
    weight = graph.constant(raw).cast("f32") * graph.constant(scale)
    past = graph.tensor((32, 24), name="past")
    y = ops.linear(x * ops.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5), weight)
    place = graph.iota((rows, 24), Index.of("at") + Index.of("i0"), i64)
    now = past.scatter(0, place, y)
    seen = now.narrow(0, 0, rows + at)
    out = ((y @ seen.T).softmax(-1) @ seen).output("out")
    graph.donate(past, now)
    rt = graph.compile(cache=False, database=False, check=True)
    assert max(plans_differ) > 1
    rt.clear([past])
    kept, first = np.zeros((32, 24), np.float32), 0
    for count in (1, 8, 3, 16, 1, 2, 1):
        given = random.standard_normal((count, 32), dtype=np.float32)
        first = 0 if first > 16 else first
        rt["x"] = given
        rt.run(at=first)
        normed = given / np.sqrt((given**2).mean(-1, keepdims=True) + 1e-5)
        mine = normed @ (raw * scale).T
        kept[first : first + count] = mine
        powers = np.exp(mine @ kept[: first + count].T)
        wanted = powers @ kept[: first + count] / powers.sum(-1, keepdims=True)
        np.testing.assert_allclose(rt[out], wanted, rtol=1e-4, atol=1e-4)
        first += count
    assert not any(call.copies for call in rt.report.plan.calls)


def test_steps_that_all_plans_have_are_there_once(plans_differ: list[int]) -> None:
    rt, run = product((1, 64), "bf16", cache=False)
    texts = [(call.kernel, call.arguments) for call in rt.report.plan.calls if not call.ranges]
    assert len(set(texts)) == len(texts)
    for count in (1, 64, 7):
        np.testing.assert_allclose(*run(count), rtol=2e-5, atol=2e-4)
