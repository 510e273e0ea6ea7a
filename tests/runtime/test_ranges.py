"""Kernels for ranges of a size: chosen by the sizes of a run, all on one copy of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal import Graph, ops
from luminal.errors import DimError
from luminal.graph.dtype import f32, i64
from luminal.graph.index import Index
from luminal.jobs import jobs_of
from luminal.kernel.canonical import canonical
from luminal.kernel.kernel import Apply, Buffer, Kernel, Load, Store, Value
from luminal.kernel.ranges import ranges_of
from luminal.rewrite.by_range import Alternative
from luminal.rewrite.lower_plan import Ref, Step
from luminal.runtime.link import Linker
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
    usual = {"s": (0, 4), "t": (2, 8, 40), "u": (2,), "unused": (1, 5)}
    found = [ranges for ranges, _ in ranges_of(sizes, usual)]
    assert len(found) == 6
    for s in range(10):
        for t in range(2, 41):
            at = {"s": s, "t": t}
            assert sum(all(a <= at[n] <= b for n, a, b in r) for r in found) == 1


def test_where_nothing_is_made_no_kernel_is() -> None:
    """Of few rows none is taken: no kernel for the range of one row, and no call for five."""
    graph = Graph()
    rows = graph.dim("rows", 1, 99, hint=(1, 64))
    x = graph.tensor((rows, 4), name="x")
    (x.narrow(0, 0, rows * (rows // 8).minimum(1)) * 2.0).output()
    rt = graph.compile(threads=1)
    assert len(rt.kernels) == 1
    for count, calls in ((1, 0), (5, 0), (8, 1), (70, 1)):
        found = rt(np.ones((count, 4), np.float32))
        assert found.shape == (count * calls, 4) and (found == 2).all()
        assert len(rt.trace()) == calls


def test_a_hint_outside_the_bounds_is_refused() -> None:
    with pytest.raises(DimError, match="hint"):
        Graph().dim("rows", 1, 8, hint=(1, 9))
    for hint in (("a",), (1.5,), "1"):
        with pytest.raises(DimError, match="neither a number nor several"):
            Graph().dim("rows", 1, 8, hint=hint)  # type: ignore[arg-type]


def test_operands_that_are_made_apart_are_laid_out_as_each_range_reads_them() -> None:
    """Once for the rows of all sizes, once for those of the range that is one size."""
    graph = Graph()
    x = graph.tensor((graph.dim("rows", 1, 512, hint=(189, 190, 300)), 8))
    (ops.softmax(x, -1) @ x.T).output()
    rt = graph.compile(threads=1, cache=False, database=False)
    for count in (189, 190, 191):
        given = np.random.default_rng(count).standard_normal((count, 8), dtype=np.float32)
        part = np.exp(given)
        wanted = part / part.sum(-1, keepdims=True) @ given.T
        np.testing.assert_allclose(rt(given), wanted, rtol=1e-4, atol=1e-5)


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

    def several(extractor: Any, plan: Any, usual: Any) -> Any:
        sizes = {n: extractor.classes.encoding.space.sizes[n] for n in usual}
        ranges = ranges_of(sizes, usual)
        pool = [plan, *extractor.plans(4)[1:]]
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


def scaled(*constants: str) -> Step:
    """A product of each row with constants, by their names in the region."""
    a, b = Index.of("a"), Index.of("b")
    body: Any = Load("x", (a, b), f32)
    for name in constants:
        body = Apply("mul", (body, Load(name, (b,), f32)), f32)
    rows, row = (Index.of("s"), Index.of(4)), (Index.of(4),)
    weights = [Buffer(name, f32, row, constant=True) for name in constants]
    buffers = Buffer("x", f32, rows), *weights, Buffer("y", f32, rows)
    value = Value("v", ("a", "b"), body, f32, store=Store("y", (a, b)))
    kernel = Kernel("", buffers, dict(zip("ab", rows)), (value,), {"s": (1, 8)}, {"s": 8})
    refs = {b.name: Ref("input", int(b.name)) for b in weights}
    return Step(kernel, {"x": Ref("input", 0), "y": Ref("output", 0), **refs}, constant=False)


def test_kernels_that_share_constants_are_made_together_and_each_once() -> None:
    usual = {"s": (1, 8)}
    (whole,), parts = jobs_of([[scaled("1")]], usual)
    assert len(whole.kernels) == 2 and [len(several) for several in parts.values()] == [2]
    apart, parts = jobs_of([[scaled()]], usual)  # nothing to agree on
    assert [len(job.kernels) for job in apart] == [1, 1] and len(parts) == 1
    here, there = scaled("7"), scaled("7", "2")
    jobs, parts = jobs_of([[scaled("1")], [here, there], [scaled("1", "2", "3")]], usual)
    first, last = jobs
    assert [len(job.kernels) for job in jobs] == [4, 2] and len(parts) == 3
    assert list(first.kernels)[:2] == list(whole.kernels)  # in order; and those of `here` are these
    names = [set(names.values()) for _, names in first.kernels.values()]
    assert names[0] == names[1] < names[2] == names[3]
    others = (names.values() for _, names in last.kernels.values())
    assert names[2].isdisjoint(set().union(*others))


def test_a_program_that_several_kernels_share_is_linked_once() -> None:
    graph = Graph()
    (graph.tensor((graph.dim("rows", 1, 8), 32)) * 2.0).output()
    (made,) = graph.compile(cache=False, database=False).kernels
    kernels = [replace(made.kernel, name="", hints={"rows": hint}) for hint in (2, 8)]
    linker = Linker({"rows": (1, 8)}, {repr(canonical(k)[0]): [((), [made])] for k in kernels})
    for kernel in kernels:
        linker.call(kernel, {buffer.name: n for n, buffer in enumerate(kernel.buffers)}, False)
    assert len(linker.calls) == 2 and linker.kernels == [made]
