"""Which thread of a unit has which numbers of a vector, and how it counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ...graph.dtype import DType, boolean, i64
from ...kernel.program import Instruction, Statement, Val
from ...kernel.target import Fragment, MatrixInstruction
from ...lowering.builder import integer
from ...lowering.place import Lanes
from .aligned import Multiples

THREAD = Val("%thread", i64)
Way = Fragment | None  # as part of a matrix, or of its rows or columns; None: lane by lane
Row = tuple[Val, ...]  # the numbers that a thread has of a vector


class Owners:
    """threads: at least so many. fragments: how matrices lie, by their lanes, each in order.
    matrices: the instructions that there are, by name. Statements go to `out`; those that a thread
    computes once for a unit to `head`."""

    def __init__(
        self, threads: int, fragments: Mapping[Lanes, Fragment], multiples: Multiples,
        matrices: Mapping[str, MatrixInstruction],
    ) -> None:  # fmt: skip
        self.threads = max([threads, *(way.threads for way in fragments.values())])
        self.fragments, self.multiples, self.matrices = fragments, multiples, matrices
        self.names: dict[tuple[str, Way], Row] = {}  # of vectors
        self.lane = {self.threads: THREAD, 1: integer(0)}  # width -> which lane a thread has
        self.few: dict[int, Val] = {}  # width -> whether it is the first that has it
        self.out: list[Statement] = []
        self.head: list[Statement] = []
        self.known: dict[object, Val] = {}
        self.made = 0

    def ways(self, lanes: Lanes) -> list[Way]:
        """As what vectors of these lanes are wanted: parts of matrices, or lane by lane."""
        found = dict[Way, None]()
        for whole, way in self.fragments.items():
            if lanes == whole:
                found[way] = None
            elif len(lanes) == 1 and lanes[0] in whole:
                found[way.side(whole.index(lanes[0]))] = None
        return list(found) or [None]

    def alone(self, lanes: Lanes) -> bool:
        """Whether each element of a vector has one thread, always the same of its lanes."""
        width, (way, *others) = wide(lanes), self.ways(lanes)
        count = len(way.elements) if way else width // self.threads
        return not others and width == self.threads * count

    def places(self, lane: tuple[str, int], lanes: Lanes, way: Way) -> tuple[Val, list[int]]:
        """Which of the lanes of an axis a thread has: its first, and how much further on each of
        its numbers is."""
        if not way:
            start = self.lane[wide(lanes)]
            inside = wide(lanes[lanes.index(lane) + 1 :])
            start = start if inside == 1 else self.once("floor_div", start, inside)
            return start if lane == lanes[0] else self.once("mod", start, lane[1]), [0]
        side, total = lanes.index(lane), integer(0)
        for digit, factor in zip(self.digits(way), (way.rows, way.columns)[side]):
            total = self.once("add", total, self.once("mul", digit, factor)) if factor else total
        return total, [element[side] for element in way.elements]

    def digits(self, fragment: Fragment) -> list[Val]:
        """Of the thread's number."""
        rest, found = THREAD, list[Val]()
        for number, digit in enumerate(fragment.digits):
            last = number == len(fragment.digits) - 1
            found.append(rest if last else self.once("mod", rest, digit))
            rest = rest if last else self.once("floor_div", rest, digit)
        return found

    def once(self, op: str, value: Val, other: Val | int) -> Val:
        """An index that a thread computes once for a unit."""
        other = integer(other) if isinstance(other, int) else other
        if (op, other.name) == ("mul", "1") or (op, value.name) == ("add", "0"):
            return other if op == "add" else value
        key = op, value.name, other.name
        if key not in self.known:
            outer, self.out = self.out, self.head
            self.known[key] = self.emit(op, (value, other), i64)
            self.out = outer
        return self.known[key]

    def first(self, lanes: Lanes, way: Way) -> list[Val]:
        """Conditions under which a thread is the first that has its lanes."""
        width = wide(lanes)
        if not way:
            return [self.few[width]] if width < self.threads else []
        return [self.emit("less", (digit, integer(1)), boolean)
                for digit, *moves in zip(self.digits(way), way.rows, way.columns)
                if not any(moves)]  # fmt: skip

    def emit(
        self, op: str, args: Row, dtype: DType | None, attrs: tuple[int, ...] = (),
        lanes: Lanes = (),
    ) -> Val:  # fmt: skip
        made = self.fresh(dtype, lanes, "" if dtype else args[0].memory)
        ins = self.multiples.made[made.name] = Instruction(made, op, args, attrs)
        self.out.append(ins)
        return made

    def fresh(self, dtype: DType | None, lanes: Lanes = (), memory: str = "") -> Val:
        self.made += 1
        return Val(f"%w{self.made}", dtype, lanes, memory=memory)

    def row(self, val: Val, way: Way) -> Row:
        """The numbers that a thread has of a value, as part of a matrix."""
        count = len(way.elements) if way else 1
        if val.lanes and not val.literal:
            return self.names[val.name, way]
        return (self.names.get((val.name, None), (replace(val, lanes=()),))[0],) * count

    def scalar(self, val: Val) -> Val:
        return self.row(val, None)[0]


def wide(lanes: Lanes) -> int:
    """How many."""
    return prod(size for _, size in lanes)
