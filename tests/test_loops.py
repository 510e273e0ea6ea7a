"""Loops in a program: NumPy, the reference and the compiler agree, on one thread and on two."""

from __future__ import annotations

import numpy as np
import pytest
from backend.c_device import COMPILER

import luminal
from luminal import ops
from luminal.errors import DTypeError, InputError, ShapeError
from luminal.graph.loops import parts
from luminal.graph.stages import stages_of
from luminal.options import passed

RNG = np.random.default_rng(0)
AS_C = [("c", 1)] if COMPILER else []
STEPS = (0, 1, 2, 3, 7, 8)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def both(cx: luminal.Graph, given, sizes=None, **options) -> list[tuple[np.ndarray, ...]]:
    """The outputs for each row of inputs: on the reference, on one thread and on two, as C (where
    there is a compiler)."""
    found = []
    for device, threads in (("reference", 1), ("cpu", 1), ("cpu", 2), *AS_C):
        rt = cx.compile(device, threads=threads, cache=False, **options)
        rows = []
        for arrays in given:
            out = rt(*arrays, **(sizes or {}))
            rows.append(out if isinstance(out, tuple) else (out,))
        found.append(rows)
    for rows in found[1:]:
        for mine, right in zip(rows, found[0]):
            for a, b in zip(mine, right):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return found[0]


def test_a_recurrence_of_any_length_has_as_many_kernels():
    cx = luminal.Graph()
    cx.dim("s", 0, 4096)
    w, x, h0 = cx.tensor((3, 3)), cx.tensor(("s", 2, 3)), cx.tensor((2, 3))

    def step(carry, row):
        h, count = carry
        new = ops.tanh(h @ w + row)
        return (new, count + 1), {"new": new, "old": h}

    (h, count), rows = ops.scan(step, (h0, 0), x)
    for value in (h, count, rows["new"], rows["old"]):
        value.output()
    given = [(normal(3, 3), normal(s, 2, 3), normal(2, 3)) for s in STEPS]
    for (weights, xs, state), found in zip(given, both(cx, given)):
        states = [state]
        for row in xs:
            states.append(np.tanh(states[-1] @ weights + row))
        right = states[-1], len(xs), np.array(states[1:]), np.array(states[:-1])
        for mine, wanted in zip(found, right):
            np.testing.assert_allclose(mine, np.reshape(wanted, mine.shape), atol=1e-5)
    rt = cx.compile(threads=1)
    assert len(rt.kernels) <= 4 and "loop" in rt.explain()


def test_in_reverse_rows_stand_where_their_slices_stood():
    cx = luminal.Graph()
    cx.dim("s", 0, 100)
    x = cx.tensor(("s", 5))
    last, rows = ops.scan(lambda c, r: (c * 0.5 + r,) * 2, ops.zeros(cx, (5,)), x, reverse=True)
    last.output(), rows.output()
    given = [(normal(s, 5),) for s in STEPS]
    for (xs,), (c, found) in zip(given, both(cx, given)):
        want, right = np.zeros(5, np.float32), np.zeros_like(xs)
        for place in reversed(range(len(xs))):
            want = right[place] = want * np.float32(0.5) + xs[place]
        np.testing.assert_allclose(found, right, atol=1e-6)
        np.testing.assert_allclose(c, want, atol=1e-6)


def test_carries_that_are_swapped_turned_or_returned_as_they_are():
    cx = luminal.Graph()
    cx.dim("s", 0, 100)
    a, b, c, d = (cx.tensor((3, 3)) for _ in range(4))

    def step(carry, _):
        p, q, r, kept, replaced = carry
        return (q, p, r.T + kept, kept, kept), (p, replaced)

    results, rows = ops.scan(step, (a, b, c, d, a), length="s")
    for value in (*results, *rows):
        value.output()
    arrays = tuple(normal(3, 3) for _ in range(4))
    for s in STEPS:
        (found,) = both(cx, [arrays], {"s": s})
        p, q, r, kept = arrays
        replaced, firsts, lasts = p, [], []
        for _ in range(s):
            firsts.append(p), lasts.append(replaced)
            p, q, r, replaced = q, p, r.T + kept, kept
        wanted = (p, q, r, kept, replaced, *(np.reshape(x, (s, 3, 3)) for x in (firsts, lasts)))
        for mine, right in zip(found, wanted):
            np.testing.assert_allclose(mine, right, atol=1e-6)


