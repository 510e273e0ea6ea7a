"""The NumPy meaning of kernels against plain NumPy."""

import numpy as np
import pytest

from luminal.backend.reference.kernels import evaluate
from luminal.errors import CompileError
from luminal.graph.dtype import boolean, f32, i32, i64
from luminal.graph.index import Index
from luminal.kernel.kernel import (
    Apply,
    Buffer,
    Constant,
    Guard,
    Kernel,
    Load,
    Position,
    Read,
    Reduction,
    Store,
    Value,
)

I = Index.of
rng = np.random.default_rng(0)


def load(buffer, *index, dtype=f32, slots=()):
    return Load(buffer, tuple(map(I, index)), dtype, slots)


def store(buffer, *index, **kw):
    return Store(buffer, tuple(map(I, index)), **kw)


def op(name, *args, dtype=None):
    return Apply(name, args, dtype or args[0].dtype)


def buffer(name, *shape, dtype=f32):
    return Buffer(name, dtype, tuple(map(I, shape)))


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def run(kernel, arrays, **sizes):
    evaluate(kernel, arrays, sizes)
    return arrays


def test_matmul_with_epilogue_and_symbolic_rows():
    kernel = Kernel(
        "k",
        (buffer("A", "s", 5), buffer("B", 5, 4), buffer("bias", 4), buffer("C", "s", 4)),
        {"m": I("s"), "n": I(4), "k": I(5)},
        (
            Value("acc", ("m", "n"), op("mul", load("A", "m", "k"), load("B", "k", "n")), f32,
                  Reduction("sum", ("k",))),
            Value("out", ("m", "n"), op("add", Read("acc", f32), load("bias", "n")), f32,
                  store=store("C", "m", "n")),
        ),
        {"s": (1, 9)},
    )  # fmt: skip
    for s in (1, 3):
        a, b, c = normal(s, 5), normal(5, 4), normal(4)
        got = run(kernel, {"A": a, "B": b, "bias": c, "C": np.zeros((s, 4), np.float32)}, s=s)
        np.testing.assert_allclose(got["C"], a @ b + c, rtol=1e-5, atol=1e-6)


def test_guard_does_not_look_outside():
    body = Guard((I("i") - 1, I(3) - "i"), load("X", I("i") - 1), Constant(7.0, f32))
    out = Value("out", ("i",), body, f32, store=store("Y", "i"))
    kernel = Kernel("pad", (buffer("X", 3), buffer("Y", 5)), {"i": I(5)}, (out,))
    x = normal(3)
    got = run(kernel, {"X": x, "Y": np.zeros(5, np.float32)})
    np.testing.assert_array_equal(got["Y"], [7, *x, 7])


def test_unguarded_load_outside_is_an_error():
    out = Value("out", ("i",), load("X", I("i") + 1), f32, store=store("Y", "i"))
    kernel = Kernel("k", (buffer("X", 3), buffer("Y", 3)), {"i": I(3)}, (out,))
    with pytest.raises(CompileError, match="outside"):
        run(kernel, {"X": normal(3), "Y": normal(3)})


def test_online_softmax():
    x = load("X", "m", "k")
    top, before = Read("top", f32, so_far=True), Read("before", f32)
    e = op("exp2", op("add", Read("masked", f32), op("mul", top, Constant(-1.0, f32))))
    shrink = op("exp2", op("add", before, op("mul", top, Constant(-1.0, f32))))
    masked = Guard((I("m") - I("k"),), x, Constant(-np.inf, f32))
    kernel = Kernel(
        "softmax",
        (buffer("X", 4, 6), buffer("Y", 4)),
        {"m": I(4), "k": I(6)},
        (
            Value("masked", ("m", "k"), masked, f32),
            Value("before", ("m",), top, f32),
            Value("top", ("m",), Read("masked", f32), f32,
                  Reduction("max", ("k",), Constant(-3e38, f32))),
            Value("shrink", ("m",), shrink, f32),
            Value("total", ("m",), e, f32,
                  Reduction("sum", ("k",), rescale=Read("shrink", f32))),
            Value("out", ("m",), Read("total", f32), f32, store=store("Y", "m")),
        ),
    )  # fmt: skip
    x = normal(4, 6)
    got = run(kernel, {"X": x, "Y": np.zeros(4, np.float32)})["Y"]
    want = [np.exp2(x[i, : i + 1] - x[i, : i + 1].max()).sum() for i in range(4)]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_domain_of_a_sum_of_products_ignores_infinities_outside():
    body = op("mul", load("A", "m", "k"), load("B", "k"))
    acc = Value("acc", ("m",), body, f32, Reduction("sum", ("k",)), store("Y", "m"),
                {"k": (None, I("m") + 1)})  # fmt: skip
    kernel = Kernel("k", (buffer("A", 3, 4), buffer("B", 4), buffer("Y", 3)),
                    {"m": I(3), "k": I(4)}, (acc,))  # fmt: skip
    a, b = normal(3, 4), normal(4)
    b[3] = np.inf
    got = run(kernel, {"A": a, "B": b, "Y": np.zeros(3, np.float32)})["Y"]
    np.testing.assert_allclose(got, [a[i, : i + 1] @ b[: i + 1] for i in range(3)], rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_a_masked_sum_of_products_treats_what_is_not_finite_as_ieee_does(seed):
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -2.0, 3.0], np.float32)
    draw = np.random.default_rng(seed)
    a, b = draw.choice(values, (4, 6)), draw.choice(values, (6, 5))
    kernel = Kernel(
        "k", (buffer("A", 4, 6), buffer("B", 6, 5), buffer("C", 4, 5)),
        {"m": I(4), "n": I(5), "k": I(6)},
        (Value("c", ("m", "n"), op("mul", load("A", "m", "k"), load("B", "k", "n")), f32,
               Reduction("sum", ("k",)), domain={"k": (I(1), I("m") + 2), "n": (None, I(4))},
               store=store("C", "m", "n")),),
    )  # fmt: skip
    got = run(kernel, {"A": a, "B": b, "C": np.full((4, 5), 7.0, np.float32)})["C"]
    with np.errstate(invalid="ignore"):
        wanted = [[np.sum(a[m, 1 : m + 2] * b[1 : m + 2, n]) for n in range(4)] for m in range(4)]
    np.testing.assert_array_equal(got[:, :4], wanted)
    assert (got[:, 4] == 7.0).all()


