"""Integer expressions against plain integers, and every proof of a Space against brute force."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.errors import DimError
from luminal.graph.index import Index
from luminal.graph.parse import index_of
from luminal.graph.space import Space

AXES = {"x": 5, "y": 4}
SIZES = {"s": (1, 4), "t": (0, 3)}
SPACE = Space(SIZES, {"x": 5, "y": 4, "z": "s"})


def points(space=SPACE):
    """Every assignment of the variables that the space allows (z runs to s - 1)."""
    for s, t, x, y in product(range(1, 5), range(4), range(5), range(4)):
        for z in range(s):
            yield {"s": s, "t": t, "x": x, "y": y, "z": z}


POINTS = list(points())[::3]


@st.composite
def trees(draw, depth=3):
    """An expression as a (function of values, Index) pair."""
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            name = draw(st.sampled_from(["s", "t", "x", "y", "z"]))
            return (lambda v: v[name]), Index.of(name)
        number = draw(st.integers(-6, 6))
        return (lambda v: number), Index.of(number)
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "//s", "%s"]))
    f, a = draw(trees(depth - 1))
    if kind in ("//", "%"):
        n = draw(st.integers(1, 5))
        return ((lambda v: f(v) // n), a // n) if kind == "//" else ((lambda v: f(v) % n), a % n)
    if kind in ("//s", "%s"):
        if kind == "//s":
            return (lambda v: f(v) // v["s"]), a // "s"
        return (lambda v: f(v) % v["s"]), a % "s"
    g, b = draw(trees(depth - 1))
    return {
        "+": ((lambda v: f(v) + g(v)), a + b),
        "-": ((lambda v: f(v) - g(v)), a - b),
        "*": ((lambda v: f(v) * g(v)), a * b),
        "min": ((lambda v: min(f(v), g(v))), a.minimum(b)),
        "max": ((lambda v: max(f(v), g(v))), a.maximum(b)),
    }[kind]


@given(trees())
@settings(max_examples=100, deadline=None)
def test_arithmetic_is_that_of_integers(tree):
    function, index = tree
    assert all(index.evaluate(v) == function(v) for v in POINTS)


@given(trees())
@settings(max_examples=100, deadline=None)
def test_bounds_hold(tree):
    low, high = SPACE.bounds(tree[1])
    assert all(low <= tree[0](v) <= high for v in POINTS)


@given(trees())
@settings(max_examples=100, deadline=None)
def test_simplify_keeps_the_value(tree):
    simple = SPACE.simplify(tree[1])
    assert all(simple.evaluate(v) == tree[0](v) for v in POINTS)


@given(trees(), st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_floor_and_mod(tree, n):
    quotient, rest = SPACE.floor(tree[1], n), SPACE.mod(tree[1], n)
    for v in POINTS:
        assert (quotient.evaluate(v), rest.evaluate(v)) == divmod(tree[0](v), n)


@given(trees(), trees())
@settings(max_examples=100, deadline=None)
def test_substitute(outer, inner):
    result = SPACE.substitute(outer[1], {"x": inner[1]})
    assert all(result.evaluate(v) == outer[0]({**v, "x": inner[0](v)}) for v in POINTS)


@given(st.lists(trees(2), min_size=1, max_size=2), trees(2))
@settings(max_examples=100, deadline=None)
def test_implies_and_contradicts_are_sound(domain, condition):
    known = [index for _, index in domain]
    inside = [v for v in POINTS if all(f(v) >= 0 for f, _ in domain)]
    if SPACE.implies(known, condition[1]):
        assert all(condition[0](v) >= 0 for v in inside)
    if SPACE.contradicts(known, condition[1]):
        assert all(condition[0](v) < 0 for v in inside)


@given(st.lists(trees(2), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_domain_keeps_the_same_points(conditions):
    kept = SPACE.domain(index for _, index in conditions)
    for v in POINTS:
        holds = all(f(v) >= 0 for f, _ in conditions)
        assert holds == (kept is not None and all(c.evaluate(v) >= 0 for c in kept))


def test_normal_form_is_interned():
    s, x = Index.of("s"), Index.of("x")
    assert (s + 1) * 2 is 2 * s + 2
    assert (x // 3) * 3 + x % 3 is x
    assert (s + x) - x is s
    assert Index.of("s") == s and s != 1 and Index.of(3) == 3


def test_merge_then_split_is_gone():
    space = Space({"s": (1, 100)}, {"a": "s", "b": 7})
    merged = Index.of("a") * 7 + "b"
    assert space.floor(merged, 7) is Index.of("a")
    assert space.mod(merged, 7) is Index.of("b")
    flat = Index.of("b") * "s" + "a"
    assert space.simplify(flat // "s") is Index.of("b")


def test_text_of_sizes():
    assert index_of("2*s + 1") is Index.of("s") * 2 + 1
    assert index_of("(s + 3)//4") is (Index.of("s") + 3) // 4
    assert index_of("min(s, 4)") is Index.of("s").minimum(4)
    assert str(index_of("(s - 1)//4 - 2*s")) == "((s - 1)//4) - 2*s"
    assert index_of(str(index_of("(s*t + 3)//(4*t) - 2"))) is index_of("(s*t + 3)//(4*t) - 2")


@pytest.mark.parametrize("wrong", ["", "s +", "2.5", "s / 2", "f(s)", "i0", "a3", "s // 0", 1.5])
def test_wrong_sizes(wrong):
    with pytest.raises(DimError):
        index_of(wrong)


def test_a_size_of_run_time_is_no_number():
    with pytest.raises(DimError, match="size s is known when a program runs"):
        int(Index.of("s"))
