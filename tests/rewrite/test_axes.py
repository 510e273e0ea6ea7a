"""Axes that merge and refine, digits of views, and what cuts know of maps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.graph.index import Index
from luminal.graph.node import View
from luminal.graph.space import Space
from luminal.rewrite.axes import Axes, quotient
from luminal.rewrite.digits import analyse, mixed_radix
from luminal.rewrite.maps import injective
from luminal.rewrite.terms import Map

N = Index.of("n")


def composite(axes, *extents):
    return tuple(a for extent in extents for a in axes.fresh(Index.of(extent)))


def extents(axes, found):
    return [str(axes.extents[a]) for a in axes.resolve(found)]


def test_quotients_are_exact_or_none():
    assert quotient(N * 6, N) == 6 and quotient(N * 6, Index.of(2)) is N * 3
    assert quotient(N, Index.of(2)) is None and quotient(Index.of(4), Index.of(0)) is None


def test_unifying_refines_to_the_common_factors():
    axes = Axes()
    first, second = composite(axes, 4, 6), composite(axes, 2, 12)
    assert axes.unify(first, second)
    assert axes.resolve(first) == axes.resolve(second)
    assert extents(axes, first) == ["2", "2", "6"]


def test_symbolic_sizes_refine_too():
    axes = Axes()
    first, second = composite(axes, N * 8), composite(axes, N, 8)
    assert axes.unify(first, second) and extents(axes, first) == ["n", "8"]


@pytest.mark.parametrize("sizes", [((6, 4), (8, 3)), ((3, N), (N, 3))])
def test_what_does_not_factor_stays_apart(sizes):
    axes = Axes()
    first, second = (composite(axes, *s) for s in sizes)
    assert not axes.unify(first, second)


def test_axes_of_one_value_are_never_merged():
    axes = Axes()
    first, second = composite(axes, 4), composite(axes, 4)
    axes.separate(first + second)
    assert not axes.unify(first, second)
    other = composite(axes, 4)
    assert axes.unify(first, other) and not axes.unify(other, second)


def test_refined_axes_stay_apart_from_what_their_whole_was():
    axes = Axes()
    whole, beside = composite(axes, 8), composite(axes, 2)
    axes.separate(whole + beside)
    assert axes.split(whole, [Index.of(2), Index.of(4)]) is not None
    assert not axes.unify(axes.resolve(whole)[:1], beside)


def test_an_empty_axis_is_not_refined():
    axes = Axes()
    assert axes.split(composite(axes, 0), [Index.of(3), Index.of(0)]) is None


# ---- digits


def test_digits_of_a_split_and_of_a_repeat():
    i0, sizes = Index.of("i0"), Space()
    split = View((Index.of(24),), (i0 // 4, i0 % 4))
    found = analyse(split, (Index.of(6), Index.of(4)), (True, True), sizes)
    assert [extent for _, extent in found.positions[0]] == [6, 4] and None not in found.order
    repeat = View((Index.of(12),), (i0 % 4,))
    found = analyse(repeat, (Index.of(4),), (True,), sizes)
    assert len(found.positions[0]) == 2 and len(found.order[0]) == 1


def test_what_is_read_at_a_map_is_not_cut():
    i0 = Index.of("i0")
    view = View((Index.of(6),), ((i0 + 1) // 4, (i0 + 1) % 4))
    found = analyse(view, (Index.of(2), Index.of(4)), (True, True), Space())
    assert found.order == (None, None) and len(found.positions[0]) == 1


def test_mixed_radix_must_be_complete():
    space = Space({"n": (1, 100)}, {"a": N, "b": Index.of(4)})
    a, b = Index.of("a"), Index.of("b")
    assert mixed_radix(a * 4 + b, N * 4, space) == ("a", "b")
    assert mixed_radix(a + N * b, N * 4, space) == ("b", "a")
    for index, size in ((a * 5 + b, N * 4), (a * 4 + b + 1, N * 4), (a, N * 4), (a * 4 - b, N)):
        assert mixed_radix(index, size, space) is None


# ---- injective maps


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=3, max_size=3), st.integers(2, 9), st.booleans())
def test_injective_maps_repeat_nothing(coefficients, modulus, wrapped):
    extents = {"a": 3, "b": 2, "c": 4}
    space = Space({}, {k: Index.of(v) for k, v in extents.items()})
    index = Index.of(coefficients[0])
    for name, coefficient in zip("abc", coefficients[:3]):
        index = index + Index.of(name) * coefficient
    if wrapped:
        index = space.mod(index, modulus)
    names = sorted(space.depends(index))
    points = itertools.product(*(range(extents[n]) for n in names))
    values = [index.evaluate(dict(zip(names, point))) for point in points]
    if injective(Map((("x", index),)), space):
        assert len(set(values)) == len(values)


def test_rolls_flips_and_slices_are_injective_windows_are_not():
    space = Space({"n": (4, 100)}, {"a": N, "r": Index.of(3)})
    a, r = Index.of("a"), Index.of("r")
    for index in (N - 1 - a, a + 1, a * 2, (a + 1) % N, a * 3 + r):
        assert injective(Map((("x", index),)), space)
    for index in (a + r, a // 2, a * 2 + r):
        assert not injective(Map((("x", index),)), space)