def test_gather_clamps_and_scatter_skips():
    slot = (("$0", load("I", "i", dtype=i64)),)
    gather = Kernel(
        "gather",
        (buffer("T", 3, 2), buffer("I", 5, dtype=i64), buffer("Y", 5, 2)),
        {"i": I(5), "j": I(2)},
        (Value("out", ("i", "j"), load("T", "$0", "j", slots=slot), f32,
               store=store("Y", "i", "j")),),
    )  # fmt: skip
    table, index = normal(3, 2), np.array([2, 0, -4, 9, 2])
    got = run(gather, {"T": table, "I": index, "Y": np.zeros((5, 2), np.float32)})["Y"]
    np.testing.assert_array_equal(got, table[np.clip(index, 0, 2)])
    for mode, want in (("set", [1, 5, 4]), ("sum", [11, 5, 14]), ("max", [10, 10, 10])):
        scatter = Kernel(
            "scatter",
            (buffer("V", 5), buffer("I", 5, dtype=i64), buffer("Y", 3)),
            {"i": I(5)},
            (Value("out", ("i",), load("V", "i"), f32,
                   store=store("Y", "$0", slots=slot, mode=mode, ordered=("i",))),),
        )  # fmt: skip
        start = 10 if mode != "set" else 5
        y = np.full(3, start, np.float32)
        run(scatter, {"V": np.array([0, 1, 2, 3, 4], np.float32),
                      "I": np.array([2, 0, -4, 9, 2]), "Y": y})  # fmt: skip
        np.testing.assert_array_equal(y, want if mode != "sum" else [11, 10, 14])


@pytest.mark.parametrize("name, numpy", [("sum", np.cumsum), ("max", np.maximum.accumulate)])
def test_scan(name, numpy):
    acc = Value("acc", ("m", "k"), load("X", "m", "k"), f32,
                Reduction(name, ("k",), scan=True), store("Y", "m", "k"))  # fmt: skip
    kernel = Kernel("k", (buffer("X", 2, 5), buffer("Y", 2, 5)), {"m": I(2), "k": I(5)}, (acc,))
    x = normal(2, 5)
    got = run(kernel, {"X": x, "Y": np.zeros_like(x)})["Y"]
    np.testing.assert_allclose(got, numpy(x, axis=1), rtol=1e-5)


def test_empty_reduction_gives_the_start():
    for reduction, want in ((Reduction("sum", ("k",)), 0), (Reduction("max", ("k",)), -np.inf),
                            (Reduction("prod", ("k",), Constant(3.0, f32)), 3)):  # fmt: skip
        acc = Value("acc", ("m",), load("X", "m", "k"), f32, reduction, store("Y", "m"))
        kernel = Kernel("k", (buffer("X", 2, 0), buffer("Y", 2)), {"m": I(2), "k": I(0)}, (acc,))
        got = run(kernel, {"X": normal(2, 0), "Y": np.zeros(2, np.float32)})["Y"]
        np.testing.assert_array_equal(got, [want, want])


def test_integers_wrap_and_are_exact():
    product = op("mul", load("A", "k", dtype=i32), load("B", "k", dtype=i32))
    acc = Value("acc", (), product, i32, Reduction("sum", ("k",)), store("Y"))
    kernel = Kernel("k", (buffer("A", 3, dtype=i32), buffer("B", 3, dtype=i32),
                          buffer("Y", dtype=i32)), {"k": I(3)}, (acc,))  # fmt: skip
    a = np.array([2**30, 2**30, 7], np.int32)
    b = np.array([3, 2, 5], np.int32)
    got = run(kernel, {"A": a, "B": b, "Y": np.zeros((), np.int32)})["Y"]
    assert got == np.sum(a * b, dtype=np.int32)


def test_positions_and_select():
    less = op("less", Position(I("i")), Constant(2, i64), dtype=boolean)
    body = op("select", less, load("X", "i"), Constant(0.0, f32), dtype=f32)
    out = Value("out", ("i",), body, f32, store=store("Y", I("i") * 2))
    kernel = Kernel("k", (buffer("X", 4), buffer("Y", 7)), {"i": I(4)}, (out,))
    x, y = normal(4), np.full(7, 9, np.float32)
    run(kernel, {"X": x, "Y": y})
    np.testing.assert_array_equal(y, [x[0], 9, x[1], 9, 0, 9, 0])
