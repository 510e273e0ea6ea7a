"""In which order the axes of a temporary stand in memory.

The orders of inputs and outputs say which axes belong outside of which. Where they say nothing,
axes of the data that changes stand outside of those that only constants have (a projection's
features stay contiguous).
"""

from __future__ import annotations

from collections.abc import Iterable

from .plan import Plan


def memory_orders(plan: Plan) -> dict[int, tuple[str, ...]]:
    """Class -> its axes, outermost first, for everything that the plan keeps in memory."""
    classes = plan.classes
    before = _precedence(plan)
    late = _constant_axes(plan)
    found = {}
    for piece in plan.pieces:
        for root in piece.roots:
            names = classes.encoding.names(classes.axes[root])
            found[root] = _sorted(names, before, late)
    return found


def _precedence(plan: Plan) -> dict[tuple[str, str], int]:
    """(a, b) -> how many inputs and outputs have a outside of b."""
    region = plan.classes.region
    orders = [root.axes for root in region.roots]
    orders += [t.attribute.axes for t in region.terms.nodes if t.op == "input"]
    before: dict[tuple[str, str], int] = {}
    for axes in orders:
        for i, a in enumerate(axes):
            for b in axes[i + 1 :]:
                before[a, b] = before.get((a, b), 0) + 1
    return before


def _constant_axes(plan: Plan) -> set[str]:
    """Axes that only constants bring in."""
    leaves = [t.attribute for t in plan.classes.region.terms.nodes if t.op == "input"]
    constant = {a for leaf in leaves if leaf.constant for a in leaf.axes}
    return constant - {a for leaf in leaves if not leaf.constant for a in leaf.axes}


def _sorted(
    names: Iterable[str], before: dict[tuple[str, str], int], late: set[str]
) -> tuple[str, ...]:
    """Repeatedly the axis that fewest others want outside of it."""
    rest = list(names)
    order: list[str] = []
    while rest:

        def unwanted(a: str) -> tuple[int, bool, int]:
            others = [b for b in rest if b != a]
            against = sum(before.get((b, a), 0) > before.get((a, b), 0) for b in others)
            return against, a in late, rest.index(a)

        first = min(rest, key=unwanted)
        order.append(first)
        rest.remove(first)
    return tuple(order)
