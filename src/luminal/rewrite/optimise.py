"""A region to its plan: saturate, then choose. Deterministic, and bounded.

Starts are seeds of choices with several densities of stored values; the best ones are improved by
coordinate descent over every choice and every bit, priced by the roofline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..graph.order import post_order
from .cost import CostEstimator
from .extract import INFINITE, Classes, ENode, classes_of, seed
from .plan import Cyclic, FusedKernel, Plan, Planner
from .rates import CostModel
from .saturate import DEFAULT_LIMITS, Limits, saturate
from .terms import FROM_MEMORY, Region

WORTHLESS = 2.0  # times the best plan: slower ones are not worth a measurement
HOPELESS = 1.4  # times the best plan: slower starts are not worth a descent

Key: TypeAlias = tuple[int, ...]  # of a piece
Choices: TypeAlias = tuple[list[int], frozenset[int]]  # an alternative a class, what is stored
Nodes: TypeAlias = Sequence[ENode]  # the alternative of each class that is taken


@dataclass(frozen=True)
class Budget:
    """Of the choice: plans priced, e-nodes of the kernels priced for them."""

    plans: int = 1500
    nodes: int = 30_000


BIT = -1  # in place of an alternative: store the class, or do not
UNSTORED = ("input", "scatter", "read", "const", "index", "one")
DEFAULT_MODEL = CostModel()
DEFAULT_BUDGET = Budget()


def optimise(
    region: Region, model: CostModel = DEFAULT_MODEL, limits: Limits = DEFAULT_LIMITS
) -> Plan:
    """The plan of a region."""
    return extractor(region, model, limits).plans()[0]


def extractor(
    region: Region, model: CostModel = DEFAULT_MODEL, limits: Limits = DEFAULT_LIMITS
) -> Extractor:
    """The region, saturated: plans can be chosen."""
    engine, encoding, growth = saturate(region, limits=limits)
    classes = classes_of(engine, encoding, region, again=model.in_rows)
    state = "saturated" if growth.complete else "stopped at a limit"
    notes = (
        f"{growth.before} -> {growth.after} e-nodes in {growth.rounds} rounds, "
        f"{growth.seconds * 1e3:.0f} ms, {state}"
    )
    return Extractor(classes, model, notes)


@dataclass(frozen=True)
class Extractor:
    """Chooses plans of a saturated region; again and otherwise where kernels have been measured.
    sizes: those at which kernels are priced, where they are not the usual ones."""

    classes: Classes
    model: CostModel
    notes: str
    budget: Budget = DEFAULT_BUDGET
    sizes: Mapping[str, int] = field(default_factory=dict)

    def plans(self, count: int = 1, measured: Mapping[Key, float] | None = None) -> list[Plan]:
        """The best plans, at most so many, that cut the region in different ways. measured: seconds
        of pieces by their keys, instead of the model's."""
        estimator = self._estimator(measured)
        search = _Search(self.classes, Planner(self.classes, estimator), self.budget)
        for choice, stored in search.starts():
            if search.price(choice, stored) <= HOPELESS * search.best:
                search.descend(choice, stored)
        return [self._noted(plan) for plan in search.results(count)]

    def plan(self, choice: Sequence[int], stored: Iterable[int]) -> Plan:
        """The plan of choices that were found earlier. Raises Cyclic, IndexError."""
        planner = Planner(self.classes, self._estimator())
        return self._noted(planner.plan(choice, frozenset(stored)))

    def modelled(self, piece: FusedKernel) -> float:
        """Seconds of a kernel, by the model."""
        return self._estimator().price(piece)

    def fingerprint(self) -> str:
        """Equal where classes and alternatives have equal numbers: choices then mean the same."""
        text = repr((self.classes.alternatives, self.classes.roots))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _estimator(self, measured: Mapping[Key, float] | None = None) -> CostEstimator:
        return CostEstimator(self.classes, self.model, measured, self.sizes)

    def _noted(self, plan: Plan) -> Plan:
        plan.notes = f"{self.notes}; {len(plan.pieces)} kernels, {plan.cost * 1e6:.1f} us modelled"
        return plan


