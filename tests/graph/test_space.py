"""Proofs that the compiler relies on, for symbolic sizes. (Soundness: test_index.py.)"""

from itertools import product

from luminal.graph.index import Index
from luminal.graph.parse import index_of
from luminal.graph.space import Space


def space(**axes):
    return Space({"n": (3, 100), "s": (1, 2**31 - 1), "t": (1, 2**31 - 1)}, axes)


def test_windows_stay_inside():
    known = space(i=index_of("(n - 3)//2 + 1"), r=3)
    assert known.inside(Index.of("i") * 2 + "r", "n")
    assert not known.inside(Index.of("i") * 2 + "r" + 1, "n")


def test_roll_by_a_symbolic_size():
    known = space(i="s")
    assert known.inside((Index.of("i") - 5) % "s", "s")


def test_row_major_positions():
    known = space(i="s", j="t", k=64)
    flat = (Index.of("i") * "t" + "j") * 64 + "k"
    assert known.inside(flat, index_of("s*t*64"))
    assert not known.inside(flat + 1, index_of("s*t*64"))
    assert known.simplify(flat // index_of("64*t")) is Index.of("i")


def test_products_of_sizes():
    known = space(i="s")
    assert known.nonnegative(index_of("s*t - s"))
    assert known.nonnegative(index_of("s*t - t"))
    assert not known.nonnegative(index_of("s*t - t - 1"))
    assert known.nonnegative(index_of("s*t - 1") - Index.of("i") * "t")


def test_causal_conditions():
    known = space(q="s", k="s")
    causal = Index.of("q") - "k"
    assert known.bounds(causal)[0] < 0
    assert known.implies([causal], causal + 1)
    assert known.contradicts([causal], -causal - 1)
    assert not known.implies([causal], causal - 1)


def test_narrowing_a_size_helps():
    known = space()
    assert not known.nonnegative(index_of("s - 2"))
    known.add_size("s", 2, 9)
    assert known.nonnegative(index_of("s - 2"))


def test_digits_of_one_position_stay_inside():
    known = space(i=80, r=3)
    at = Index.of("i") + "r" - 1
    digit = at // 2 - at // 4 * 2
    assert known.bounds(digit) == (0, 1)
    assert known.bounds(1 - digit) == (0, 1)


def test_conditions_through_a_floor_are_half_spaces():
    known = space(i=80, r=3)
    at = Index.of("i") + "r" - 1
    inside = [at, 79 - at]
    assert known.implies(inside, at // 4)
    assert known.implies(inside, 19 - at // 4)
    assert known.implies([at // 4 - 2], at - 8)
    assert not known.implies(inside, 18 - at // 4)
    assert not known.implies([at // 4 - 2], at - 9)
    assert known.implies([Index.of("i") * 2 + "r" - 1], (Index.of("r") - 1) // 2 + "i")


def test_a_condition_may_follow_from_a_multiple_of_another():
    known = space(i=10, r=4)
    inside = [Index.of("i") - 1]
    assert known.implies(inside, Index.of("i") * 4 + "r" - 4)
    assert not known.implies(inside, Index.of("i") * 4 + "r" - 5)
    assert known.implies([9 - Index.of("s") * 2], 27 - Index.of("s") * 6)
    assert not known.implies([9 - Index.of("s") * 2], 26 - Index.of("s") * 6)
    assert not known.implies(inside, 4 - Index.of("i") * 4)


def test_a_floor_over_an_axis_of_two_places_is_a_line():
    known, a, b = space(a=2, b=3), Index.of("a"), Index.of("b")
    assert known.floor(a + 1, 2) is a
    assert known.floor(7 - 5 * a, 3) is 2 - 2 * a
    assert known.floor(b + 1, 2).floors


def test_bounds_hold_wherever_what_is_assumed_does():
    """Against all sizes that a run may have: it refuses the others."""
    s, t = Index.of("s"), Index.of("t")
    numbers = range(-2, 3)
    for a, b, c in product(numbers, numbers, (-3, 0, 2)):
        space = Space({"s": (0, 5), "t": (1, 4)}, {"i": s})
        space.assume(s * a + t * b + c)
        at = [(x, y) for x, y in product(range(6), range(1, 5)) if a * x + b * y + c >= 0]
        for d, e, f in product(numbers, numbers, (0, 1)):
            found = [d * x + e * y + f * i for x, y in at for i in range(x if f else 1)]
            low, high = space.bounds(s * d + t * e + Index.of("i") * f)
            assert not found or (low <= min(found) and max(found) <= high)


def test_a_part_lies_inside_where_that_is_assumed():
    space = Space({"rows": (1, 9), "wanted": (1, 9)}, {"i": Index.of("wanted")})
    place = Index.of("i") + Index.of("rows") - Index.of("wanted")
    assert not space.inside(place, Index.of("rows"))
    space.assume(Index.of("rows") - Index.of("wanted"))
    assert space.inside(place, Index.of("rows"))
