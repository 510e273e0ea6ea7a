"""Views in normal form: they compose by substitution, so a chain of movements is one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from .index import Index
from .node import Shape, View, number_key, position
from .space import Space

ZERO, ONE = Index.of(0), Index.of(1)


def positions(count: int) -> tuple[Index, ...]:
    """i0, i1, ... of a result with this many dimensions."""
    return tuple(map(place, range(count)))


def place(dim: int) -> Index:
    """The position along a dimension of the result."""
    return Index.of(position(dim))


def product(sizes: Sequence[Index]) -> Index:
    return prod(sizes, start=ONE)


# ---- normal form and composition


def normal(space: Space, view: View) -> View | None:
    """The view with simplified indices and only the conditions that are not proven.

    `space` knows the positions of the view's shape. None where some condition never holds.
    """
    ones = {position(d): ZERO for d, size in enumerate(view.shape) if size == 1}
    index = tuple(space.simplify(space.substitute(i, ones)) for i in view.index)
    conditions = space.domain(space.simplify(space.substitute(c, ones)) for c in view.conditions)
    if conditions is None:
        return None
    conditions = space.irredundant(conditions)
    return View(view.shape, index, conditions, view.fill if conditions else None)


def sized(space: Space, view: View) -> View:
    """The view with the sizes of its shape in normal form: equal ones are one."""
    shape = tuple(size if size.is_constant else space.simplify(size) for size in view.shape)
    return view if shape == view.shape else replace(view, shape=shape)


def compose(space: Space, outer: View, inner: View) -> View | None:
    """The outer view of what the inner view gives; None where two fills differ.

    `space` knows the positions of the outer view's shape.
    """
    if outer.conditions and inner.conditions and number_key(outer.fill) != number_key(inner.fill):
        return None
    mapping = {position(dim): index for dim, index in enumerate(outer.index)}
    conditions = outer.conditions + tuple(space.substitute(c, mapping) for c in inner.conditions)
    index = tuple(space.substitute(i, mapping) for i in inner.index)
    fill = outer.fill if outer.conditions else inner.fill
    return View(outer.shape, index, conditions, fill)


def is_identity(view: View, source: Shape) -> bool:
    """Whether a view in normal form changes nothing."""
    if view.shape != source or view.conditions:
        return False
    return all(
        index is (ZERO if size == 1 else place(dim))
        for dim, (index, size) in enumerate(zip(view.index, source))
    )
