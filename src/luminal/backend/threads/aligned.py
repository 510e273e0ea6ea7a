"""Of what positions are multiples, and which elements one access takes together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from ...kernel.program import Instruction, Val


class Multiples:
    """What values and positions of a program are multiples of; 0: of everything. Memories begin at
    multiples of all that an access takes."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.made = {s.out.name: s for s in instructions if s.out is not None}
        self.known: dict[str, int] = {}

    def of(self, val: Val) -> int:
        """A number that divides the value."""
        if val.literal:
            return abs(int(val.name))
        if val.name not in self.known:
            ins = self.made.get(val.name)
            self.known[val.name] = self._made(ins) if ins else int(not val.name.startswith("%p_"))
        return self.known[val.name]

    def _made(self, ins: Instruction) -> int:
        if ins.op == "mul":
            return self.of(ins.args[0]) * self.of(ins.args[1])
        if ins.op in ("add", "offset", "min", "max"):
            return gcd(*map(self.of, ins.args))
        if ins.op == "select":
            return gcd(*map(self.of, ins.args[1:]))
        given = ins.args[0].dtype if ins.op == "cast" else None
        return self.of(ins.args[0]) if given and not given.is_float else 1


def together(places: list[int], aligned: int, most: int) -> Iterator[tuple[int, int]]:
    """Sorted elements as (first, count): a power of two of neighbours, begun at a multiple of it.
    aligned: of what the element of number 0 is a multiple."""
    while places:
        first = places[0]
        counts = (most >> n for n in range(most.bit_length()))
        count = next(n for n in counts if places[:n] == [*range(first, first + n)]
                     and gcd(aligned, first) % n == 0)  # fmt: skip
        yield first, count
        places = places[count:]
