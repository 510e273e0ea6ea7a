"""The oracle of candidates: planted faults of every kind are found, in the default as well."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from search_cases import KERNELS, TARGET, prepared

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
import default_cases as cases

import luminal
from luminal import ops, train
from luminal.backend import cpu
from luminal.graph.dtype import bf16, boolean, f32
from luminal.graph.index import Index
from luminal.kernel.kernel import Apply, Constant, Guard, Load, Read, Rewriter
from luminal.kernel.narrow import whole_weights
from luminal.scheduling.prepare import prepare
from luminal.search import oracle
from luminal.search.inputs import KINDS, arrays
from luminal.search.left import said_elsewhere
from luminal.search.oracle import checkable, expected, judge, samples
from luminal.search.space import Space
from luminal.search.trial import Bench

MORE = {
    "running sum": cases.cumsum(9, 40),
    "causal": cases.attention(2, 40, 40, 16),
    "tops": cases.kernel(
        "tops", [cases.buffer("X", 40, 96), cases.buffer("Y", 40)], {"m": 40, "k": 96},
        [cases.value("top", "m", cases.load("X", "m", "k"), cases.total("k", op="max")),
         cases.value("out", "m", cases.add(cases.read("top"), cases.const(1.0)), None,
                     cases.store("Y", "m"))]),
    "large": cases.gemm(1024, 1024, 512, epilogue=False),
}  # fmt: skip


def space(name):
    kernel = prepared(name) if name in KERNELS else prepare(MORE[name], TARGET)[0]
    return Space(kernel, TARGET)


# ---- faults: from a scheduled kernel to one that is wrong


def changed(kernel, change):
    """All expressions rewritten."""
    rewriter = Rewriter(change)
    return replace(kernel, values=tuple(map(rewriter.value, kernel.values)))


def stored(kernel, change):
    """The stored body rewritten."""
    return replace(kernel, values=tuple(
        replace(v, body=change(v.body)) if v.store else v for v in kernel.values))  # fmt: skip


def apply(op, *args, dtype=f32):
    return Apply(op, args, dtype)


def masked_by_one_more(kernel):
    def change(e):
        return (
            replace(e, conditions=tuple(c - 1 for c in e.conditions)) if isinstance(e, Guard) else e
        )

    return changed(kernel, change)


def unmasked(kernel):
    return changed(kernel, lambda e: e.body if isinstance(e, Guard) else e)


def without_nan(kernel):
    def change(body):
        return apply("select", apply("equal", body, body, dtype=boolean), body, Constant(0.0, f32))

    return stored(kernel, change)


def another_number_at_infinity(kernel):
    def change(body):
        size = apply("max", body, apply("mul", body, Constant(-1.0, f32)))
        fine = apply("less", size, Constant(1e6, f32), dtype=boolean)
        return apply("select", fine, body, Constant(12345.0, f32))

    return stored(kernel, change)


def capped(kernel):
    return stored(kernel, lambda body: apply("min", body, Constant(3e38, f32)))


def swapped_rows(axis):
    def fault(kernel):
        other = {axis: Index.of(axis) + 1 - Index.of(axis) % 2 * 2}

        def change(e):
            if not isinstance(e, Load) or len(e.index) < 2:
                return e
            return replace(e, index=tuple(i.substitute(other) for i in e.index))

        return changed(kernel, change)

    return fault


def shorter(axis, by):
    def fault(kernel):
        return replace(kernel, axes={**kernel.axes, axis: kernel.axes[axis] - by})

    return fault


def stale_maximum(kernel):
    def change(e):
        return Read("before", e.dtype) if isinstance(e, Read) and e.so_far else e

    values = [Rewriter(change).value(v) if v.name == "p" else v for v in kernel.values]
    return replace(kernel, values=tuple(values))


def not_rescaled(kernel):
    def change(v):
        online = v.reduction is not None and v.reduction.rescale is not None
        return replace(v, reduction=replace(v.reduction, rescale=None)) if online else v

    return replace(kernel, values=tuple(map(change, kernel.values)))


FAULTS = [
    ("causal", masked_by_one_more), ("causal", unmasked), ("causal", stale_maximum),
    ("causal", not_rescaled), ("causal", shorter("h", 1)), ("causal", without_nan),
    ("softmax", without_nan), ("softmax", swapped_rows("m")), ("softmax", shorter("k", 1)),
    ("softmax", shorter("m", 1)), ("tops", another_number_at_infinity), ("tops", capped),
    ("tops", without_nan), ("tops", shorter("k", 16)), ("gemm", shorter("n", 16)),
    ("gemm", shorter("k", 1)), ("gemm", without_nan), ("gemm", swapped_rows("m")),
    ("running sum", without_nan), ("large", shorter("n", 1)), ("large", shorter("k", 4)),
    ("large", without_nan), ("large", swapped_rows("m")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda x: getattr(x, "__qualname__", x))
def test_planted_faults_are_found_even_in_the_default(name, fault):
    made = space(name)
    bench, default = Bench(made.kernel, TARGET, cpu), made.default
    wrong = fault(default.kernel)
    assert wrong != default.kernel
    for number in (0, 1):
        result = bench.attempt(number, wrong, default.schedule)
        assert result.status == "wrong" and "instead of" in result.detail
    assert bench.attempt(0, default.kernel, default.schedule).status == "ok"
    assert bench.attempt(1, wrong, default.schedule).status == "wrong"


def test_what_no_sample_sees_is_held_against_the_default():
    made = space("large")
    bench, default = Bench(made.kernel, TARGET, cpu), made.default
    seen = samples(made.kernel, {}, 0)["m"]
    unseen = next(n for n in range(1000) if n not in seen)

    def change(body):
        there = Guard((Index.of("m") - unseen, unseen - Index.of("m")), Constant(9.0, f32), body)
        return there

    wrong = stored(default.kernel, change)
    assert bench.attempt(0, default.kernel, default.schedule).status == "ok"
    result = bench.attempt(1, wrong, default.schedule)
    assert result.status == "wrong" and f"C[{unseen}, 0] is 9.0" in result.detail


@pytest.mark.parametrize("name", [*KERNELS, *MORE])
def test_nearly_everything_is_judged(name):
    """What rounding might turn into no number is not; it must stay rare, or the check is void."""
    kernel = space(name).kernel
    for case in oracle.cases(kernel, 0):
        shares = [case.judge.looked[n].mean() for n in kernel.outputs]
        if case.kind == "calm" and not case.sampled:
            assert min(shares) == 1.0
        elif not case.sampled:
            assert min(shares) > 0.7, case.kind


def test_samples_hold_ends_and_tails_and_leave_reduced_axes_alone():
    kernel = space("large").kernel
    found = samples(kernel, {}, 0)
    assert set(found) <= {"m", "n"} and "k" not in found
    for axis, where in found.items():
        extent = int(kernel.axes[axis])
        assert {0, *range(extent - oracle.TAIL, extent)} <= set(where) and len(where) < extent
    assert samples(prepared("softmax"), {}, 0) == {}
    assert samples(cases.softmax(1 << 14, 1 << 9), {}, 0).keys() == {"m"}
    assert checkable(cases.gemm(1 << 14, 1 << 14, 1 << 14), {})


def test_sampled_positions_are_those_of_the_whole():
    kernel = prepared("attention")
    given = arrays(kernel, {}, 0, "points")
    whole = expected(kernel, given, {})
    part = judge(kernel, given, {}, {"q": np.array([0, 7, 23])})
    looked = part.looked["O"]
    rows = set(np.flatnonzero(looked.any(axis=(0, 2))))
    assert rows and rows <= {0, 7, 23}
    np.testing.assert_array_equal(part.wanted["O"], whole["O"][looked])


def test_the_judge_knows_how_far_rounding_goes():
    out = cases.value(
        "out", "m", cases.load("X", "m", "k"), cases.total("k"), cases.store("Y", "m")
    )
    buffers = [cases.buffer("X", 3, 256), cases.buffer("Y", 3)]
    kernel = cases.kernel("sum", buffers, {"m": 3, "k": 256}, [out])
    x = np.ones((3, 256), np.float32)
    x[0, :2], x[1, 7], x[2, :2] = (1e15, -1e15), np.nan, (np.inf, -np.inf)
    found = judge(kernel, {"X": x, "Y": np.zeros(3, np.float32)}, {}, {})
    assert found.looked["Y"].all() and found.slack["Y"][0] > 1e8
    for number, wrong in ((1, 0.0), (2, np.inf), (0, np.nan)):
        outputs = found.wanted["Y"].copy()
        outputs[number] = wrong
        assert f"Y[{number}]" in found.fault({"Y": outputs})
    plain = judge(
        kernel, {"X": np.ones((3, 256), np.float32), "Y": np.zeros(3, np.float32)}, {}, {}
    )
    assert plain.fault({"Y": plain.wanted["Y"] + np.float32(1e-3)}) == ""
    assert plain.fault({"Y": plain.wanted["Y"] - np.float32(0.5)})


@pytest.mark.parametrize("kind", KINDS)
def test_factors_that_are_rounded_may_be_multiplied_as_they_were(kind):
    """Sums of few products, of which roundings may cancel by chance, between zeros of padding."""
    x, w = cases.load("X", "m"), cases.load("W", "n", "k")
    seen = Guard((Index.of("m") - Index.of("k") - 2,), x, Constant(0.0, f32))
    pair = (cases.cast(cases.cast(e, bf16), f32) for e in (seen, w))
    out = cases.value("out", "mn", cases.mul(*pair), cases.total("k"), cases.store("Y", "m", "n"))
    buffers = [cases.buffer("X", 24), cases.buffer("W", 8, 3), cases.buffer("Y", 24, 8)]
    kernel = cases.kernel("few", buffers, {"m": 24, "n": 8, "k": 3}, [out])
    given = arrays(kernel, {}, 3, kind)
    found = judge(kernel, given, {}, {})
    assert found.fault(expected(oracle._skipping(whole_weights(kernel)), given, {}, {})) == ""
    if kind == "calm":
        assert found.fault({"Y": expected(kernel, given, {}, {})["Y"] * np.float32(1.05)})


def test_inputs_are_hostile():
    shown = {}
    for kind in KINDS:
        found = arrays(prepared("softmax"), {}, 0, kind)
        shown[kind] = np.concatenate([a.reshape(-1) for a in found.values()])
    assert np.isfinite(shown["calm"]).all()
    points, lines = shown["points"], shown["lines"]
    assert np.isnan(points).any() and (points == np.inf).any() and (points == -np.inf).any()
    assert (np.signbit(points) & (points == 0)).any() and (np.abs(points) > 1e38).any()
    tiny = (points != 0) & (np.abs(points) < np.finfo(np.float32).tiny)
    assert tiny.any() and (lines == -np.inf).sum() >= 96
    indices = arrays(prepared("embedding"), {}, 0, "points")["I"]
    assert (indices < 0).any() or (indices > 49).any()


def test_ends_that_no_guard_says():
    """Sums end where another kernel has left zeros, or where nobody looks at them: a kernel may go
    on, and must not stop before."""
    graph = luminal.Graph()
    graph.dim("s", 1, 64)
    q, k, v = (graph.tensor(("s", 8)) for _ in range(3))
    y = ops.scaled_dot_product_attention(q, k, v, is_causal=True)
    for gradient in train.backward((y * y).sum(), [q, k, v]):
        gradient.output()
    made = graph.compile("cpu", cache=False, database=False, check=True, search=1).kernels
    ended = [each.kernel for each in made if said_elsewhere(each.kernel)]

    def fault(kernel, ends):
        case = next(oracle.cases(kernel, 0))
        values = (replace(v, domain={a: ends(*e) for a, e in v.domain.items()})
                  for v in kernel.values)  # fmt: skip
        changed = replace(kernel, values=tuple(values))
        return case.judge.fault(expected(changed, case.given, case.sizes))

    for kernel in ended:
        assert not fault(kernel, lambda low, high: (None, None))
        assert fault(kernel, lambda low, high: (low and low + 1, high and high - 1))
    assert len(ended) > 1
