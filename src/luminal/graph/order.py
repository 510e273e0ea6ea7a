"""Orders in which operands come before what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

from .node import Node

T = TypeVar("T")


def post_order(roots: Iterable[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """The roots and all below them, in the order in which a walk over the operands leaves them."""
    order: list[T] = []
    seen: set[T] = set()
    for root in roots:
        path = [] if root in seen else [(root, iter(operands(root)))]
        seen.add(root)
        while path:
            here, rest = path[-1]
            for below in rest:
                if below not in seen:
                    seen.add(below)
                    path.append((below, iter(operands(below))))
                    break
            else:
                order.append(here)
                path.pop()
    return order


def reachable(roots: Iterable[Node]) -> list[Node]:
    """The roots and all they depend on, in the order in which they were recorded."""
    seen = set(roots)
    todo = list(seen)
    while todo:
        new = [source for source in todo.pop().inputs if source not in seen]
        seen.update(new)
        todo += new
    return sorted(seen, key=attrgetter("number"))
