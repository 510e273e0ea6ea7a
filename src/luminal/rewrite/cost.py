"""A roofline for kernels of a plan: enough to choose what to store, not to choose schedules.

What it counts, and why: multiply-adds of contractions at the rate of the multiply-add units, all
else in vector operations; memory once for each buffer; work that a loop over foreign axes repeats
(a computed operand is made once for each tile of them); a contraction whose result several passes
need, which spoils its register tile.
A guard costs nothing: it cuts a loop, and what is under it is only made where it holds (but for
reductions, which are values of their own). A view costs nothing: it is an address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import and_
from typing import TYPE_CHECKING

from ..graph.order import post_order
from ..graph.scalars import SCALARS
from ..graph.space import share
from .extract import Classes, ENode
from .rates import CostModel

if TYPE_CHECKING:
    from .plan import FusedKernel


FREE = frozenset(("const", "one", "index", "guard", "load"))
_ONCE = 1e-9  # seconds: fewer kernels are better where nothing else tells
_RUNS = 100  # in which a constant that is made once must have paid for its memory
_UNHELD = 100.0  # times: what the threads of a unit cannot hold is divided, and made again
_OUTSIDE = {(0, 0)}  # the use of what no reduction uses
_OPERAND = 1.1  # times the work: better the end of one contraction than an operand of the next
_WIDENED = 0.5  # the speed of products of halves that are widened, as rows of them are added up
_ONLINE = 2.0  # vector operations of a rescale, a point of the running maximum


class CostEstimator:
    """Modelled seconds of pieces, remembered."""

    def __init__(
        self,
        classes: Classes,
        model: CostModel,
        measured: Mapping[tuple[int, ...], float] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """measured: seconds of pieces by key, which then stand instead of the model's. sizes: those
        that are not as usual."""
        self.classes, self.model = classes, model
        space = classes.encoding.space
        sizes = {**space.usual(model.hint), **(sizes or {})}
        self.extents = [max(1, int(space.axes[a].evaluate(sizes))) for a in classes.encoding.axes]
        self.points = cache(self._points)
        axes = dict(zip(classes.encoding.axes, self.extents))
        self.share = cache(lambda domain: share(domain, axes, sizes))
        self._prices = dict(measured or {})
        self.work = 0  # e-nodes of all the pieces that were priced

    def _points(self, mask: int) -> float:
        """The number of points of a set of axes."""
        if not mask:
            return 1.0
        low = mask & -mask
        return self.extents[low.bit_length() - 1] * self.points(mask ^ low)

    def price(self, piece: FusedKernel) -> float:
        """Seconds a run; what depends on constants only runs once, but takes memory."""
        found = self._prices.get(piece.key)
        if found is None:
            self.work += len(piece.body)
            free = self.classes.constant[piece.roots[0]]
            found = self._price_once(piece) if free else _Estimate(self, piece).seconds()
            self._prices[piece.key] = found
        return found

    def _price_once(self, piece: FusedKernel) -> float:
        """A second copy of weights must save what it takes within so many runs."""
        made = sum(self.bytes(root) for root in piece.roots)
        return _ONCE + made / self.model.bandwidth / _RUNS

    def bytes(self, c: int) -> float:
        """Of the buffer of a class."""
        return self.points(self.classes.axes[c]) * self.classes.dtype[c].bytes


class _Estimate:
    """One piece: loops around each node, how often it is repeated, in which passes it is used."""

    def __init__(self, estimator: CostEstimator, piece: FusedKernel) -> None:
        self.estimator, self.piece = estimator, piece
        self.classes, self.model = estimator.classes, estimator.model
        self.axes = estimator.classes.axes
        self.node = dict(piece.body)
        self.order = [c for c, _ in piece.body]
        self.streams = {(n.attribute, n.children[0]) for n in self.node.values() if n.op == "osum"}
        self.running = {(over, score) for (over, _), score in self.streams}  # maxima
        self.level = self._levels()
        self.weights = self._weights()
        self.loops: dict[int, int] = {}  # axes of the loops around a node
        self.inner: dict[int, int] = {}  # ... that belong to a reduction which uses it
        self.repeat: dict[int, float] = {}
        self.share: dict[int, float] = {}  # of the points around it, at which it is made
        self.uses: dict[int, set[tuple[int, int]]] = {c: set() for c in self.order}
        self.products = self._products()
        self._downwards()

    # ---- structure

    def _levels(self) -> dict[int, int]:
        """The longest chain of reductions below each node: which pass it belongs to."""
        level: dict[int, int] = {}
        for c in self.order:
            node = self.node[c]
            below = max((level.get(child, 0) for child in node.inline), default=0)
            level[c] = below + (1 if node.over or self._hidden_maximum(node) else 0)
        return level

    def _hidden_maximum(self, node: ENode) -> bool:
        """2^(x - max_k x) needs a pass for the maximum, unless an online sum runs over it."""
        return node.op == "wexp" and (node.attribute, node.children[0]) not in self.streams

    def _weights(self) -> set[int]:
        """What is made of weights alone, and of where they stand."""
        found = set[int]()
        for c, node in self.piece.body:
            read = node.memory or (c,) if node.op in ("load", "read", "gather") else ()
            known = all(self.classes.fixed[buffer] for buffer in read)
            if known and all(x in found for x in node.inline):
                found.add(c)
        return found

    def _products(self) -> dict[int, list[int]]:
        """Sums of products of two factors with kept axes of their own -> all factors: contractions.
        What has none of the summed axes is no such factor."""
        found = {}
        for c, node in self.piece.body:
            if node.op == "sum":
                factors = self.factors(node.children[0])
                masks = (self.axes[f] for f in factors)
                if contraction_operands([mask & ~node.over for mask in masks if mask & node.over]):
                    found[c] = factors
            elif node.op == "osum" and self.axes[node.children[1]] & ~self.axes[node.children[0]]:
                found[c] = self.factors(node.children[1])
        return found

    def factors(self, c: int) -> list[int]:
        """The factors of a product, each once."""

        def below(x: int) -> tuple[int, ...]:
            node = self.node.get(x)
            return node.children if node is not None and node.op == "mul" else ()

        return [x for x in post_order([c], below) if not below(x)]

    def _downwards(self) -> None:
        scatter = self.piece.scatter
        for root in scatter.inline if scatter is not None else self.piece.roots:
            self._use(root, self.axes[root], 1.0, _OUTSIDE)
        for c in reversed(self.order):
            node = self.node[c]
            if node.over:
                self._reduction(c, node)
            else:
                uses = self.uses[c]
                if self._hidden_maximum(node):
                    uses = {*uses, (node.attribute[0], self.level[c])}
                for child, share in zip(node.inline, self._branches(c, node)):
                    self._use(child, self.loops[c], self.repeat[c], uses, share)

    def _branches(self, c: int, node: ENode) -> list[float]:
        """The shares of a node's operands: the branches of a guard divide it."""
        whole = self.share[c]
        if node.op != "guard":
            return [whole] * len(node.inline)
        first = self.estimator.share(node.attribute)
        return [whole * first, whole * (1 - first)]

    def _reduction(self, c: int, node: ENode) -> None:
        """What is reduced is walked over its own loops, once for each tile of the loops around."""
        again = self.repeat[c] * self._recomputed(c, 2.0)
        if node.op == "osum":
            score, factor = node.children
            use = (node.over, self.level[c])
            running = {(-use[0], use[1])}
            self._use(score, self.axes[score] | node.over, again, running)
            self._use(factor, self.axes[c] | node.over, again, running)
            return
        (operand,) = node.children
        beside = node.op == "max" and (node.over, operand) in self.running
        mask = -node.over if beside else node.over
        self._use(operand, self.axes[c] | node.over, again, {(mask, self.level[c])})

    def _recomputed(self, c: int, least: float) -> float:
        """How often a reduction around it makes a value anew: for each tile of foreign axes."""
        missing = self.inner.get(c, 0) & ~self.axes[c] & ~self.node[c].over
        if not missing:
            return 1.0
        points = self.estimator.points(missing)
        tile = self.model.widest if c in self.weights else self.model.tile
        return max(least if points > 1 else 1.0, -(-points // tile))

    def _use(
        self, c: int, loops: int, repeat: float, uses: set[tuple[int, int]], share: float = 1.0
    ) -> None:
        """uses: axes of each reduction that uses it (negative: online), and its pass."""
        self.loops[c] = self.loops.get(c, 0) | loops
        if uses != _OUTSIDE:
            self.inner[c] = self.inner.get(c, 0) | loops
        self.repeat[c] = max(self.repeat.get(c, 0.0), repeat)
        self.share[c] = max(self.share.get(c, 0.0), share)
        self.uses[c] |= uses

    # ---- seconds

    def seconds(self) -> float:
        model = self.model
        multiply, vector = self._work()
        compute = multiply / model.flops + vector / model.vector * self._serial()
        memory = self._memory()
        both = max(memory, compute) + 0.2 * min(memory, compute)
        return both * self._too_few_threads() + model.launch

    def _too_few_threads(self) -> float:
        """Where a later reduction collapses all that the first ones keep (the norm of the one row
        that a matrix product gives), few threads do the work of all, and hold what it collapses."""
        reductions = [c for c, node in self.piece.body if node.over]
        first = min((self.level[c] for c in self.products or reductions), default=0)
        own = self.products or [c for c in reductions if self.level[c] == first]
        later = [c for c in reductions if self.level[c] > first]
        masks = [reduce(and_, (self.axes[c] for c in some), ~0) if some else 0
                 for some in (own, [*own, *later])]  # fmt: skip
        shared, common = (min(self.model.workers, self.estimator.points(mask)) for mask in masks)
        held = sum(
            self.estimator.points(self.axes[c] & ~masks[1]) * self.classes.dtype[c].bytes
            for c in reductions if any(mask > 0 and mask & self.axes[c] for mask, _ in self.uses[c])
        )  # fmt: skip
        return max(1.0, shared / common) * (_UNHELD if held > self.model.tiles else 1.0)

    def _work(self) -> tuple[float, float]:
        inside = {x for c, node in self.piece.body if node.over for x in self._chain(c)}
        multiply = vector = 0.0
        running: set[tuple[int, int]] = set()
        for c, node in self.piece.body:
            if node.op in FREE:
                continue
            points = self.estimator.points(self.axes[c] | node.over) * self.repeat[c]
            least = 2.0 if node.over else _OPERAND
            points *= max(self._recomputed(c, least), self._beside(c, node))
            if node.op == "osum" and (node.over, node.children[0]) not in running:
                running.add((node.over, node.children[0]))
                score = self.estimator.points(self.axes[node.children[0]] | node.over)
                vector += (SCALARS["exp2"].cost + _ONLINE) * score * self.repeat[c]
            if c in self.products:
                multiply += 2 * points * self._without_tile(c) / self._speed(c)
            elif c not in inside:
                share = 1.0 if node.over else self.share[c]
                narrow = min(1.0, self.classes.dtype[c].bytes / 4)  # more lanes in a vector
                vector += self.cost(node) * points * share * narrow
        return multiply, vector

    def _serial(self) -> float:
        """Reducing an axis of which an inner reduction over the kept axes wants every point apart
        (pooling of normalised rows) leaves few points for threads to share."""
        reductions = [c for c in self.order if self.node[c].over & self.loops[c]]
        inner = [(self.axes[c], use) for c in reductions for use in self.uses[c]]
        lost = any(mask > 0 and mask & axes for axes, (mask, _) in inner)
        return 3.0 if lost else 1.0

    def _beside(self, c: int, node: ENode) -> float:
        """A row's statistic beside a contraction is made once for each tile of its columns."""
        if not node.over or node.op == "osum" or c in self.products or not self.products:
            return 1.0
        own = self.axes[c] | node.over
        missing = max(self.estimator.points(self.axes[p] & ~own) for p in self.products)
        return -(-missing // self.model.tile)

    def _chain(self, c: int) -> list[int]:
        """What a reduction swallows: casts of factors; a contraction the last product."""
        whole = self.axes[c] | self.node[c].over
        last = self.node[c].children[-1]

        def name(x: int) -> str:
            return self.node[x].op if x in self.node else ""

        def below(x: int) -> tuple[int, ...]:
            return self.node[x].children if name(x) == "mul" and self.axes[x] == whole else ()

        inside = post_order([last], below)
        multiplied = [last] if c in self.products and below(last) else []
        return [x for x in inside if name(x) == "cast"] + multiplied

    def _batched(self, c: int, mask: int) -> bool:
        """A sum over axes that all factors of a contraction have is its second step: over groups of
        a quantised weight."""
        factors = {self.axes[f] for f in self.products[c]}
        return len(factors) > 1 and all(not mask & ~axes for axes in factors)

    def _without_tile(self, c: int) -> float:
        """A contraction inside a plain reduction, wanted in several passes, or of weights that are
        read at a map (their layout is not free)."""
        uses = self.uses[c]
        plain = any(mask > 0 and not self._batched(c, mask) for mask, _ in uses)
        factors = (self.node[f] for f in self.products[c] if f in self.node)
        mapped = any(n.op == "read" and self.classes.fixed[n.children[0]] for n in factors)
        return self.model.without_tile if plain or mapped or len(uses) > 1 else 1.0

    def _speed(self, c: int) -> float:
        """Of a contraction, by the factors that have its own axes, before they are widened."""
        over, factors = self.node[c].over, list[int]()
        for x in self.products[c]:
            if self.axes[x] & over:
                node = self.node.get(x)
                factors.append(node.children[0] if node and node.op == "cast" else x)
        pair = factors if len(factors) == 2 else [c, c]
        first, second = (self.classes.dtype[x] for x in pair)
        made = set(map(self._made, factors)) - {""}
        total, matrices = self.classes.dtype[c], self._matrices(c)
        parts = any(n.op == "sum" and self.level[x] > self.level[c] for x, n in self.piece.body)
        joined = self.share[c] < 1.0 and not self.streams
        whole = made <= {"cast"} and not parts and not joined
        speed = self.model.speed(first, second, total, matrices, not made, whole)
        late = parts and first.is_half and any(i.registers for i in self.model.instructions)
        return speed * (_WIDENED if late else 1.0)

    def _made(self, x: int) -> str:
        """What makes a factor that is not there as it is: a cast, if only one, or padding, does."""
        node = self.node.get(x)
        if node is not None and node.op == "guard":
            return self._made(node.children[0]) or "cast"
        return "" if node is None or node.op in ("load", "read") else node.op

    def _matrices(self, c: int) -> bool:
        """Whether each of two factors has axes of its own, and nothing beside such contractions is
        reduced; or it runs online, where the memory that it saves counts for more."""
        sides = [self.axes[x] & self.axes[c] for x in self.products[c]]
        apart = len(sides) == 2 and sides[0] & ~sides[1] and sides[1] & ~sides[0]
        reduced = {x: node.op for x, node in self.piece.body if node.over}
        alone = reduced.keys() <= self.products.keys()
        return bool(apart) and (alone or "osum" in reduced.values())

    def cost(self, node: ENode) -> float:
        """Vector operations a point."""
        if node.op in SCALARS and not node.over:
            return SCALARS[node.op].cost
        if node.op == "wexp":
            return SCALARS["exp2"].cost + (2 if self._hidden_maximum(node) else 1)
        if node.op == "gather":
            return 2.0
        return 0.05 if node.op == "read" else 1.0

    def _memory(self) -> float:
        """Seconds of traffic: each buffer once; what no cache holds as often as products want it
        that differ in all of their factors."""
        touched: dict[int, float] = {}
        turns: dict[int, float] = {}
        for c, node in self.piece.body:
            if node.op not in ("load", "read", "gather"):
                continue
            (buffer,) = node.memory or (c,)
            points = self.estimator.points(self.axes[c]) * self.share.get(c, 1.0)
            touched[buffer] = touched.get(buffer, 0.0) + points * self.classes.dtype[c].bytes
            turns[buffer] = max(turns.get(buffer, 1.0), self._turns(c))
        total = 0.0
        for buffer, amount in touched.items():
            size = self.estimator.bytes(buffer)
            again = turns[buffer] if size > self.model.cache else 1.0
            total += self._transfer(min(size, amount), size) * again
        for root in self.piece.roots:
            size = self.estimator.bytes(root)
            if self.piece.scatter is not None:
                size = self.estimator.bytes(self.piece.scatter.children[2])
            total += self._transfer(size, size)
        return total

    def _turns(self, c: int) -> float:
        """Products one after the other, all factors of which differ, that want what is loaded."""
        around = self.loops[c] & ~self.axes[c]
        shared = (reduce(and_, (self.axes[f] for f in factors), self.axes[p])
                  for p, factors in self.products.items())  # fmt: skip
        return max((self.estimator.points(around & mask) for mask in shared), default=1.0)

    def _transfer(self, amount: float, buffer: float) -> float:
        model = self.model
        fits = buffer <= model.cache
        return amount / (model.cache_bandwidth if fits else model.bandwidth)


def contraction_operands(masks: Sequence[int]) -> tuple[int, int] | None:
    """Of a product the two factors that make its sum a contraction: neither has all axes of the
    other, and together they span the most. None if it is none."""
    best, found = 0, None
    for j, b in enumerate(masks):
        for i, a in enumerate(masks[:j]):
            if a & ~b and b & ~a and (a | b).bit_count() > best:
                best, found = (a | b).bit_count(), (i, j)
    return found