def test_integers_and_bools_are_carried():
    cx = luminal.Graph()
    x = cx.tensor((9,), "i32")

    def step(carry, n):
        total, even, byte = carry
        return (total + n, even ^ (n % 2 == 1), byte + 1), (total, even)

    first = cx.literal(0, "i32"), cx.literal(True), cx.literal(250, "u8")
    results, rows = ops.scan(step, first, x)
    for value in (*results, *rows):
        value.output()
    numbers = np.arange(9, dtype=np.int32) ** 2
    ((total, even, byte, totals, evens),) = both(cx, [(numbers,)])
    assert total == numbers.sum() and even == (numbers.sum() % 2 == 0) and byte == (250 + 9) % 256
    assert (totals == np.cumsum(numbers) - numbers).all() and evens.dtype == np.bool_


def test_scans_in_scans_see_what_lies_around_them():
    cx = luminal.Graph()
    cx.dim("s", 0, 50)
    cx.dim("t", 0, 50)
    x, y, w = cx.tensor(("s", 3)), cx.tensor(("t", 3)), cx.tensor((3, 3))
    around = (w @ w) * 0.1

    def outer(carry, row):
        moved = carry @ around

        def inner(c, other):
            new = ops.sin(c + other * row + moved)
            return new, new * carry

        last, rows = ops.scan(inner, carry, y, reverse=True)
        return last + row, (rows, last)

    last, (rows, lasts) = ops.scan(outer, ops.ones(cx, (3,)), x)
    more = (rows.sum((0, 1)) + last).output()
    for value in (last, rows, lasts):
        value.output()
    assert more is not None
    given = [(normal(s, 3), normal(t, 3), normal(3, 3))
             for s, t in ((0, 2), (1, 0), (1, 1), (3, 4), (4, 3), (2, 2))]  # fmt: skip
    for (xs, ys, weights), found in zip(given, both(cx, given)):
        around_them, c = weights @ weights * 0.1, np.ones(3, np.float32)
        kept = np.zeros((len(xs), len(ys), 3))
        for i, row in enumerate(xs):
            inside = c
            for j in reversed(range(len(ys))):
                inside = np.sin(inside + ys[j] * row + c @ around_them)
                kept[i, j] = inside * c
            c = inside + row
        np.testing.assert_allclose(found[1], c, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[2], kept, rtol=1e-4, atol=1e-4)


def test_a_carry_that_is_only_written_into_stays_in_place():
    cx = luminal.Graph()
    cx.dim("s", 0, 64)
    cache, x = cx.tensor((64, 16)), cx.tensor(("s", 16))
    at = cx.tensor((), "i64")

    def step(carry, row):
        kept, place = carry
        index = (place % 64).expand(1, 16)
        kept = ops.scatter(kept, 0, index, row.unsqueeze(0))
        return (kept, place + 3), kept.sum(0)

    (kept, _), sums = ops.scan(step, (cache, at), x)
    kept.output(), sums.output(), cx.donate(cache, kept)
    array = normal(64, 16)
    rows = normal(7, 16)
    for threads in (1, 2):
        rt = cx.compile(threads=threads)
        plan = rt._report.plan
        (loop,) = plan.loops
        assert sum(carried.spare == carried.result for carried in loop.carried) == 1
        rt[cache], want, start = array, array.copy(), 0
        for count in (7, 0, 4, 1):
            rt[x], rt[at] = rows[:count], start
            rt.run()
            for n in range(count):
                want[(start + 3 * n) % 64] = rows[n]
            start += 3 * count
            np.testing.assert_array_equal(rt[kept], want)
            np.testing.assert_array_equal(rt[cache], want)


def test_while_loops_end_when_their_condition_does():
    cx = luminal.Graph()
    n, x = cx.tensor((), "i64"), cx.tensor((4, 4))
    count, power = ops.while_loop(
        lambda c: (c[0] > 0) & (c[1].sum() < 1e6), lambda c: (c[0] - 1, c[1] @ x), (n, x)
    )
    few = ops.while_loop(lambda c: c < 100, lambda c: c * 3, n + 1, max_steps=3)
    count.output(), power.output(), few.output()
    array = np.abs(normal(4, 4))
    given = [(k, array) for k in (0, 1, 2, 5, 1000)]
    for (k, _), (left, found, bounded) in zip(given, both(cx, given)):
        want, steps = array, k
        while steps > 0 and want.sum() < 1e6:
            want, steps = want @ array, steps - 1
        assert left == steps
        np.testing.assert_allclose(found, want, rtol=1e-4)
        wanted = k + 1
        for _ in range(3):
            wanted = wanted * 3 if wanted < 100 else wanted
        assert bounded == wanted


