"""In which order the axes of what is kept in memory stand."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from luminal.rewrite.lower_plan import _sorted

AXES = ("half", "byte", "block", "row")  # of packed numbers: their axes by name
PACKED = ("row", "block", "byte")  # a row's blocks, and their bytes of two numbers
OTHERS = ("block", "half", "byte", "row")  # two more weights have them so


def told(*orders: tuple[str, ...]) -> Counter[tuple[str, str]]:
    return Counter(pair for axes in orders for pair in combinations(axes, 2))


def test_a_weight_that_is_taken_apart_lies_as_it_is_packed() -> None:
    """Rows outside, though two others have them inside; what nobody packed stands where those have
    it."""
    before = told(PACKED, OTHERS, OTHERS)
    assert _sorted(AXES, told(), before, set()) == OTHERS
    assert _sorted(AXES, told(PACKED), before, set()) == ("row", "block", "half", "byte")
