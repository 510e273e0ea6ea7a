"""Programs as plain data: a closed set of classes to JSON and back.

Every value is one row of a table and refers to earlier rows by number, so that what is shared is
written once and read once. Reading builds objects of these classes and nothing else: it runs no
code of the file. Indices and dtypes, which are compared by identity, are interned again. Fields
that an older file lacks are the last ones, and have defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from ..errors import CompileError
from ..graph.dtype import BY_NAME, DType
from ..graph.graph import Requirement
from ..graph.index import Binary, Index
from ..graph.node import Loop, Scan, Scatter, Variable, View
from ..kernel import kernel, program, schedule
from ..kernel.target import Costs, Fragment, MatrixInstruction, Target
from ..runtime import contract, plan, report
from . import recording, saved

CLASSES = (
    Requirement, schedule.Loop, schedule.Schedule, Target, Costs, Fragment, MatrixInstruction,
    kernel.Constant, kernel.Position, kernel.Load, kernel.Read, kernel.Apply, kernel.Guard,
    kernel.Reduction, kernel.Store, kernel.Value, kernel.Buffer, kernel.Kernel,
    program.Val, program.Instruction, program.Parallel, program.Tile, program.Program,
    plan.Memory, plan.Argument, plan.Call, plan.Candidate, plan.Compiled, plan.Carried, plan.Loop,
    plan.Joint, plan.Launch, plan.Plan, report.Report,
    contract.Port, contract.Result, contract.Interface, saved.Saved,
    View, Scan, Scatter, Loop, Variable, recording.Step, recording.Recording,
)  # fmt: skip
NAMES = {made: f"{made.__module__.rpartition('.')[2]}.{made.__name__}" for made in CLASSES}
CONTAINERS: dict[type, str] = {tuple: "tuple", list: "list", frozenset: "set"}
PLAIN = (str, bool, int, float, type(None))

Row = Any  # a number or text as it is, or (tag, row numbers ...)


def encode(value: Any) -> list[Row]:
    """The rows of a value; the last is the value itself. Raises CompileError for other classes."""
    writer = _Writer()
    writer.number(value)
    return writer.rows


class _Writer:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._known: dict[Any, int] = {}  # row -> its number
        self._seen: dict[int, tuple[Any, int]] = {}  # id -> the object, kept alive; its number

    def number(self, value: Any) -> int:
        """The number of the row of a value."""
        if isinstance(value, PLAIN):
            return self._add((type(value), repr(value)), value)
        seen = self._seen.get(id(value))
        if seen is None:
            row = self._row(value)
            seen = self._seen[id(value)] = value, self._add(row, row)
        return seen[1]

    def _add(self, key: Any, row: Row) -> int:
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.rows)
            self.rows.append(row)
        return number

    def _row(self, value: Any) -> Row:
        if isinstance(value, Index):
            return ("index", *(self._monomial(m, count) for m, count in value.terms))
        if isinstance(value, DType):
            return ("dtype", self.number(value.name))
        if isinstance(value, Mapping):
            return ("dict", *(self.number(part) for pair in value.items() for part in pair))
        tag = CONTAINERS.get(type(value))
        if tag is not None:
            parts = sorted(value) if tag == "set" else value
            return (tag, *map(self.number, parts))
        name = NAMES.get(type(value))
        if name is None:
            raise CompileError(f"{type(value).__name__} is nothing that a program is saved with")
        return (name, *(self.number(getattr(value, f.name)) for f in fields(value)))

    def _monomial(self, atoms: Sequence[Any], count: int) -> Row:
        return (count, *map(self._atom, atoms))

    def _atom(self, atom: Any) -> int:
        if not isinstance(atom, Binary):
            return self.number(atom)
        row: Row = (atom.kind, self.number(atom.first), self.number(atom.second))
        return self._add(row, row)


def decode(rows: Sequence[Row]) -> Any:
    """The value of the last row. Raises ValueError, TypeError, LookupError for a damaged table."""
    values: list[Any] = []
    for row in rows:
        values.append(_value(row, values) if isinstance(row, list) else row)
    return values[-1]


def _value(row: Sequence[Any], values: Sequence[Any]) -> Any:
    tag = row[0]
    if tag == "index":
        return _index(row[1:], values)
    parts = [values[number] for number in row[1:]]
    if tag in READERS:
        return READERS[tag](parts)
    made = BY_TAG[tag]
    known = fields(made)
    if len(parts) > len(known) or any(f.default is MISSING for f in known[len(parts) :]):
        raise ValueError(f"{tag} has {len(known)} fields, not {len(parts)}")
    return made(*parts)


def _index(terms: Sequence[Sequence[int]], values: Sequence[Any]) -> Index:
    """The sum of coefficient * atom * atom ..."""
    total = Index.of(0)
    for count, *atoms in terms:
        product = Index.of(count)
        for atom in atoms:
            product = product * values[atom]
        total = total + product
    return total


BY_TAG: dict[str, Any] = {name: made for made, name in NAMES.items()}
READERS: dict[str, Any] = {
    "tuple": tuple,
    "list": list,
    "set": frozenset,
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "dtype": lambda parts: BY_NAME[parts[0]],
    "floor": lambda parts: parts[0] // parts[1],
    "min": lambda parts: parts[0].minimum(parts[1]),
    "max": lambda parts: parts[0].maximum(parts[1]),
}
