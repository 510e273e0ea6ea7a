"""A region to its plan: saturate, then choose. Deterministic, and bounded.

Starts are seeds of choices with several densities of stored values; the best ones are improved by
coordinate descent over every choice and every bit, priced by the roofline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from .cost import CostModel, Pricer
from .extract import Classes, ENode, acyclic, classes_of, seed
from .language import REDUCTIONS
from .plan import Cyclic, Piece, Plan, Planner
from .saturate import DEFAULT_LIMITS, Limits, saturate
from .terms import Region

INFINITE = float("inf")
WORTHLESS = 2.0  # times the best plan: slower ones are not worth a measurement
HOPELESS = 1.4  # times the best plan: slower starts are not worth a descent

Key: TypeAlias = tuple[int, ...]  # of a piece


@dataclass(frozen=True)
class Budget:
    """Of the choice: plans priced, e-nodes of the kernels priced for them."""

    plans: int = 1500
    nodes: int = 30_000


DEFAULT_MODEL = CostModel()
DEFAULT_BUDGET = Budget()


def optimise(
    region: Region, model: CostModel = DEFAULT_MODEL, limits: Limits = DEFAULT_LIMITS
) -> Plan:
    """The plan of a region."""
    return chooser(region, model, limits).plans()[0]


def chooser(
    region: Region, model: CostModel = DEFAULT_MODEL, limits: Limits = DEFAULT_LIMITS
) -> Chooser:
    """The region, saturated: plans can be chosen."""
    engine, encoding, growth = saturate(region, limits=limits)
    classes = classes_of(engine, encoding, region)
    engine.close()
    state = "saturated" if growth.complete else "stopped at a limit"
    notes = (
        f"{growth.before} -> {growth.after} e-nodes in {growth.rounds} rounds, "
        f"{growth.seconds * 1e3:.0f} ms, {state}"
    )
    return Chooser(classes, model, notes)


@dataclass(frozen=True)
class Chooser:
    """Chooses plans of a saturated region; again and otherwise where kernels have been measured."""

    classes: Classes
    model: CostModel
    notes: str
    budget: Budget = DEFAULT_BUDGET

    def plans(self, count: int = 1, measured: Mapping[Key, float] | None = None) -> list[Plan]:
        """The best plans, at most so many, that cut the region in different ways. measured: seconds
        of pieces by their keys, instead of the model's."""
        pricer = Pricer(self.classes, self.model, measured)
        search = _Search(self.classes, Planner(self.classes, pricer), self.budget)
        for choice, stored in search.best_starts():
            if search.price(choice, stored) <= HOPELESS * search.best[0]:
                search.descend(choice, stored)
        return [self._noted(plan) for plan in search.results(count)]

    def plan(self, choice: Sequence[int], stored: Iterable[int]) -> Plan:
        """The plan of choices that were found earlier. Raises Cyclic, IndexError."""
        planner = Planner(self.classes, Pricer(self.classes, self.model))
        return self._noted(planner.plan(choice, frozenset(stored)))

    def modelled(self, piece: Piece) -> float:
        """Seconds of a kernel, by the model."""
        return Pricer(self.classes, self.model).price(piece)

    def fingerprint(self) -> str:
        """Equal where classes and alternatives have equal numbers: choices then mean the same."""
        text = repr((self.classes.alternatives, self.classes.roots))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _noted(self, plan: Plan) -> Plan:
        plan.notes = f"{self.notes}; {len(plan.pieces)} kernels, {plan.cost * 1e6:.1f} us modelled"
        return plan


