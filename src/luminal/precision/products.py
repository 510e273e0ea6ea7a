"""Weights as sums of products of integers and floats, and how large sums of such integers get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..graph.dtype import i8, u8
from ..graph.node import Node
from ..graph.tensor import Tensor
from .groups import Groups

Leaves: TypeAlias = tuple[Node, ...]  # of the shape of the contraction
Alike: TypeAlias = tuple[Leaves, Leaves, float]  # floats, scales, number


@dataclass(frozen=True)
class Product:
    """A product: number * integers * floats. integers: of 8-bit dtypes, at most one of them in the
    terms of a group, in which the others are constant."""

    number: float = 1.0
    integers: Leaves = ()
    floats: Leaves = ()


@dataclass(frozen=True)
class Quantised:
    """q * scale: `values` i8, `sums` of it (i16 or i32) without what is inside groups, and scales
    without what is inside units. dims: those of the split contraction that `values` has."""

    values: Tensor
    sums: Tensor
    scale: Tensor
    dims: tuple[int, ...]


def most(count: int, zero: float, by: Groups) -> float:
    """What no sum over a unit exceeds: of so many products and a zero point, times a scale."""
    whole = by.unit * i8.highest * (count * u8.highest + abs(zero))
    return whole * u8.highest if by.nested else whole


def times(a: Product, b: Product) -> Product:
    return Product(a.number * b.number, a.integers + b.integers, a.floats + b.floats)
