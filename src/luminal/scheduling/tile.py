"""The register tile of a value: what it holds of each axis, and in which lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from ..kernel.target import MatrixInstruction
from .facts import Access

Pair: TypeAlias = tuple[MatrixInstruction, str]  # and the reduced axis that it collapses


@dataclass(frozen=True)
class Tile:
    """lane: the lane axis ("" for none). sizes: axis -> elements held in registers, lane included.

    reduced: the lane axis is reduced. pair: instruction that collapses an axis. partial:
    accumulators of each vector. across: an axis walked `lanes` at a time, for transposing in
    registers. copies: accesses that want to be copied into a better layout first. loads: a vector
    operation, where a repeated scalar is half a one: it never straddles lines. rows: the axis that
    lies in the rows of a matrix instruction, whose columns are the lanes. deep: a reduced axis, of
    which so many elements lie in further lanes, outside of the others. turns: of a staged product's
    loop, for whose operands there is room. packed: a short axis whose elements lie side by side for
    each lane; a vector has all of them.
    """

    lane: str
    reduced: bool
    sizes: Mapping[str, int]
    width: int  # lanes of a vector
    pair: Pair | None = None
    partial: int = 1
    across: str = ""
    copies: tuple[Access, ...] = ()
    cycles: float = 0.0
    loads: float = 0.0
    rows: str = ""
    deep: tuple[str, int] = ("", 1)
    turns: int = 0
    packed: str = ""

    def unit(self, axis: str) -> int:
        """Elements of an axis in a vector, or in a matrix in registers."""
        if self.rows and self.pair and axis == self.rows:
            return self.pair[0].rows
        if axis == self.packed:
            return self.size(axis)
        return self.width if axis == self.lane else 1

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)

    @property
    def matrices(self) -> bool:
        """It is held in registers of matrices: others find it in memory."""
        return bool(self.rows and self.pair and self.pair[0].registers)

    @property
    def vectors(self) -> int:
        """How many vectors the tile holds, or matrices."""
        return prod(n // self.unit(a) for a, n in self.sizes.items())

    @property
    def text(self) -> str:
        """ "a1/64# a0/6": the lane axis is marked as in a path."""
        mark = {self.lane: "#"}
        sizes = [f"{axis}/{n}{mark.get(axis, '')}" for axis, n in self.sizes.items()]
        sizes += ["{}/{}#".format(*self.deep)] if self.deep[0] else []
        return " ".join(sizes + ([self.pair[0].name] if self.pair else [])) or "scalar"


def packed(lane: str, short: str, count: int, width: int) -> Tile:
    """A vector of all elements of a short axis for each of its lanes."""
    return Tile(lane, False, {lane: width, short: count}, width, packed=short)
