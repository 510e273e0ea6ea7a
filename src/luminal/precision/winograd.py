"""Convolutions with fewer multiplications.

Two neighbouring results of three taps take four products instead of six (Toom and Cook; Winograd,
Arithmetic Complexity of Computations, 1980; for pictures Lavin and Gray, arXiv 1509.09308):

    y[2 t + i] = sum over l of x[2 t + i + l] g[l]                       i < 2, l < 3
    -->  sum over p of RESULT[i, p] (INPUT x[2 t ..])[p] (WEIGHT g)[p]   p < 4

and likewise along a second axis. Read the other way round, three results take two taps at a time:
the gradient of the weight is a sum over such tiles, with the transposes of RESULT and WEIGHT.
Numbers are rounded otherwise than in the sum: as in other orders of it the error is of the size of
the largest products, here of those in a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np

from ..graph.dtype import f32
from ..graph.folding import constant_of
from ..graph.graph import Graph
from ..graph.index import Index, names_of
from ..graph.node import Node, View, position
from ..graph.passes import Program
from ..graph.views import ONE, ZERO, place, positions

INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, 1, -1, 0), (0, 1, 0, -1))
WEIGHT = ((1, 0, 0), (0.5, 0.5, 0.5), (-0.5, 0.5, -0.5), (0, 0, 1))
RESULT = ((1, 1, 1, 0), (0, 1, -1, -1))
SECOND = ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1))  # RESULT transposed, with factors of the next
GRADIENT = ((1, 1, -1, 0), (0, 1, 1, 0), (0, 1, -1, -1))  # WEIGHT transposed, without these
THREE, TWO, PRODUCTS = 3, 2, 4
AXES = 2  # that are taken together
TURNED = 3  # times what it takes to store numbers made of what a caller gives: it lies otherwise
BETWEEN = 12  # times what it takes to store a result of a gradient: between those of other parts
ROW = 16  # results, whose tiles lie side by side

Digits: TypeAlias = tuple[int, ...]
Matrix: TypeAlias = Sequence[Sequence[float]]
Grid: TypeAlias = Mapping[Digits, Node]


@dataclass(frozen=True)
class Slide:
    """x is read at the sum of the positions along two dimensions of a product, or at a difference:
    mirrored. long: it is cut into pairs; short: it has three positions."""

    long: int
    short: int
    mirrored: bool


def may_slide(program: Program) -> bool:
    """Something is added up that has three positions along some dimension."""
    summed = (node.inputs[0].shape for node in program.nodes() if node.op == "sum")
    return any(THREE in shape for shape in summed)


def in_tiles(graph: Graph, node: Node, dims: tuple[int, ...], moved: float) -> Node | None:
    """The sum over `dims` of a product of which one factor is read at the sum of two positions and
    the other at one of these; None where there is no such, or where storing numbers would take more
    time than is saved. moved: multiplications in the time in which a number is written and read."""
    for x, weight in (node.inputs, node.inputs[::-1]):
        slides = _slides(x, weight, dims) if x.op == weight.op == "view" else []
        if slides:
            tiles = _Tiles(graph, x, weight, slides, dims)
            saved, stored = tiles.counts()
            if saved > moved * stored:
                return tiles.result()
    return None


def _slides(x: Node, weight: Node, dims: tuple[int, ...]) -> list[Slide]:
    """Those whose short dimensions are all summed (taps), or all kept (results)."""
    kept = [d for d in range(len(x.shape)) if d not in dims]
    for taps, results, gradient in ((dims, kept, False), (kept, dims, True)):
        found: list[Slide] = []
        for short in (d for d in taps if x.shape[d] == THREE):
            free = (d for d in results if not _reads(weight, short if gradient else d))
            ways = ((long, _way(x, long, short)) for long in free)
            slides = [Slide(long, short, way < 0) for long, way in ways if way]
            found += [s for s in slides if _reads(weight, s.long if gradient else short)][:1]
        if found and len({s.long for s in found}) == len(found):
            return found[:AXES]
    return []


def _reads(node: Node, dim: int) -> bool:
    names = names_of((*node.attribute.index, *node.attribute.conditions))
    return position(dim) in names


def _way(x: Node, long: int, short: int) -> int:
    """1 if a step along one dimension is a step along the other, -1 if it is one back, else 0."""
    known = (*x.attribute.index, *x.attribute.conditions)

    def step(dim: int, far: int) -> list[Index]:
        return [index.substitute({position(dim): place(dim) + far}) for index in known]

    if not _reads(x, long):
        return 0
    moved = step(long, 1)
    return next((far for far in (1, -1) if moved == step(short, far)), 0)


class _Tiles:
    """A product in tiles along some slides. gradient: the short dimensions are those of results.

    order: its dimensions, the short ones first, as memory shall have them: tiles of long rows lie
    side by side. long: where the long ones stand there."""

    def __init__(
        self, graph: Graph, x: Node, weight: Node, slides: Sequence[Slide], dims: tuple[int, ...]
    ) -> None:
        self.graph, self.slides, self.dims = graph, slides, dims
        self.known, self.given = x.shape, (x, weight)
        self.gradient = slides[0].short not in dims
        shorts, longs = [s.short for s in slides], [s.long for s in slides]
        sides = [[d for d in range(len(x.shape)) if d not in shorts and (d in dims) is inside]
                 for inside in (self.gradient, not self.gradient)]  # fmt: skip
        rest = [d for side in sides for d in side]
        if self._usual(longs[-1]) >= ROW:
            rest = [*(d for d in rest if d not in longs), *longs]
        self.order = [*shorts, *rest]
        self.long = [self.order.index(d) for d in longs]
        self.shape = tuple(x.shape[d] for d in self.order)
        self.tiled = list(self.shape)
        for dim in self.long:
            self.tiled[dim] = (self.shape[dim] + TWO - 1) // TWO

    def _usual(self, dim: int) -> int:
        return int(self.known[dim].evaluate(self.graph.space.usual()))

    def counts(self) -> tuple[float, float]:
        """Multiplications that are saved, and numbers that are stored for that."""
        pairs = {d for s in self.slides for d in (s.long, s.short)}
        others = [d for d in range(len(self.known)) if d not in pairs]
        products, before = PRODUCTS ** len(self.slides), THREE ** len(self.slides)
        longs = [self._usual(s.long) for s in self.slides]
        tiles = products * prod(-(-n // TWO) for n in longs)

        def points(wanted: Callable[[int], bool]) -> int:
            return prod(self._usual(d) for d in others if wanted(d))

        saved = (before * prod(longs) - tiles) * points(lambda d: True)
        tiles *= TURNED if self.given[0].inputs[0].op == "input" else 1
        x, weight = self.given
        inputs, weights = points(partial(_reads, x)), points(partial(_reads, weight))
        results = points(lambda d: d not in self.dims)
        if self.gradient:
            return saved, tiles * (inputs + weights) + (products + BETWEEN * before) * results
        return saved, tiles * (inputs + results) + (products - before) * weights

    def result(self) -> Node:
        """The sum of the product."""
        index = [place(self.order.index(d)) for d in range(len(self.order))]
        for s in self.slides:
            index[s.short] = THREE - 1 - index[s.short] if s.mirrored else index[s.short]
        x, weight = (self._moved(factor, self.shape, index) for factor in self._factors())
        inputs = self._transformed(self._grid(PRODUCTS, lambda d: self._input(x, d)), INPUT)
        weights = self._second(weight) if self.gradient else self._weights(weight)
        shorts = len(self.long)
        summed = tuple(n for n, d in enumerate(self.order) if d in self.dims and n >= shorts)
        sums = self.graph.add("mul", (self._joined(inputs, 0, PRODUCTS), weights))
        sums = self.graph.add("sum", (sums,), summed) if summed else sums
        return self._results(sums)

    # ---- of inputs, weights and sums

    def _factors(self) -> tuple[Node, Node]:
        """The gradient's inputs have another name (a cast to the own dtype, see
        `train.checkpoint`): they are transformed again, not kept from the first time."""
        x, weight = self.given
        if self.gradient:
            again = self.graph.add("cast", x.inputs, None, f32)
            x = self.graph.moved(again, x.attribute)
        return x, weight

    def _input(self, x: Node, digits: Digits) -> Node:
        """The number of each tile with these digits; 0 beyond what results read."""
        shape, index, conditions = list(self.tiled), list(positions(len(self.shape))), []
        for short, (long, digit) in enumerate(zip(self.long, digits)):
            further = max(0, digit - (THREE - 1))
            shape[short], index[short] = ONE, Index.of(digit - further)
            index[long] = place(long) * TWO + further
            conditions.append(self.shape[long] - 1 - index[long])
        return self._moved(x, shape, index, conditions)

    def _weights(self, weight: Node) -> Node:
        """Their products with the rows of WEIGHT along all axes: a sum over new last dimensions."""
        rank, matrix, both = len(self.shape), np.array(WEIGHT, np.float32), np.ones((), np.float32)
        shape, index, at = list(self.tiled), list(positions(rank)), list[Index]()
        for short, long in enumerate(self.long):
            both = np.multiply.outer(both, matrix)
            shape[short], index[short], index[long] = Index.of(PRODUCTS), place(rank + short), ZERO
            at += [place(short), place(rank + short)]
        wide = (*shape, *(Index.of(THREE) for _ in self.long))
        rows = self._moved(constant_of(self.graph, both), wide, at)
        factors = self.graph.add("mul", (self._moved(weight, wide, index), rows))
        return self.graph.add("sum", (factors,), tuple(range(rank, len(wide))))

    def _second(self, weight: Node) -> Node:
        """What the gradient of a weight multiplies its inputs with, in tiles of pairs."""

        def pair(digits: Digits) -> Node:
            shape, index, conditions = list(self.tiled), list(positions(len(self.shape))), []
            for short, (long, digit) in enumerate(zip(self.long, digits)):
                shape[short], index[short] = ONE, ZERO
                index[long] = place(long) * TWO + digit
                conditions.append(self.shape[long] - 1 - index[long])
            return self._moved(weight, shape, index, conditions)

        return self._joined(self._transformed(self._grid(TWO, pair), SECOND), 0, PRODUCTS)

    def _results(self, sums: Node) -> Node:
        """The results of all tiles side by side, in the order that they had."""
        kept = [d for d in range(len(self.known)) if d not in self.dims]
        left = [d for d in self.order[len(self.long) :] if d in kept]

        def part(digits: Digits) -> Node:
            shape = (*sums.shape[len(digits) :], *(ONE for _ in digits))
            return self._moved(sums, shape, (*map(Index.of, digits), *positions(len(left))))

        slices = self._grid(PRODUCTS, part)
        results = self._transformed(slices, GRADIENT if self.gradient else RESULT)
        index = [place(kept.index(d)) for d in left]
        for s in self.slides:
            if self.gradient:
                here = place(kept.index(s.short))
                index.append(THREE - 1 - here if s.mirrored else here)
            else:
                dim = left.index(s.long)
                index[dim], digit = index[dim] // TWO, index[dim] % TWO
                index.append(digit)
        whole = self._joined(results, len(left), THREE if self.gradient else TWO)
        return self._moved(whole, [self.known[d] for d in kept], index)

    # ---- grids of nodes

    def _grid(self, count: int, make: Callable[[Digits], Node]) -> Grid:
        return {digits: make(digits) for digits in product(range(count), repeat=len(self.long))}

    def _transformed(self, grid: Grid, matrix: Matrix) -> Grid:
        """Along each axis the products with the rows of a matrix."""
        for n in range(len(self.long)):
            grid = {
                (*digits[:n], p, *digits[n + 1 :]): self._weighted(
                    [(grid[*digits[:n], d, *digits[n + 1 :]], f) for d, f in enumerate(row) if f]
                )
                for digits in grid if not digits[n] for p, row in enumerate(matrix)
            }  # fmt: skip
        return grid

    def _weighted(self, terms: Sequence[tuple[Node, float]]) -> Node:
        """The sum of nodes times numbers."""
        result: Node | None = None
        for node, factor in terms:
            number = self._moved(self.graph.literal(float(factor), f32).node, node.shape, ())
            node = node if factor == 1 else self.graph.add("mul", (node, number))
            result = self.graph.add("add", (result, node)) if result else node
        assert result is not None
        return result

    def _joined(self, grid: Grid, first: int, count: int) -> Node:
        """The nodes side by side along dimensions in which each of them has one position."""
        for n in reversed(range(len(self.long))):
            rows: dict[Digits, Node] = {}
            for digits, node in sorted(grid.items()):
                part = self._part(node, first + n, digits[n], count)
                before = rows.get(digits[:n])
                rows[digits[:n]] = self.graph.add("add", (before, part)) if before else part
            grid = rows
        return grid[()]

    def _part(self, node: Node, dim: int, digit: int, count: int) -> Node:
        """The node at one position of a dimension, 0 at others."""
        shape, index = list(node.shape), list(positions(len(node.shape)))
        shape[dim], index[dim] = Index.of(count), ZERO
        return self._moved(node, shape, index, (place(dim) - digit, digit - place(dim)))

    def _moved(
        self, node: Node, shape: Sequence[Index], index: Sequence[Index],
        conditions: Sequence[Index] = (),
    ) -> Node:  # fmt: skip
        view = View(tuple(shape), tuple(index), tuple(conditions), 0.0 if conditions else None)
        return self.graph.moved(node, view)
