"""Orders in which operands come before what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from .node import Node

T = TypeVar("T")


def post_order(roots: Iterable[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """The roots and all below them, in the order in which a walk over the operands leaves them."""
    order: list[T] = []
    seen: set[T] = set()
    waiting = [(root, False) for root in roots][::-1]
    while waiting:
        here, done = waiting.pop()
        if done:
            order.append(here)
        elif here not in seen:
            seen.add(here)
            waiting.append((here, True))
            waiting += [(x, False) for x in operands(here) if x not in seen][::-1]
    return order


def reachable(roots: Iterable[Node]) -> list[Node]:
    """The roots and all they depend on, in the order in which they were recorded."""
    return sorted(post_order(roots, lambda node: node.inputs), key=lambda node: node.number)
