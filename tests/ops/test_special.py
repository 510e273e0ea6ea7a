"""Special functions in double precision against PyTorch's."""

import math

import numpy as np
import pytest

import luminal
from luminal import train
from luminal.ops import bessel, gamma
from luminal.ops.chebyshev import chebyshev

torch = pytest.importorskip("torch")

FAR = [0, 1, 2, -1, -3, 1e-30, -1e-30, 30.5, 300, 1e10, 1e30, np.inf, np.nan]
POINTS = np.concatenate([np.linspace(-9.9, 9.9, 100), FAR])
INSIDE = np.concatenate([np.linspace(0, 1, 41), [1e-30, 1e-5, 1 - 1e-9, -0.1, 1.1, np.nan]])
AROUND = np.concatenate([np.linspace(-3, 3, 25), [1e-30, -0.0]])


def polynomials(kind):
    """All degrees from -1 to 7, side by side."""
    theirs = getattr(torch.special, f"chebyshev_polynomial_{kind}")
    return (
        lambda x: luminal.ops.stack([chebyshev(kind, x, n) for n in range(-1, 8)]),
        lambda x: torch.stack([theirs(x, n) for n in range(-1, 8)]),
        AROUND,
    )


FUNCTIONS = {
    "lgamma": (gamma.lgamma, torch.lgamma, POINTS),
    "digamma": (gamma.digamma, torch.digamma, POINTS),
    "second derivative": (
        lambda x: gamma.polygamma(2, x), lambda x: torch.polygamma(2, x), POINTS,
    ),
    "zeta": (
        lambda x: gamma.zeta(x, x * 0 + 1.5), lambda x: torch.special.zeta(x, 1.5), POINTS,
    ),
    "zeta far below 0": (
        lambda x: gamma.zeta(x * 0 + 3.0, x * 9), lambda x: torch.special.zeta(3.0, x * 9), POINTS,
    ),
    "erfcx": (gamma.erfcx, torch.special.erfcx, POINTS),
    "log_ndtr": (gamma.log_ndtr, torch.special.log_ndtr, POINTS),
    "ndtri": (gamma.ndtri, torch.special.ndtri, INSIDE),
    "i0": (bessel.i0, torch.special.i0, POINTS),
    "i0e": (bessel.i0e, torch.special.i0e, POINTS),
    "i1": (bessel.i1, torch.special.i1, POINTS),
    "i1e": (bessel.i1e, torch.special.i1e, POINTS),
    "spherical j0": (bessel.spherical_j0, torch.special.spherical_bessel_j0, AROUND),
    **{f"chebyshev {kind}": polynomials(kind) for kind in "tuvw"},
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_function(name):
    ours, theirs, points = FUNCTIONS[name]
    cx = luminal.Graph()
    result = ours(cx.tensor((len(points),), "f64").set(points)).output()
    rt = cx.compile(device="reference")
    rt.run()
    expected = theirs(torch.tensor(points)).numpy()
    np.testing.assert_allclose(rt[result], expected, rtol=1e-11, atol=1e-12)


def test_narrow_floats_are_rounded_once():
    cx = luminal.Graph()
    x = cx.tensor((3,), "f32").set(np.array([0.5, 1.5, 20], np.float32))
    result = gamma.lgamma(x).output()
    rt = cx.compile(device="reference")
    rt.run()
    assert rt[result].tolist() == [np.float32(math.lgamma(v)) for v in (0.5, 1.5, 20)]


@pytest.mark.parametrize("kinds", [("bf16", "f32"), ("f32", "bf16"), ("f16", "bf16")])
def test_neighbours_are_those_of_the_common_dtype(kinds):
    cx = luminal.Graph()
    x, y = (cx.constant([value, 0.0, -2.0]).cast(k) for value, k in zip((1.0, 3.0), kinds))
    assert luminal.ops.nextafter(x, y).numpy().tolist() == [1 + 2.0**-23, 0, -2]


def test_the_derivative_of_digamma_ends_at_zero():
    cx = luminal.Graph()
    result = gamma.polygamma(1, cx.tensor((2,), "f64").set([1, np.inf])).output()
    rt = cx.compile(device="reference")
    rt.run()
    np.testing.assert_allclose(rt[result], [math.pi**2 / 6, 0], rtol=1e-14)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_zeros_have_the_signs_of_pytorch(device):
    numbers = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan]
    pairs = np.array([(a, b) for a in numbers for b in numbers], np.float32).T
    cx = luminal.Graph()
    x, y = (cx.tensor(pairs[0].shape).set(row) for row in pairs)
    names = ("fmod", "remainder", "floor_divide", "atan2")
    made = [getattr(luminal.ops, name)(x, y).output() for name in names]
    rt = cx.compile(device=device)
    rt.run()
    for name, result in zip(names, made):
        wanted = getattr(torch, name)(*map(torch.from_numpy, pairs)).numpy()
        np.testing.assert_allclose(rt[result], wanted, atol=1e-6, err_msg=name)
        number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(rt[result])[number], np.signbit(wanted)[number])


@pytest.mark.parametrize("name", ["fmod", "remainder", "atan2"])
def test_slopes_at_zeros_are_those_of_pytorch(name):
    pairs = np.array([(0, 2), (-0.0, 2), (4, 2), (-4, 2), (3, -2)])
    cx = luminal.Graph()
    x, y = (cx.tensor((len(pairs),)).set(row.astype(np.float32)) for row in pairs.T)
    slopes = train.backward(getattr(luminal.ops, name)(x, y).sum(), [x, y])
    for slope in slopes:
        slope.output()
    rt = cx.compile(device="reference")
    rt.run()
    a, b = (torch.tensor(row, dtype=torch.float32, requires_grad=True) for row in pairs.T)
    getattr(torch, name)(a, b).sum().backward()
    for mine, theirs in zip(slopes, (a.grad, b.grad)):
        np.testing.assert_allclose(rt[mine], theirs.numpy(), atol=1e-6)


def test_signs_of_zeros_and_integers_that_wrap_around():
    cx = luminal.Graph()
    x, y = (cx.tensor((2,)).set(np.float32(values)) for values in ([-0.0, 0.0], [0.0, -0.0]))
    a, b = (cx.tensor((2,), "i8").set(np.int8(values)) for values in ([-128, 0], [3, -1]))
    extrema = [getattr(luminal.ops, name)(x, y).output() for name in ("fmax", "fmin")]
    signed = luminal.ops.copysign(a, b).output()
    multiple = luminal.ops.lcm(a + 2, b * 0 + 127).output()  # 126 * 127 and 2 * 127
    rt = cx.compile()
    rt.run()
    for extremum in extrema:  # the first of equal ones
        assert np.signbit(rt[extremum]).tolist() == [True, False]
    assert rt[signed].tolist() == [128.0, 0.0] and np.signbit(rt[signed])[1]
    assert rt[multiple].tolist() == [-126, -2]