@dataclass
class _Search:
    classes: Classes
    planner: Planner
    budget: Budget
    best: float = INFINITE  # seconds
    known: dict[tuple[tuple[int, ...], frozenset[int]], float] = field(default_factory=dict)

    def price(self, choice: list[int], stored: frozenset[int]) -> float:
        """Seconds of a plan; infinite for a cyclic one."""
        key = (tuple(choice), stored)
        found = self.known.get(key)
        if found is None:
            try:
                found = self.planner.form(choice, stored)[1]
            except Cyclic:
                found = INFINITE
            self.known[key] = found
            self.best = min(self.best, found)
        return found

    def results(self, count: int) -> list[Plan]:
        """The best plans, one for each way to cut."""
        found: dict[object, Plan] = {}
        for (choice, stored), cost in sorted(self.known.items(), key=lambda entry: entry[1]):
            if len(found) == count or cost > WORTHLESS * self.best or cost == INFINITE:
                break
            plan = self.planner.plan(choice, stored)
            found.setdefault(frozenset(map(_cut, plan.pieces)), plan)
        assert found
        return list(found.values())

    # ---- starts

    def starts(self) -> list[Choices]:
        """Choices with few, some or many stored values, whichever is cheapest; the best first."""
        found: dict[tuple[int, ...], Choices] = {}
        for choice in self._choices():
            nodes = self._chosen(choice)
            densities = (set[int](), self._operands(nodes), _reductions(nodes))
            constants = self._constants(nodes)
            options = [(choice, frozenset(stored | constants)) for stored in densities]
            found[tuple(choice)] = min(options, key=self._price_of)
        return sorted(found.values(), key=self._price_of)

    def _price_of(self, choices: Choices) -> float:
        return self.price(*choices)

    def _choices(self) -> Iterator[list[int]]:
        for mode in ("work", "written", "moved"):
            yield seed(self.classes, mode)
        if self.best == INFINITE:
            yield self.classes.acyclic()

    def _chosen(self, choice: Sequence[int]) -> Nodes:
        """The alternative of each class that is taken."""
        return [options[i] for options, i in zip(self.classes.alternatives, choice)]

    def _operands(self, nodes: Nodes) -> set[int]:
        """Computed operands of reductions that depend on a reduction themselves."""

        def passes(c: int) -> bool:
            return nodes[c].op == "mul" or self._widens(c, nodes[c])

        stop = ("input", *FROM_MEMORY)
        below = self._deep(nodes) & _under_reductions(nodes, passes)
        return {c for c in below if not passes(c) and nodes[c].op not in stop}

    def _deep(self, nodes: Nodes) -> set[int]:
        """Classes with a reduction below them, in the same kernel or behind memory."""
        deep: set[int] = set()
        for c in self._operands_first(nodes):
            if nodes[c].over or not deep.isdisjoint(nodes[c].children):
                deep.add(c)
        return deep

    def _constants(self, nodes: Nodes) -> set[int]:
        """What is made of constants and read by what is not, unless that makes it larger."""
        constant, found = self.classes.constant, set[int]()
        for c in self._reached(nodes):
            if not constant[c]:
                kept = {self._narrowest(nodes, child) for child in nodes[c].inline}
                found |= {x for x in kept if constant[x] and self._storable(x, nodes[x], set())}
        return found | {r for r in self.classes.roots if constant[r]}

    def _narrowest(self, nodes: Nodes, c: int) -> int:
        """What a value is a widened copy of."""
        return self._narrowest(nodes, nodes[c].children[0]) if self._widens(c, nodes[c]) else c

    # ---- coordinate descent

    def descend(self, choice: list[int], stored: frozenset[int]) -> None:
        """Try every other alternative and every flipped bit until nothing gains."""
        current = self.price(choice, stored)
        improved = True
        while improved and not self._spent():
            improved = False
            choice, stored = self._without_idle_bits(choice, stored)
            for c, option in self._coordinates(choice):
                flips = option == BIT
                other = choice if flips else [*choice[:c], option, *choice[c + 1 :]]
                move = other, stored ^ {c} if flips else stored
                cost = self.price(*move)
                if cost < current * (1 - 1e-6):
                    choice, stored = move
                    current, improved = cost, True
                if self._spent():
                    return

    def _spent(self) -> bool:
        nodes = self.planner.estimator.work
        return len(self.known) >= self.budget.plans or nodes >= self.budget.nodes

    def _without_idle_bits(
        self, choice: list[int], stored: frozenset[int]
    ) -> tuple[list[int], frozenset[int]]:
        """Drop bits of values that no kernel stores in the end: they would only hide moves."""
        pieces, cost = self.planner.form(choice, stored)
        used = frozenset(r for piece in pieces for r in piece.roots) & stored
        return (choice, used) if self.price(choice, used) <= cost else (choice, stored)

    def _coordinates(self, choice: list[int]) -> list[tuple[int, int]]:
        """(class, alternative) or (class, BIT)."""
        nodes, found = self._chosen(choice), list[tuple[int, int]]()
        passing = ("guard", "mul", "cast")
        used = self._divergent(nodes) | _under_reductions(nodes, lambda c: nodes[c].op in passing)
        for c in self._reached(nodes):
            if self._storable(c, nodes[c], used):
                found.append((c, BIT))
            if self.classes.constant[c]:
                continue
            count = len(self.classes.alternatives[c])
            found += [(c, i) for i in range(count) if count > 1]
        return found

    def _divergent(self, nodes: Nodes) -> set[int]:
        """Values whose users part: they do not meet again before a reduction, memory or a root.
        Any other value is made once, whether its kernel stores it or not."""
        roots, divergent = self.classes.roots, set[int]()
        meets = {root: root for root in roots}
        for c in reversed(self._operands_first(nodes)):
            node = nodes[c]
            end = node.over or node.op in ("scan", "wexp", "scatter")
            mine = c if end or c in roots else meets[c]
            met = [*((x, mine) for x in node.inline), *((x, ~x) for x in node.memory)]
            for child, where in met:
                if meets.setdefault(child, where) != where:
                    meets[child] = child
                    divergent.add(child)
        return divergent

    def _reached(self, nodes: Nodes) -> list[int]:
        """Classes that are used, nearest to the roots first."""
        found = dict.fromkeys(self.classes.roots)
        waiting = list(found)
        for c in waiting:
            new = [x for x in dict.fromkeys(nodes[c].children) if x not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return waiting

    def _operands_first(self, nodes: Nodes) -> list[int]:
        return post_order(self.classes.roots, lambda c: nodes[c].children)

    def _storable(self, c: int, node: ENode, used: set[int]) -> bool:
        """Values whose storing may pay: reductions, small constants, and what is much used."""
        if node.op in UNSTORED or self._widens(c, node):  # its operand is stored instead
            return False
        if self.classes.constant[c]:
            return self.classes.small[c]
        return node.over != 0 or c in used

    def _widens(self, c: int, node: ENode) -> bool:
        """Its operand says the same in fewer bytes."""
        if node.op != "cast":
            return False
        return self.classes.dtype[node.children[0]].bytes < self.classes.dtype[c].bytes


def _reductions(nodes: Nodes) -> set[int]:
    return {c for c, node in enumerate(nodes) if node.over}


def _under_reductions(nodes: Nodes, passes: Callable[[int], bool]) -> set[int]:
    """What reductions read, and below that as far as a class passes."""
    tops = (x for c in _reductions(nodes) for x in nodes[c].children)
    return set(post_order(tops, lambda c: nodes[c].children if passes(c) else ()))


def _cut(piece: FusedKernel) -> tuple[object, ...]:
    """What a kernel reduces, reads and stores: plans that agree in this differ little."""
    return piece.roots, piece.reads, frozenset(c for c, node in piece.body if node.over)