def test_a_while_loop_inside_a_scan():
    cx = luminal.Graph()
    x = cx.tensor((10,), "i64")

    def collatz(start):
        return ops.while_loop(
            lambda c: c[0] > 1,
            lambda c: (ops.where(c[0] % 2 == 0, c[0] // 2, c[0] * 3 + 1), c[1] + 1),
            (start, 0),
        )[1]

    _, counts = ops.scan(lambda c, n: (c, collatz(n)), cx.literal(0), x)
    counts.output()
    ((found,),) = both(cx, [(np.arange(1, 11),)])
    assert found.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6]


def test_cond_chooses():
    cx = luminal.Graph()
    x, yes = cx.tensor((3,)), cx.tensor((), "bool")
    ops.cond(yes, lambda v: {"a": v + 1}, lambda v: {"a": v * 2}, x)["a"].output()
    for (found,), wanted in zip(both(cx, [([1, 2, 3], True), ([1, 2, 3], False)]), (3, 4)):
        assert found[1] == wanted


def test_what_steps_make_of_weights_alone_is_made_once():
    cx = luminal.Graph()
    w, v = cx.parameter((8, 8)), cx.parameter((8,))
    x = cx.tensor((5, 8))
    last, rows = ops.scan(lambda c, r: (c @ (w @ w.T) + r, v * 2), ops.zeros(cx, (8,)), x)
    last.output(), rows.output()
    w.set(normal(8, 8) * 0.1), v.set(normal(8))
    ((_, doubled),) = both(cx, [(normal(5, 8),)])
    np.testing.assert_allclose(doubled, np.tile(cx.values[v.node] * 2, (5, 1)))
    assert any(call.constant for call in cx.compile()._report.plan.calls)


def test_little_work_on_one_input_waits_for_the_block_that_reads_it():
    cx = luminal.Graph()
    x, mean, kept = cx.tensor((9, 5)), cx.tensor(5), cx.tensor(5)
    last, _ = ops.scan(lambda c, r: (ops.tanh(c + r), None), mean * 0.5, x)
    (mean * 0.9 + last * 0.1).output()  # in one kernel behind the loop
    ((mean * 0.9).expand((9, 5)) + (x * last)).output()
    (kept * kept).output(), (kept * kept + last).output()  # an output is in memory anyway
    both(cx, [(normal(9, 5), normal(5), normal(5))])
    rt = cx.compile(threads=1)
    assert len(rt.kernels) == 6


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_factors_of_products_lie_in_memory_between_loops_as_what_they_are_made_of(precision):
    cx = luminal.Graph()
    x, w = cx.tensor((40, 48)) * cx.tensor((40, 48)), cx.tensor((48, 56))
    _, sums = ops.scan(lambda c, r: (ops.tanh(c + r),) * 2, ops.zeros(cx, (56,)), x @ w)
    sums.output()
    (gradient,) = luminal.train.backward((sums * sums).sum(), [w])  # x times other columns
    gradient.output()
    both(cx, [(normal(40, 48), normal(40, 48), normal(48, 56) * 0.1)])
    plan = cx.compile(precision=precision, threads=1, cache=False)._report.plan
    assert max(memory.bytes({}) for memory in plan.memories) <= 48 * 56 * 4


def test_what_is_made_of_one_value_in_several_ways_is_made_again_behind_a_loop():
    cx = luminal.Graph()
    h = cx.tensor((9, 4)) @ cx.tensor((4, 5))
    u, v, w = h * 0.5, ops.tanh(h), ops.exp(ops.exp(h) + cx.tensor((9, 5)))
    _, sums = ops.scan(lambda c, r: (c + r,) * 2, ops.zeros(cx, (5,)), u * v * w)
    (sums * u + sums * v).output(), (sums * w).output()
    first, *_ = stages_of([x.node for x in cx.outputs])
    assert {h.node, w.node} < set(first.kept)  # w is made of h and of something else
    assert {u.node, v.node}.isdisjoint(first.kept)
    both(cx, [(normal(9, 4), normal(4, 5) * 0.1, normal(9, 5))])


def most(cx: luminal.Graph) -> int:
    """Bytes of the largest piece of memory."""
    plan = cx.compile(threads=1, cache=False)._report.plan
    return max(memory.bytes({}) for memory in plan.memories)


def test_what_does_not_vary_along_a_dimension_is_not_repeated_before_a_loop():
    cx = luminal.Graph()
    a, b, x = cx.tensor((8, 5)), cx.tensor((8, 5)), cx.tensor(8)
    table = (a.expand((99, 8, 5)) * ops.exp(b).expand((99, 8, 5))).sum(2) + a.amax(1)
    last, _ = ops.scan(lambda c, _: (ops.tanh((table * c).sum(0)), None), x, None, length=3)
    last.output(), ops.flip(table, (1,))[3:5].output()
    both(cx, [(normal(8, 5) * 0.1, normal(8, 5), normal(8))])
    assert most(cx) == 8 * 5 * 4


def test_steps_make_slices_of_less_than_their_stack():
    """Of what repeats, of bytes, and of views that turn; in both directions."""
    for reverse in (False, True):
        cx = luminal.Graph()
        x, bias = cx.tensor((6, 7)), cx.tensor((9, 6))
        w, scale = cx.tensor((9, 7, 6), "i8"), cx.tensor((9, 1, 7))
        scaled = ops.flip(w, (1,)).mT.cast("f32") * scale
        alike, padded = x.expand((9, 6, 7)), ops.pad(bias.unsqueeze(2) + x * 2, (1, 0))

        def step(c, given):
            scaled, alike, padded, bias, again = given
            new = ops.tanh(c * 0.5 + scaled * padded[:, :7] + alike)
            return new, {"new": new, "alike": alike, "bias": bias * again}

        given = (scaled, alike, padded, bias, bias)
        last, rows = ops.scan(step, ops.zeros(cx, (6, 7)), given, reverse=reverse)
        last.output(), rows["new"].sum(1).output(), rows["alike"].sum(0).output()
        rows["bias"].sum().output()
        arrays = normal(6, 7), normal(9, 6), RNG.integers(-9, 9, (9, 7, 6)).astype(np.int8)
        arrays = *arrays, normal(9, 1, 7) * 0.1
        (found,) = both(cx, [arrays])
        for mine, right in zip(found, cx.compile("reference", passes=[])(*arrays)):
            np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)
        program = passed(cx, "reference", "f32")
        (loop,) = (node for node in program.nodes() if node.op == "loop")
        assert [stack.dtype.name for stack in parts(loop).stacks] == ["f32", "i8", "f32"]


