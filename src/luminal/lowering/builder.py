"""Writes the loop program so that no later optimisation is needed.

Equal pure operations are emitted once. A pure operation stands in the outermost loop in which its
operands exist: loop-invariant motion for free. A position is built up loop by loop, so that inside
a loop it is one value plus a constant. A load right after a store to the same place is the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import Illegal
from ..graph.dtype import DType, i64, wrapped
from ..graph.scalars import SCALARS, compute
from ..kernel.program import For, Instruction, Statement, Val, When
from .place import Lanes

LARGEST_PROGRAM = 50_000  # values: seconds of code generation
Key = tuple[Any, ...]


@dataclass
class Scope:
    """The body of a loop that is being written, and what is known inside it."""

    body: list[Statement]
    memo: dict[Key, Any] = field(default_factory=dict)
    memory: dict[str, dict[Key, Val]] = field(default_factory=dict)  # buffer -> access -> Val
    dirty: set[str] = field(default_factory=set)  # buffers stored to


def literal(value: int | float | bool, dtype: DType, lanes: Lanes = ()) -> Val:
    """A constant; a bool is "0" or "1"."""
    text = repr(float(value)) if dtype.is_float else str(int(value))
    return Val(text, dtype, lanes, 0, True)


def number(val: Val) -> int | float:
    """The value of a literal."""
    assert val.dtype is not None
    return float(val.name) if val.dtype.is_float else int(val.name)


def integer(value: int) -> Val:
    """The number of i64 that is equal modulo 2^64: sums and products of such are, too."""
    return literal(wrapped(value), i64)


def _name(val: Val) -> Any:
    if not val.literal:
        return val.name
    return val.name, val.dtype.name if val.dtype else "", val.lanes


class Builder:
    """A stack of scopes; `written`: buffers whose contents change while the kernel runs. shuffles:
    lanes of a vector may change places. matrices: there are registers of rows. maskable: as of a
    `Target`."""

    def __init__(
        self, shuffles: bool = True, matrices: bool = False, maskable: int = 4
    ) -> None:
        self.shuffles, self.matrices, self.maskable = shuffles, matrices, maskable
        self.scopes = [Scope([])]
        self.written: set[str] = set()
        self._counter = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def fresh(
        self, dtype: DType | None, lanes: Lanes = (), depth: int | None = None, memory: str = ""
    ) -> Val:
        self._counter += 1
        if self._counter > LARGEST_PROGRAM:
            raise Illegal(f"the program would have more than {LARGEST_PROGRAM} values")
        depth = self.depth if depth is None else depth
        return Val(f"%v{self._counter}", dtype, lanes, depth, memory=memory)

    def number(self) -> int:
        """A number that no other call gives."""
        self._counter += 1
        return self._counter

    # ---- pure operations

    def emit(
        self, op: str, args: tuple[Val, ...], dtype: DType | None, lanes: Lanes = (),
        attrs: tuple[int, ...] = (),
    ) -> Val:  # fmt: skip
        """A pure operation: made once, as far out as its operands allow."""
        if args and all(a.literal for a in args):
            folded = fold(op, args, dtype, lanes)
            if folded is not None:
                return folded
        key = (op, dtype.name if dtype else "", lanes, attrs, *map(_name, args))
        depth = max((a.depth for a in args), default=0)
        found = self.recall(key, depth)
        if found is not None:
            return found
        out = self.fresh(dtype, lanes, depth, "" if dtype else args[0].memory)
        scope = self.scopes[depth]
        scope.body.append(Instruction(out, op, args, attrs))
        scope.memo[key] = out
        return out

    def begin(self, asked: list[Instruction], operand: Val) -> None:
        """Instructions that nothing depends on, at the start of the open body, behind what computes
        their operand; nowhere, if that loads or is a loop's result."""
        body, needed = self.scopes[-1].body, {operand.name}
        made = {s.out.name: s for s in body if isinstance(s, Instruction) and s.out is not None}
        results = {val.name for s in body if isinstance(s, For) for *_, val in s.carried}
        waiting = [operand.name]
        while waiting:
            args = made[name].args if (name := waiting.pop()) in made else ()
            waiting += [arg.name for arg in args if arg.name not in needed]
            needed.update(waiting)
        first = [s for name, s in made.items() if name in needed]
        loads = any(s.op.startswith(("load", "gather")) for s in first)
        if not loads and results.isdisjoint(needed):
            moved = {id(s) for s in first}
            body[:] = [*first, *asked, *(s for s in body if id(s) not in moved)]

    def recall(self, key: Key, depth: int = 0) -> Any:
        """Something remembered in a scope that is still open, from a depth on, or None."""
        for scope in self.scopes[depth:]:
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Key, depth: int, found: Any) -> None:
        """Valid until the scope at this depth closes."""
        self.scopes[depth].memo[key] = found

    # ---- memory

    def offset(self, position: Val, elements: Val) -> Val:
        """The position so many elements further."""
        return self.emit("offset", (position, elements), None)

    def load(
        self, buffer: str, op: str, args: tuple[Val, ...], attrs: tuple[int, ...], dtype: DType,
        lanes: Lanes,
    ) -> Val:  # fmt: skip
        """A load of any kind; args[0] is the position."""
        key = (op, attrs, lanes, dtype.name, *map(_name, args))
        open_scopes = self.scopes[-1:] if buffer in self.written else self.scopes
        for scope in open_scopes:
            found = scope.memory.get(buffer, {}).get(key)
            if found is not None:
                return found
        out = self.fresh(dtype, lanes)
        self.scopes[-1].body.append(Instruction(out, op, args, attrs))
        self.scopes[-1].memory.setdefault(buffer, {})[key] = out
        return out

    def store(self, buffer: str, value: Val, position: Val, offset: int, mask: Val | None) -> None:
        """A contiguous store. What was stored is known to later loads in the same scope."""
        assert value.dtype is not None
        args = (value, position) if mask is None else (value, position, mask)
        self.append(Instruction(None, "store", args, (offset,)))
        self._forget(buffer, position, offset, value.width)
        if mask is None:
            key = ("load", (offset,), value.lanes, value.dtype.name, position.name)
            self.scopes[-1].memory.setdefault(buffer, {})[key] = value

    def scatter(
        self, buffer: str, op: str, args: tuple[Val, ...], attrs: tuple[int, ...] = ()
    ) -> None:
        """A store to arbitrary places."""
        self.append(Instruction(None, op, args, attrs))
        self.scopes[-1].memory.pop(buffer, None)
        self.scopes[-1].dirty.add(buffer)

    def _forget(self, buffer: str, position: Val, offset: int, width: int) -> None:
        """Drop remembered contents that a store may have changed."""
        scope = self.scopes[-1]
        scope.dirty.add(buffer)
        known = scope.memory.get(buffer, {})
        for key in list(known):
            op, attrs, args = key[0], key[1], key[4:]
            apart = (
                op == "load" and args[0] == position.name
                and (attrs[0] >= offset + width or offset >= attrs[0] + known[key].width)
            )  # fmt: skip
            if not apart:
                del known[key]

    # ---- control

    def open(self) -> None:
        self.scopes.append(Scope([]))

    def close(self) -> list[Statement]:
        scope = self.scopes.pop()
        parent = self.scopes[-1]
        for buffer in scope.dirty:
            parent.memory.pop(buffer, None)
        parent.dirty |= scope.dirty
        return scope.body

    def when(self, condition: Val | None, work: Callable[[], None]) -> None:
        """What `work` emits, under a condition if there is one."""
        if condition is None:
            work()
            return
        self.open()
        work()
        self.append(When(condition, self.close()))

    def append(self, statement: Statement) -> None:
        self.scopes[-1].body.append(statement)


def fold(op: str, args: tuple[Val, ...], dtype: DType | None, lanes: Lanes) -> Val | None:
    """An elementwise operation on constants, computed now."""
    if op not in SCALARS or dtype is None or dtype.is_half:
        return None
    numbers = [a.dtype.numpy.type(number(a)) for a in args if a.dtype]
    return literal(compute(op, dtype, *numbers).item(), dtype, lanes)
