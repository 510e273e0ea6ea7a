"""The order in which regions run: what gives memory back runs early.

The gradient of a weight needs an activation and is the last to need it; recorded last, with the
update of the weight, it would keep all activations until the end.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from .cuts import Facts


class Order:
    """groups: (what each stores, what it reads of others). done: those that run, in order.
    readers: of a stored value, those that did not run."""

    def __init__(self, facts: Facts, groups: Sequence[tuple[Sequence[int], Set[int]]]) -> None:
        self.facts = facts
        self.roots, self.walls = zip(*groups)
        self.producer = {t: number for number, roots in enumerate(self.roots) for t in roots}
        self.readers: dict[int, set[int]] = {root: set() for root in self.producer}
        for number, walls in enumerate(self.walls):
            for wall in walls:
                self.readers[wall].add(number)
        self.done: dict[int, None] = {}

    def needed(self, number: int) -> list[int]:
        return [self.producer[wall] for wall in sorted(self.walls[number])]

    def stays(self, number: int) -> bool:
        """It runs where it was recorded, whoever reads it."""
        made = sum(map(self._bytes, self.roots[number]))
        read = any(self.readers[t] for t in self.roots[number])
        return not read or made < sum(map(self._bytes, self.walls[number]))

    def run(self, number: int) -> None:
        """This one, whose producers ran, and what pays then."""
        waiting = self._do([number])
        while waiting:
            paying = self._paying(waiting.pop())
            waiting += self._do(paying)

    def _do(self, numbers: list[int]) -> list[int]:
        """Runs these; the others that read what they have read or made, the first one last."""
        near = set[int]()
        for number in numbers:
            self.done[number] = None
            for wall in self.walls[number]:
                self.readers[wall].discard(number)
            touched = (*self.walls[number], *self.roots[number])
            near = near.union(*(self.readers[t] for t in touched))
        return sorted(near, reverse=True)

    def _paying(self, number: int) -> list[int]:
        """A group, after those it still needs, if memory is given back on the whole."""
        if number in self.done:
            return []
        missing = [n for n in self.needed(number) if n not in self.done]
        if any(other not in self.done for n in missing for other in self.needed(n)):
            return []
        all_of_it = [*dict.fromkeys(missing), number]
        made = {t for n in all_of_it for t in self.roots[n]}
        taken = (t for t in made if not self.readers[t] <= {number})
        given = (t for t in self.walls[number] - made if self.readers[t] == {number})
        return all_of_it if sum(map(self._bytes, taken)) < sum(map(self._bytes, given)) else []

    def _bytes(self, t: int) -> float:
        """Of a value that is stored for a while: not of an output, which stays."""
        held = t in self.facts.ends or self.facts.fixed[t]
        return 0.0 if held else self.facts.points(t) * self.facts.terms.nodes[t].dtype.bytes
