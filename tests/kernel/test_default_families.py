"""Default schedules of odder kernels: other dtypes, pooling, several stores, chained reductions."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from default_cases import (
    I,
    add,
    attention,
    buffer,
    cast,
    const,
    kernel,
    load,
    mul,
    op,
    read,
    store,
    sub,
    total,
    value,
)  # fmt: skip
from test_default import TARGETS, assert_right, cases, evaluate, interpreted

from luminal.backend import cpu
from luminal.backend.cpu.target import named
from luminal.backend.loops import loop_program
from luminal.graph.dtype import bf16, boolean, f16, f32, f64, i32, i64
from luminal.kernel.kernel import Guard, Load, Rewriter
from luminal.scheduling.default import default_schedule
from luminal.scheduling.prepare import prepare

X = load("X", "m", "k")


def gemm_of(dtype):
    body = mul(load("A", "m", "k", dtype=dtype), load("B", "k", "n", dtype=dtype))
    buffers = [buffer("A", 5, 9, dtype=dtype), buffer("B", 9, 21, dtype=dtype, constant=True),
               buffer("C", 5, 21, dtype=dtype)]  # fmt: skip
    acc = value("acc", "mn", body, total("k"), store("C", "m", "n"))
    return kernel("gemm", buffers, {"m": 5, "n": 21, "k": 9}, [acc])


def gemm_bf16(m, n, k):
    a, b = load("A", "m", "k", dtype=bf16), load("B", "k", "n", dtype=bf16)
    body = mul(cast(a, f32), cast(b, f32))
    buffers = [buffer("A", m, k, dtype=bf16), buffer("B", k, n, dtype=bf16, constant=True),
               buffer("C", m, n)]  # fmt: skip
    values = [value("acc", "mn", body, total("k")),
              value("out", "mn", read("acc"), store=store("C", "m", "n"))]  # fmt: skip
    return kernel("gemm", buffers, {"m": m, "n": n, "k": k}, values)


def pool(c, hw, size, stride, how, other):
    pad = size // 2
    out = (hw + 2 * pad - size) // stride + 1
    y, x = I("y") * stride + "r" - pad, I("x") * stride + "s" - pad
    inside = (y, I(hw) - y - 1, x, I(hw) - x - 1)
    body = Guard(inside, load("X", "c", y, x), const(other))
    acc = value("acc", "cyx", body, total("rs", how), store("Y", "c", "y", "x"))
    axes = {"c": c, "y": out, "x": out, "r": size, "s": size}
    return kernel("pool", [buffer("X", c, hw, hw), buffer("Y", c, out, out)], axes, [acc])


def upsampled_convolution(c, hw, o):
    y, x = I("y") + "r" - 1, I("x") + "s" - 1
    inside = (y, I(2 * hw) - y - 1, x, I(2 * hw) - x - 1)
    image = Guard(inside, load("X", "c", y // 2, x // 2), const(0.0))
    values = [value("acc", "oyx", mul(image, load("W", "o", "c", "r", "s")), total("crs")),
              value("out", "oyx", read("acc"), store=store("Y", "o", "y", "x"))]  # fmt: skip
    buffers = [buffer("X", c, hw, hw), buffer("W", o, c, 3, 3, constant=True),
               buffer("Y", o, 2 * hw, 2 * hw)]  # fmt: skip
    return kernel("up", buffers, {"o": o, "y": 2 * hw, "x": 2 * hw, "c": c, "r": 3, "s": 3}, values)


def on_rows(values, outputs, m=7, k=20, inputs=(), axes=None):
    """A kernel of X[m, k]."""
    buffers = [buffer("X", m, k), *inputs, *outputs]
    return kernel("rows", buffers, {"m": m, "k": k, **(axes or {})}, values)


def two_stores():
    values = [value("mean", "m", X, total("k")),
              value("first", "m", mul(read("mean"), const(0.5)), store=store("M", "m")),
              value("second", "mk", sub(X, read("mean")), store=store("Y", "m", "k"))]  # fmt: skip
    return on_rows(values, [buffer("M", 7), buffer("Y", 7, 20)])


def rows_and_columns():
    values = [value("r", "m", X, total("k"), store("R", "m")),
              value("c", "k", X, total("m"), store("C", "k"))]  # fmt: skip
    return on_rows(values, [buffer("R", 7), buffer("C", 20)])


def norm_of_everything():
    out = op("div", X, op("sqrt", read("s")))
    values = [value("s", "", mul(X, X), total("mk")),
              value("out", "mk", out, store=store("Y", "m", "k"))]  # fmt: skip
    return on_rows(values, [buffer("Y", 7, 20)])


def attention_in_two_passes(h, q, k, d, sizes=None):
    at, by = ("h", "q"), ("h", "q", "k")
    weights = op("exp2", sub(read("score"), read("top")))
    values = [
        value("score", by, mul(load("Q", *at, "d"), load("K", "h", "k", "d")), total("d")),
        value("top", at, read("score"), total("k", "max")), value("p", by, weights),
        value("sum", at, read("p"), total("k")),
        value("mix", (*at, "e"), mul(read("p"), load("V", "h", "k", "e")), total("k")),
        value("out", (*at, "e"), op("div", read("mix"), read("sum")),
              store=store("O", *at, "e")),
    ]  # fmt: skip
    buffers = [buffer("Q", h, q, d), buffer("K", h, k, d), buffer("V", h, k, d),
               buffer("O", h, q, d)]  # fmt: skip
    return kernel("attention", buffers, {"h": h, "q": q, "k": k, "d": d, "e": d}, values, sizes)


def compared():
    less = op("less", load("X", "m", "k", dtype=f16), load("Z", "m", "k", dtype=f16), dtype=boolean)
    buffers = [buffer("X", 5, 19, dtype=f16), buffer("Z", 5, 19, dtype=f16),
               buffer("Y", 5, 19, dtype=boolean)]  # fmt: skip
    out = value("out", "mk", less, store=store("Y", "m", "k"))
    return kernel("less", buffers, {"m": 5, "k": 19}, [out])


def permuted():
    out = value("out", "cdab", load("X", *"abcd"), store=store("Y", *"cdab"))
    buffers = [buffer("X", 2, 9, 3, 17), buffer("Y", 3, 17, 2, 9)]
    return kernel("permuted", buffers, dict(zip("abcd", (2, 9, 3, 17))), [out])


def scan_then_reduce():
    values = [value("c", "mk", X, total("k", scan=True)),
              value("t", "m", read("c"), total("k", "max")),
              value("out", "mk", sub(read("c"), read("t")),
                    store=store("Y", "m", "k"))]  # fmt: skip
    return on_rows(values, [buffer("Y", 7, 20)])


def embedding_and_norm():
    slot = (("$0", load("I", "i", dtype=i64)),)
    x = add(load("T", "$0", "d", slots=slot), load("P", "i", "d"))
    centred = sub(read("x"), mul(read("t"), const(1 / 40)))
    scale = op("recip", op("sqrt", add(read("q"), const(1e-5))))
    values = [value("x", "id", x), value("t", "i", read("x"), total("d")),
              value("q", "i", mul(centred, centred), total("d")),
              value("out", "id", mul(centred, scale), store=store("Y", "i", "d"))]  # fmt: skip
    buffers = [buffer("I", "s", dtype=i64), buffer("T", 11, 40, constant=True),
               buffer("P", 64, 40), buffer("Y", "s", 40)]  # fmt: skip
    return kernel("embedding", buffers, {"i": "s", "d": 40}, values, {"s": (1, 64)})


def two_contractions():
    values = [value("g", "mn", mul(X, load("A", "k", "n")), total("k")),
              value("h", "mp", mul(X, load("B", "k", "p")), total("k")),
              value("first", "mn", read("g"), store=store("Y", "m", "n")),
              value("second", "mp", read("h"), store=store("Z", "m", "p"))]  # fmt: skip
    weights = [buffer("A", 20, 33, constant=True), buffer("B", 20, 17, constant=True)]
    return on_rows(values, [buffer("Y", 7, 33), buffer("Z", 7, 17)], inputs=weights,
                   axes={"n": 33, "p": 17})  # fmt: skip


def perceptron():
    values = [value("g", "mp", mul(X, load("A", "k", "p")), total("k")),
              value("r", "mp", op("max", read("g"), const(0.0))),
              value("h", "mn", mul(read("r"), load("B", "p", "n")), total("p")),
              value("out", "mn", read("h"), store=store("Y", "m", "n"))]  # fmt: skip
    weights = [buffer("A", 20, 40, constant=True), buffer("B", 40, 17, constant=True)]
    return on_rows(values, [buffer("Y", 7, 17)], inputs=weights, axes={"n": 17, "p": 40})


def contraction_then_row_sum():
    values = [value("g", "mn", mul(X, load("A", "k", "n")), total("k")),
              value("t", "m", read("g"), total("n")),
              value("out", "mn", sub(read("g"), read("t")),
                    store=store("Y", "m", "n"))]  # fmt: skip
    weights = [buffer("A", 20, 40, constant=True)]
    return on_rows(values, [buffer("Y", 7, 40)], inputs=weights, axes={"n": 40})


def finished_early(h, q, k, d):
    """Attention in which a value that needs the finished sum stands before the last sum."""
    plain = attention(h, q, k, d, causal=False)
    at = ("h", "q")
    share = value("share", at, op("recip", read("sum")))
    out = value("out", (*at, "e"), mul(read("mix"), read("share")), store=store("O", *at, "e"))
    before = [v for v in plain.values if v.name not in ("mix", "out")]
    return replace(plain, values=(*before, share, plain.value("mix"), out))


def mean_of_pairs():
    """A count beside a sum of sums: it has none of their axes."""
    inside = Guard((I(2) - I("k"),), load("X", "m", "k", "n", "p"), const(0.0))
    ones = Guard((I(2) - I("r"),), const(1.0), const(0.0))
    values = [value("part", "mnp", inside, total("k")),
              value("all", "mn", read("part"), total("p")),
              value("count", "", ones, total("r")),
              value("out", "mn", op("div", read("all"), read("count")),
                    store=store("Y", "m", "n"))]  # fmt: skip
    buffers = [buffer("X", 6, 4, 7, 2), buffer("Y", 6, 7)]
    return kernel("mean", buffers, {"m": 6, "k": 4, "n": 7, "p": 2, "r": 4}, values)


def norm_of_sums():
    """A sum of sums, and a sum over the axis that would be its lanes."""
    part = mul(load("A", "g", "k"), load("W", "g", "k", "n"))
    values = [value("part", "ng", part, total("k")),
              value("all", "n", read("part"), total("g")),
              value("norm", "", mul(read("all"), read("all")), total("n")),
              value("out", "n", op("div", read("all"), read("norm")),
                    store=store("Y", "n"))]  # fmt: skip
    buffers = [buffer("A", 4, 6), buffer("W", 4, 6, 48), buffer("Y", 48)]
    return kernel("norm of sums", buffers, {"n": 48, "g": 4, "k": 6}, values)


def packed(turned, count, dtype=bf16, wide=16):
    """Panels in which a few neighbours of an axis lie together for each lane."""
    at = I("k") * count + "s", I("p") * wide + "n"
    body = cast(load("X", *(at[::-1] if turned else at)), dtype)
    buffers = [buffer("X", *((3 * wide, 6 * count) if turned else (6 * count, 3 * wide))),
               buffer("Y", 3, 6, wide, count, dtype=dtype)]  # fmt: skip
    values = [value("out", "pkns", body, store=store("Y", "p", "k", "n", "s"))]
    return kernel("packed", buffers, {"p": 3, "k": 6, "n": wide, "s": count}, values)


def half_attention(h, q, k, d, **kw):
    """Scores are products of rounded numbers."""

    def rounded(e):
        return cast(cast(e, bf16), f32) if isinstance(e, Load) and e.buffer != "V" else e

    plain = attention(h, q, k, d, **kw)
    return replace(plain, values=tuple(map(Rewriter(rounded).value, plain.values)))


FAMILIES = {
    **{f"gemm {dtype}": gemm_of(dtype) for dtype in (f64, i64, i32)},
    "gemm bf16": gemm_bf16(9, 33, 10),
    "gemv bf16": gemm_bf16(1, 33, 64),
    "pairs in rows": packed(True, 2),
    "pairs apart": packed(False, 2),
    "fours in rows": packed(True, 4, i32),
    "fours apart": packed(False, 4, i32),
    **{f"pairs of {wide}": packed(True, 2, wide=wide) for wide in (6, 9, 24)},
    "rounded attention": half_attention(2, 20, 33, 8),
    "max pool": pool(5, 9, 3, 2, "max", -np.inf),
    "average pool": pool(3, 20, 3, 1, "sum", 0.0),
    "product pool": pool(3, 8, 3, 1, "prod", 1.0),
    "min pool": pool(3, 8, 3, 2, "min", np.inf),
    "upsampled convolution": upsampled_convolution(3, 5, 17),
    "two stores": two_stores(),
    "rows and columns": rows_and_columns(),
    "norm of everything": norm_of_everything(),
    "attention in two passes": attention_in_two_passes(2, 20, 33, 8),
    "the same, dynamic": attention_in_two_passes(2, "s", "s", 8, {"s": (1, 64)}),
    "finished early": finished_early(2, 9, 33, 8),
    "mean of pairs": mean_of_pairs(),
    "norm of sums": norm_of_sums(),
    "compared": compared(),
    "permuted": permuted(),
    "scan then reduce": scan_then_reduce(),
    "embedding and norm": embedding_and_norm(),
    "two contractions": two_contractions(),
    "perceptron": perceptron(),
    "contraction then row sum": contraction_then_row_sum(),
    "no axes": kernel("none", [buffer("X"), buffer("Y")], {},
                      [value("out", "", mul(load("X"), const(2.0)), store=store("Y"))]),
}  # fmt: skip
EVERY = [*TARGETS, named("avx2"), named("avx512", 2)]


@pytest.mark.parametrize("target", EVERY, ids=lambda t: t.name)
@pytest.mark.parametrize("name", FAMILIES)
def test_families_run_right(name, target):
    assert_right(FAMILIES[name], {"s": 13}, target)


def scheduled(case, target):
    (part,) = prepare(case, target)
    return default_schedule(part, target)


@pytest.mark.parametrize("turned", [False, True])
def test_neighbours_that_lie_together_are_one_vector(turned):
    made, schedule = scheduled(packed(turned, 2), named("avx512"))
    assert [str(loop) for loop in schedule.paths["out"][-2:]] == ["n/1#", "s/1#"]
    text = cpu.render(loop_program(made, schedule, named("avx512")), named("avx512"))
    assert "gather" not in text and "scatter" not in text


def test_scores_of_rounded_numbers_are_summed_in_pairs():
    plain = named("vnni")
    fast = tuple(replace(i, cycles=1.0) for i in plain.instructions)
    case = half_attention(2, 128, 256, 64)
    _, schedule = scheduled(case, replace(plain, instructions=fast))
    assert schedule.paths["score"][-1].kind == "collapse"
    assert schedule.layouts["score_a"]
    assert_right(half_attention(2, 40, 64, 16), {}, replace(plain, instructions=fast))


@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_a_stream_are_rounded_and_summed_in_pairs_if_that_is_allowed(causal):
    plain = named("vnni")
    fast = tuple(replace(i, cycles=1.0) for i in plain.instructions)
    target = replace(plain, instructions=fast, rounds=True)
    case = attention(2, 128, 256, 64, causal=causal)
    made, schedule = scheduled(case, target)
    assert schedule.paths["mix"][-1].kind == "collapse"
    assert not any("cast" in str(v.body) for v in made.values if v.name == "sum")
    for q, k in ((40, 64), (33, 50)):
        small = attention(2, q, k, 16, causal=causal)
        arrays = cases.arrays(small, np.random.default_rng(0), {})
        got = interpreted(small, arrays, {}, target)
        want = {name: x.copy() for name, x in arrays.items()}
        evaluate(small, want, {})
        bound = (2**-7 + 2**-16) * np.abs(arrays["V"]).max()
        assert np.abs(got["O"].reshape(-1) - want["O"].reshape(-1)).max() < bound
