"""Preparation keeps the meaning of a kernel: merged axes, derived domains, split reductions."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import default_cases as cases
from default_cases import I, const, load, mul, store, total, value

from luminal.backend.reference.kernels import evaluate
from luminal.errors import Illegal
from luminal.graph.dtype import i32, u8
from luminal.kernel.domains import derive_domains
from luminal.kernel.kernel import Apply, Guard, Load, walk
from luminal.kernel.merge import merge_axes
from luminal.kernel.target import Target
from luminal.scheduling.decisions import Decisions
from luminal.scheduling.prepare import prepare

TARGET = Target("test", vector_bytes=64, registers=32, threads=2)
RANGE = {"s": (1, 64)}
SMALL = {
    "gemm": (cases.gemm(5, 7, 9), {}),
    "batched": (cases.gemm(5, 7, 9, constant=False, turned=True, batch=3), {}),
    "dynamic": (cases.gemm("s", 7, 9, sizes=RANGE), {"s": 4}),
    "int8": (cases.gemm_int8(4, 6, 8), {}),
    "gated": (cases.gated(4, 6, 8), {}),
    "gemv_q4": (cases.gemv_q4(6, 3), {}),
    "gemv_q8": (cases.gemv_q8(6, 3), {}),
    "softmax": (cases.softmax(3, 10), {}),
    "layer_norm": (cases.layer_norm("s", 10, sizes=RANGE), {"s": 3}),
    "column_sum": (cases.column_sum(7, 5), {}),
    "chain": (cases.chain(3, 9), {}),
    "transpose": (cases.transpose(3, 9), {}),
    "attention": (cases.attention(2, 5, 5, 4), {}),
    "gqa": (cases.attention(2, "s", "s", 4, groups=3, sizes=RANGE), {"s": 6}),
    "rotated": (cases.rotated_attention(2, "s", 3, 4, sizes=RANGE), {"s": 6}),
    "decode": (cases.attention(3, 1, 7, 4, causal=False), {}),
    "conv": (cases.convolution(3, 7, 4, 3), {}),
    "conv_strided": (cases.convolution(2, 8, 3, 3, 2, batch=2), {}),
    "conv_last": (cases.convolution(3, 7, 4, 3, last=True), {}),
    "conv_1x1": (cases.convolution(3, 4, 5, 1, batch=2), {}),
    "depthwise": (cases.convolution(1, 6, 4, 3, groups=True), {}),
    "embedding": (cases.embedding(6, 5, 4), {}),
    "scatter": (cases.scatter(9, 5, 4), {}),
    "scatter_set": (cases.scatter(9, 5, 4, "set"), {}),
    "cumsum": (cases.cumsum(3, 6), {}),
    "cumsum_columns": (cases.cumsum(3, 6, "m", separate=False), {}),
    "mask": (cases.causal_mask(5), {}),
}


def results(kernels, arrays, sizes):
    """All buffers after the kernels, flat."""
    arrays = {name: x.copy() for name, x in arrays.items()}
    for k in kernels:
        for b in k.buffers:
            shape = [int(n.evaluate(sizes)) for n in b.shape]
            if b.name not in arrays:
                arrays[b.name] = np.full(shape, 77, b.dtype.numpy)
            arrays[b.name] = arrays[b.name].reshape(shape)
        evaluate(k, arrays, sizes)
    return {name: x.reshape(-1) for name, x in arrays.items()}


def assert_same(first, second, arrays, sizes):
    want, got = results(first, arrays, sizes), results(second, arrays, sizes)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", SMALL)
def test_prepared_kernels_mean_the_same(name):
    kernel, sizes = SMALL[name]
    arrays = cases.arrays(kernel, np.random.default_rng(1), sizes)
    assert_same([kernel], prepare(kernel, TARGET), arrays, sizes)


def two_products(epilogue):
    """A B + C D as one sum, and perhaps what reads it."""
    buffers = [cases.buffer("A", 5, 9), cases.buffer("B", 9, 7), cases.buffer("C", 5, 9),
               cases.buffer("D", 9, 7), cases.buffer("Y", 5, 7)]  # fmt: skip
    body = cases.add(mul(load("A", "m", "k"), load("B", "k", "n")),
                     mul(load("C", "m", "k"), load("D", "k", "n")))  # fmt: skip
    stored = None if epilogue else store("Y", "m", "n")
    values = [value("acc", "mn", body, total("k"), stored)]
    if epilogue:
        values.append(value("out", "mn", cases.silu(cases.read("acc")), store=store("Y", "m", "n")))
    return cases.kernel("two", buffers, {"m": 5, "n": 7, "k": 9}, values)


@pytest.mark.parametrize("epilogue", [False, True])
def test_a_sum_of_two_products_of_matrices_is_two_sums(epilogue):
    kernel = two_products(epilogue)
    (made,) = prepare(kernel, TARGET)
    sums = [v for v in made.values if v.reduction]
    assert len(sums) == 2 and all(v.factors for v in sums)
    arrays = cases.arrays(kernel, np.random.default_rng(0))
    want = {name: x.copy() for name, x in arrays.items()}
    evaluate(kernel, want, {})
    evaluate(made, arrays, {})
    np.testing.assert_allclose(arrays["Y"], want["Y"], rtol=1e-5, atol=1e-5)


def test_a_sum_of_products_of_each_element_stays_one():
    """It reads each element once: there is nothing to multiply matrices of."""
    a, b = load("A", "m", "k"), load("B", "m", "k")
    for each in (cases.add(mul(a, b), a), cases.add(mul(a, a), mul(b, b))):
        buffers = [cases.buffer("A", 5, 9), cases.buffer("B", 5, 9), cases.buffer("Y", 5)]
        values = [value("acc", "m", each, total("k"), store("Y", "m"))]
        (made,) = prepare(cases.kernel("one", buffers, {"m": 5, "k": 9}, values), TARGET)
        assert len([v for v in made.values if v.reduction]) == 1


def test_bytes_are_widened_before_their_bits_are_picked():
    """Both digits of a byte share that."""
    (kernel,) = prepare(cases.gemv_q4(6, 3), TARGET)
    picked = [e for e in walk(kernel.value("acc").body) if isinstance(e, Apply)]
    assert {e.dtype for e in picked if e.op in ("and", "shift_right")} == {i32}
    (byte,) = [e for e in picked if e.op == "cast" and isinstance(e.args[0], Load)
               and e.args[0].dtype is u8]  # fmt: skip
    assert byte.dtype is i32


def test_axes_are_merged_where_everything_walks_them_together():
    axes = merge_axes(cases.convolution(3, 4, 5, 1)).axes
    assert {a: int(n) for a, n in axes.items()} == {"o": 5, "y": 16, "c": 3}
    assert len(merge_axes(cases.chain(3, 9)).axes) == 1
    assert len(merge_axes(cases.softmax(3, 9)).axes) == 2
    assert len(merge_axes(cases.transpose(3, 9)).axes) == 2


def test_symbolic_axes_are_merged():
    kernel = cases.chain("s", 9)
    merged = merge_axes(kernel)
    assert list(merged.axes.values()) == [I("s") * 9]


def test_dimensions_that_are_digits_of_one_position_are_joined():
    at = I("y") + "r" - 1
    digits = [at // 4, at // 2 - at // 4 * 2, at - at // 2 * 2]
    inside = Guard((at, 7 - at), load("X", *digits), const(0.0))
    acc = value("acc", "y", mul(inside, load("W", "r")), total("r"), store("Y", "y"))
    buffers = [cases.buffer("X", 2, 2, 2), cases.buffer("W", 3), cases.buffer("Y", 8)]
    kernel = cases.kernel("window", buffers, {"y": 8, "r": 3}, [acc])
    merged = merge_axes(kernel)
    assert merged.buffer("X").shape == (8,)
    assert {e.index for e in merged.value("acc").loads if e.buffer == "X"} == {(at,)}
    assert_same([kernel], [merged], cases.arrays(kernel, np.random.default_rng(0)), {})


def test_a_causal_mask_bounds_every_value_of_the_stream():
    domains = {v.name: v.domain for v in derive_domains(cases.attention(2, 5, 5, 4)).values}
    bounded = {name for name, d in domains.items() if d == {"k": (None, I("q") + 1)}}
    assert bounded == set(domains) - {"out"}


def test_padding_bounds_the_taps():
    acc = derive_domains(cases.convolution(3, 7, 4, 3)).value("acc")
    assert acc.domain == {"r": (1 - I("y"), 8 - I("y")), "s": (1 - I("x"), 8 - I("x"))}


def test_bounds_with_steps_round_the_right_way():
    for step, shift in ((2, 3), (3, 1), (-2, 7), (-3, 8)):
        body = Guard((I("k") * step + shift - I("m"),), load("X", "k"), const(0.0))
        acc = value("acc", "m", body, total("k"), store("Y", "m"))
        kernel = cases.kernel("k", [cases.buffer("X", 9), cases.buffer("Y", 7)],
                              {"m": 7, "k": 9}, [acc])  # fmt: skip
        derived = derive_domains(kernel)
        assert "k" in derived.value("acc").domain or step > 0
        arrays = cases.arrays(kernel, np.random.default_rng(0))
        assert_same([kernel], [derived], arrays, {})


@pytest.mark.parametrize("other", [1.0, -np.inf, np.nan])
def test_no_domain_where_the_rest_is_not_the_identity(other):
    body = Guard((I("m") - I("k"),), load("X", "k"), const(other))
    acc = value("acc", "m", mul(body, const(2.0)), total("k"), store("Y", "m"))
    kernel = cases.kernel("k", [cases.buffer("X", 9), cases.buffer("Y", 9)],
                          {"m": 9, "k": 9}, [acc])  # fmt: skip
    assert not derive_domains(kernel).value("acc").domain


def test_a_long_reduction_is_split_for_the_threads():
    x = load("X", "m", "k")
    kernel = cases.kernel(
        "norm", [cases.buffer("X", 3, 1 << 17), cases.buffer("Y", 3)], {"m": 3, "k": 1 << 17},
        [value("acc", "m", mul(x, x), total("k", start=const(1.0))),
         value("out", "m", mul(cases.read("acc"), const(0.5)), store=store("Y", "m"))],
    )  # fmt: skip
    kernels = prepare(kernel, TARGET)
    assert len(kernels) == 2 and len(prepare(kernel, Target("one", 64, 32))) == 1
    arrays = cases.arrays(kernel, np.random.default_rng(0))
    assert_same([kernel], kernels, arrays, {})


def test_what_is_beside_a_split_sum_may_walk_its_axis_again():
    """What reads the sum, what both read, and what reads neither."""
    x, half = load("X", "m", "k"), cases.read("half")
    values = {
        "half": value("half", "mk", mul(x, const(0.5))),
        "acc": value("acc", "m", mul(half, half), total("k")),
        "each": value("each", "mk", mul(half, cases.read("acc")), store=store("Y", "m", "k")),
        "alone": value("alone", "mk", mul(x, const(3.0)), store=store("Y", "m", "k")),
        "stored": value("acc", "m", mul(x, x), total("k"), store=store("Z", "m")),
        "sum": value("acc", "m", mul(x, x), total("k")),
        "reads": value("each", "mk", mul(x, cases.read("acc")), store=store("Y", "m", "k")),
    }
    split = []
    for names in (["sum", "reads"], ["stored", "alone"], ["half", "acc", "each"]):
        kernel = cases.kernel(
            "norm", [cases.buffer("X", 3, 1 << 17), cases.buffer("Y", 3, 1 << 17),
                     cases.buffer("Z", 3)],
            {"m": 3, "k": 1 << 17}, [values[name] for name in names],
        )  # fmt: skip
        kernels = prepare(kernel, TARGET)
        split.append(len(kernels))
        assert_same([kernel], kernels, cases.arrays(kernel, np.random.default_rng(0)), {})
    assert split[:2] == [2, 2]


def test_a_long_sum_that_is_stored_as_it_is_is_split():
    kernel = cases.kernel(
        "sum", [cases.buffer("X", 3, 1 << 17), cases.buffer("Y", 3)], {"m": 3, "k": 1 << 17},
        [value("acc", "m", load("X", "m", "k"), total("k"), store=store("Y", "m"))],
    )  # fmt: skip
    kernels = prepare(kernel, TARGET)
    assert len(kernels) == 2
    assert_same([kernel], kernels, cases.arrays(kernel, np.random.default_rng(0)), {})


def test_the_number_of_parts_can_be_chosen():
    kernel = cases.gemm(16, 16, 4096, constant=False)
    decisions = Decisions()
    assert len(prepare(kernel, TARGET, decisions)) == 1  # by default: there are rows for all
    made = decisions.made["parts"]
    assert made.default == 1 and len(made.options) > 2
    arrays = cases.arrays(kernel, np.random.default_rng(0))
    for parts in made.others:
        kernels = prepare(kernel, TARGET, Decisions({"parts": parts}))
        assert len(kernels) == 2
        assert_same([kernel], kernels, arrays, {})
    with pytest.raises(Illegal):
        prepare(kernel, TARGET, Decisions({"parts": 3}))


def test_short_or_wide_reductions_are_not_split():
    for kernel in (cases.softmax(512, 2048), cases.column_sum(64, 64), cases.gemm(64, 64, 4096)):
        assert len(prepare(kernel, TARGET)) == 1


def test_a_stored_value_may_be_read_too():
    first = value("first", "m", mul(load("X", "m"), const(2.0)), store=store("Z", "m"))
    second = value("second", "m", mul(cases.read("first"), const(3.0)), store=store("Y", "m"))
    kernel = cases.kernel("two", [cases.buffer(n, 5) for n in "XYZ"], {"m": 5}, [first, second])
    arrays = cases.arrays(kernel, np.random.default_rng(0))
    kernels = prepare(kernel, TARGET)
    assert_same([kernel], kernels, arrays, {})
    assert [v.store is None for v in kernels[0].values] == [True, False, False]


def two_sums(first, second, axes, *more):
    """The difference of two reductions, after other values."""
    shapes = {"G": (6, 4, 4), "U": (6, 4, 4), "X": (4, 4), "Y": (6,)}
    out = cases.sub(cases.read("first"), cases.read("second"))
    return cases.kernel(
        "two", [cases.buffer(name, *shape) for name, shape in shapes.items()],
        {"n": 6, "k": 4, **axes},
        [*more, value("first", "n", *first), value("second", "n", *second),
         value("out", "n", out, store=store("Y", "n"))],
    )  # fmt: skip


@pytest.mark.parametrize("factor", ["loaded", "a value of its own"])
def test_reductions_alike_but_for_names_walk_the_same_axes(factor):
    loaded = load("X", "i", "j")
    other = loaded if factor == "loaded" else cases.read("copy")
    kernel = two_sums(
        (mul(load("G", "n", "k", "h"), load("X", "h", "k")), total("kh")),
        (mul(load("U", "n", "j", "i"), other), total("ij")),
        {"h": 4, "j": 4, "i": 4},
        *([] if factor == "loaded" else [value("copy", "ij", loaded)]),
    )
    kernels = prepare(kernel, TARGET)
    first, second, _ = kernels[0].values
    assert second.over == first.over and set(kernels[0].axes) == {*first.points}
    assert_same([kernel], kernels, cases.arrays(kernel, np.random.default_rng(0)), {})


EACH = value("each", "k", cases.op("exp2", load("X", "k", 0)))
APART = {
    "another place": (
        (mul(load("G", "n", "k", 0), load("X", "k", 0)), total("k")),
        (mul(load("G", "n", "j", 0), load("X", 0, "j")), total("j")), {"j": 4}),
    "fewer": (
        (mul(load("G", "n", "k", 0), load("X", "k", 0)), total("k")),
        (mul(load("G", "n", "j", 0), load("X", "j", 0)), total("j")), {"j": 3}),
    "a value along one axis": (
        (mul(cases.read("each"), load("X", "k", 0)), total("hk")),
        (mul(cases.read("each"), load("X", "h", 0)), total("kh")), {"h": 4}, EACH),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_other_reductions_keep_their_axes(name):
    kernel = two_sums(*APART[name])
    kernels = prepare(kernel, TARGET)
    overs = [{*kernels[0].value(v).over} for v in ("first", "second")]
    assert overs == [{*kernel.value(v).over} for v in ("first", "second")]
    assert_same([kernel], kernels, cases.arrays(kernel, np.random.default_rng(0)), {})


def stream(name, buffer, k):
    """An online sum of 2^x over k, in one pass."""
    x, running = load(buffer, "n", k, 0), cases.read(f"top{name}", so_far=True)
    rescale = cases.read(f"shrink{name}")
    return [
        value(f"before{name}", "n", running),
        value(f"top{name}", "n", x, total(k, "max", start=const(cases.LOWEST))),
        value(f"shrink{name}", "n",
              cases.op("exp2", cases.sub(cases.read(f"before{name}"), running))),
        value(f"p{name}", ("n", k), cases.op("exp2", cases.sub(x, running))),
        value(f"sum{name}", "n", cases.read(f"p{name}"), total(k, rescale=rescale)),
    ]  # fmt: skip


def test_running_maxima_keep_their_axes():
    values = [*stream("G", "G", "k"), *stream("U", "U", "j")]
    out = cases.sub(cases.read("sumG"), cases.read("sumU"))
    kernel = cases.kernel(
        "streams", [cases.buffer("G", 6, 4, 1), cases.buffer("U", 6, 4, 1), cases.buffer("Y", 6)],
        {"n": 6, "k": 4, "j": 4}, [*values, value("out", "n", out, store=store("Y", "n"))],
    )  # fmt: skip
    kernels = prepare(kernel, TARGET)
    assert all(v.over == kernel.value(v.name).over for v in kernels[0].values)
    assert_same([kernel], kernels, cases.arrays(kernel, np.random.default_rng(0)), {})