@dataclass
class _Search:
    classes: Classes
    planner: Planner
    budget: Budget
    priced: int = 0
    best: tuple[float, list[int], frozenset[int]] = (INFINITE, [], frozenset())
    known: dict[tuple[tuple[int, ...], frozenset[int]], float] = field(default_factory=dict)

    def price(self, choice: list[int], stored: frozenset[int]) -> float:
        """Seconds of a plan; infinite for a cyclic one."""
        key = (tuple(choice), stored)
        found = self.known.get(key)
        if found is None:
            self.priced += 1
            try:
                found = self.planner.form(choice, stored)[1]
            except Cyclic:
                found = INFINITE
            self.known[key] = found
            if found < self.best[0]:
                self.best = (found, list(choice), stored)
        return found

    def results(self, count: int) -> list[Plan]:
        """The best plans, one for each way to cut."""
        found: dict[object, Plan] = {}
        for (choice, stored), cost in sorted(self.known.items(), key=lambda entry: entry[1]):
            if len(found) == count or cost > WORTHLESS * self.best[0] or cost == INFINITE:
                break
            plan = self.planner.plan(choice, stored)
            found.setdefault(frozenset(map(_cut, plan.pieces)), plan)
        assert found
        return list(found.values())

    # ---- starts

    def starts(self) -> Iterator[tuple[list[int], frozenset[int]]]:
        """Choices with few, some and many stored values."""
        for choice in self._choices():
            constants = self._constants(choice)
            for density in (self._none, self._operands, self._reductions):
                yield choice, frozenset(density(choice) | constants)

    def best_starts(self) -> list[tuple[list[int], frozenset[int]]]:
        """For each choice its cheapest density; the cheapest first."""
        best: dict[tuple[int, ...], tuple[float, list[int], frozenset[int]]] = {}
        for choice, stored in self.starts():
            cost = self.price(choice, stored)
            key = tuple(choice)
            if key not in best or cost < best[key][0]:
                best[key] = (cost, choice, stored)
        ranked = sorted(best.values(), key=itemgetter(0))
        return [(choice, stored) for _, choice, stored in ranked]

    def _choices(self) -> Iterator[list[int]]:
        for mode in ("work", "written", "moved"):
            yield seed(self.classes, mode)
        if self.best[0] == INFINITE:
            yield acyclic(self.classes)

    def _none(self, choice: list[int]) -> set[int]:
        return set()

    def _operands(self, choice: list[int]) -> set[int]:
        """Computed operands of reductions that depend on a reduction themselves."""
        deep = self._deep(choice)
        found = set()
        for c in self._values(choice):
            node = self.classes.alternatives[c][choice[c]]
            if node.op in REDUCTIONS:
                for child in node.children:
                    found |= self._tops(choice, child, deep)
        return found

    def _tops(self, choice: list[int], c: int, deep: set[int]) -> set[int]:
        node = self.classes.alternatives[c][choice[c]]
        if self.classes.scalar(node) == "mul" or self._widens(c, node):
            return set().union(*(self._tops(choice, x, deep) for x in node.children))
        return {c} if c in deep and node.op not in ("Load", "Read", "Gather") else set()

    def _reductions(self, choice: list[int]) -> set[int]:
        options = self.classes.alternatives
        return {c for c in self._values(choice) if options[c][choice[c]].op in REDUCTIONS}

    def _values(self, choice: list[int]) -> list[int]:
        classes = self.classes
        return [c for c in range(len(choice)) if not classes.is_buffer[c]]

    def _deep(self, choice: list[int]) -> set[int]:
        """Classes with a reduction below them, in the same kernel or behind memory."""
        deep: set[int] = set()
        grown = -1
        while grown != len(deep):
            grown = len(deep)
            for c in range(len(choice)):
                node = self.classes.alternatives[c][choice[c]]
                if node.op in REDUCTIONS or any(x in deep for x in node.children):
                    deep.add(c)
        return deep

    def _constants(self, choice: list[int]) -> set[int]:
        """What is made of constants and read by what is not, unless that makes it larger."""
        classes, found = self.classes, set()
        for c in self._reached(choice):
            if classes.constant[c]:
                continue
            for child in classes.alternatives[c][choice[c]].children:
                kept = self._narrowest(choice, child)
                if self._worth_making(choice, kept):
                    found.add(kept)
        found |= {r for r in classes.roots if classes.constant[r]}
        return found

    def _narrowest(self, choice: list[int], c: int) -> int:
        """What a value is a widened copy of."""
        node = self.classes.alternatives[c][choice[c]]
        return self._narrowest(choice, node.children[0]) if self._widens(c, node) else c

    def _worth_making(self, choice: list[int], c: int) -> bool:
        classes = self.classes
        if classes.is_buffer[c] or not classes.constant[c]:
            return False
        node = classes.alternatives[c][choice[c]]
        if node.op in ("Load", "Read"):
            return False
        return self.planner.pricer.bytes(c) <= 1.01 * self._source_bytes(choice, c)

    def _source_bytes(self, choice: list[int], c: int) -> float:
        node = self.classes.alternatives[c][choice[c]]
        if node.op in ("Load", "Read", "Gather"):
            return self.planner.pricer.bytes(node.children[0])
        return sum(self._source_bytes(choice, x) for x in node.children)

    # ---- coordinate descent

    def descend(self, choice: list[int], stored: frozenset[int]) -> None:
        """Try every other alternative and every flipped bit until nothing gains."""
        current = self.price(choice, stored)
        improved = True
        while improved and not self._spent():
            improved = False
            for c, option in self._coordinates(choice):
                move = self._moved(choice, stored, c, option)
                cost = self.price(*move)
                if cost < current * (1 - 1e-6):
                    choice, stored = move
                    current, improved = cost, True
                if self._spent():
                    return
            choice, stored = self._without_idle_bits(choice, stored)

    def _spent(self) -> bool:
        nodes = self.planner.pricer.work
        return self.priced >= self.budget.plans or nodes >= self.budget.nodes

    def _without_idle_bits(
        self, choice: list[int], stored: frozenset[int]
    ) -> tuple[list[int], frozenset[int]]:
        """Drop bits of values that no kernel stores in the end: they would only hide moves."""
        if self.price(choice, stored) == INFINITE:
            return choice, stored
        pieces, cost = self.planner.form(choice, stored)
        used = frozenset(r for piece in pieces for r in piece.roots) & stored
        return (choice, used) if self.price(choice, used) <= cost else (choice, stored)

    def _coordinates(self, choice: list[int]) -> list[tuple[int, int]]:
        """(class, alternative), or (class, -1): its bit."""
        reached, found = self._reached(choice), []
        parted = self._parted(choice)
        for c in reached:
            larger = self.classes.constant[c] and not self._worth_making(choice, c)
            if not larger and self._storable(c, choice, parted):
                found.append((c, -1))
            if self.classes.constant[c]:
                continue
            count = len(self.classes.alternatives[c])
            found += [(c, i) for i in range(count) if count > 1]
        return found

    @staticmethod
    def _moved(
        choice: list[int], stored: frozenset[int], c: int, option: int
    ) -> tuple[list[int], frozenset[int]]:
        if option < 0:
            return choice, stored ^ {c}
        other = list(choice)
        other[c] = option
        return other, stored

    def _reached(self, choice: list[int]) -> dict[int, int]:
        """Classes that these choices use, roots first -> how many use them."""
        uses: dict[int, int] = {}
        waiting = list(self.classes.roots)
        while waiting:
            c = waiting.pop(0)
            uses[c] = uses.get(c, 0) + 1
            if uses[c] == 1:
                waiting += self.classes.alternatives[c][choice[c]].children
        return uses

    def _parted(self, choice: list[int]) -> set[int]:
        """Values whose users part: they do not meet again before a reduction, a buffer or a root.
        Any other value is made once, whether its kernel stores it or not."""
        classes, parted = self.classes, set[int]()
        meets = {root: root for root in classes.roots}
        for c in reversed(self._operands_first(choice)):
            node = classes.alternatives[c][choice[c]]
            end = classes.is_buffer[c] or node.op in REDUCTIONS or node.op in ("Scan", "Wexp")
            mine = c if end or c in classes.roots else meets[c]
            for child in node.children:
                if meets.setdefault(child, mine) != mine:
                    meets[child] = child
                    parted.add(child)
        return parted

    def _operands_first(self, choice: list[int]) -> list[int]:
        order: dict[int, None] = {}
        seen = set[int]()
        waiting = [(root, False) for root in reversed(self.classes.roots)]
        while waiting:
            c, done = waiting.pop()
            if done:
                order[c] = None
            elif c not in seen:
                seen.add(c)
                waiting.append((c, True))
                children = self.classes.alternatives[c][choice[c]].children
                waiting += [(x, False) for x in children]
        return list(order)

    def _storable(self, c: int, choice: list[int], parted: set[int]) -> bool:
        """Values whose storing may pay: reductions, shared values, operands of reductions."""
        classes = self.classes
        node = classes.alternatives[c][choice[c]]
        if classes.is_buffer[c] or node.op in ("Load", "Const", "Literal", "Index", "One", "Read"):
            return False
        if self._widens(c, node):
            return False  # its operand is stored instead
        if node.op in REDUCTIONS or c in parted or classes.constant[c]:
            return True
        return c in self._operand_classes(choice)

    def _widens(self, c: int, node: ENode) -> bool:
        """Its operand says the same in fewer bytes."""
        if self.classes.scalar(node) != "cast":
            return False
        return self.classes.dtype[node.children[0]].bytes < self.classes.dtype[c].bytes

    def _operand_classes(self, choice: list[int]) -> set[int]:
        key = tuple(choice)
        if self._operands_of[0] != key:
            self._operands_of = (key, self._direct_operands(choice))
        return self._operands_of[1]

    _operands_of: tuple[tuple[int, ...], set[int]] = ((), set())

    def _direct_operands(self, choice: list[int]) -> set[int]:
        """What reductions and products under them read, down to the next reduction."""
        options = self.classes.alternatives
        found: set[int] = set()

        def collect(c: int) -> None:
            found.add(c)
            node = options[c][choice[c]]
            if node.op == "Guard" or self.classes.scalar(node) in ("mul", "cast"):
                for child in node.children:
                    if child not in found:
                        collect(child)

        for c in self._values(choice):
            node = options[c][choice[c]]
            if node.op in REDUCTIONS:
                for child in node.children:
                    if child not in found:
                        collect(child)
        return found


def _cut(piece: Piece) -> tuple[object, ...]:
    """What a kernel reduces, reads and stores: plans that agree in this differ little."""
    return piece.roots, piece.reads, frozenset(c for c, node in piece.body if node.over)