@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
def test_check_knows_loops(precision):
    cx = luminal.Graph()
    w, x = cx.parameter((32, 32)), cx.tensor(("s", 2, 32))
    ops.scan(lambda h, r: (ops.tanh(h @ w + r),) * 2, ops.zeros(cx, (2, 32)), x)[1].output()
    cx.compile(check=True, precision=precision, cache=False)


def test_saved_programs_keep_their_loops(tmp_path):
    cx = luminal.Graph()
    x = cx.tensor(("s", 4), name="x")
    _, rows = ops.scan(lambda c, r: (c + r, c * r), ops.zeros(cx, (4,)), x, reverse=True)
    rows.output("rows")
    rt = cx.compile(threads=2)
    array = normal(5, 4)
    right = rt(array)
    rt.save(tmp_path / "p.lum")
    np.testing.assert_array_equal(luminal.load(tmp_path / "p.lum")(array), right)


def test_time_of_kernels_in_loops():
    cx = luminal.Graph()
    cx.dim("s", 0, 9)
    x = cx.tensor(("s", 4))
    ops.scan(lambda c, r: (c + r, c * r), ops.zeros(cx, (4,)), x)[1].output()
    rt = cx.compile(threads=2)
    for steps in (3, 0):
        rt(normal(steps, 4))
        assert (0.0 in [seconds for _, seconds in rt.time_kernels(2)]) == (steps == 0)


def test_what_does_not_fit_is_refused():
    cx = luminal.Graph()
    x, y = cx.tensor((4, 3)), cx.tensor((5, 3))
    zero = ops.zeros(cx, (3,))
    with pytest.raises(ShapeError, match="carries keeps"):
        ops.scan(lambda c, r: (c.sum(), None), zero, x)
    with pytest.raises(ShapeError, match="carries keeps"):
        ops.scan(lambda c, r: (c > 0, None), zero, x)
    with pytest.raises(ShapeError, match="differ"):
        ops.scan(lambda c, r: (c, None), zero, (x, y))
    with pytest.raises(InputError, match="length"):
        ops.scan(lambda c, r: (c, None), zero)
    with pytest.raises(InputError, match="returns"):
        ops.scan(lambda c, r: c, zero, x)
    with pytest.raises(InputError, match="wanted"):
        ops.scan(lambda c, r: ((c, c), None), zero, x)
    with pytest.raises((ShapeError, DTypeError), match="condition"):
        ops.while_loop(lambda c: c.sum(), lambda c: c, zero)
    with pytest.raises(InputError, match="one graph"):
        other = luminal.Graph().tensor((3,))
        ops.scan(lambda c, r: (c, other), zero, x)
