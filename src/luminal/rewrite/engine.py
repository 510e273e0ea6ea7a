"""The e-graph engine: equality saturation over tables, in plain Python.

An engine is given rules, terms and the functions that rules call, is stepped one family of rules at
a time, and gives its tables back as plain tuples. Classes
are union-find numbers, a table is a dictionary from arguments to a value, and a rule looks only at
matches in which a row is new (semi-naive evaluation, as in Zhang et al. 2023, arXiv 2304.04332).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ..errors import CompileError
from .language import FUNCTIONS, OPERATIONS, TABLES
from .matching import Compiled, Rule, compiled, matcher

Inserted = tuple[str, tuple[Any, ...]]  # operation, literals and numbers of earlier terms
Row = tuple[tuple[Any, ...], Any]
CLASS = "E"


class _Table:
    """Arguments to a value. changed: the arguments of each row that is new or has a new value, in
    order. classes: which arguments are classes. version: another one after every change."""

    def __init__(self, inputs: str, output: str) -> None:
        self.output = output
        self.classes = [i for i, sort in enumerate(inputs) if sort == CLASS]
        self.rows: dict[tuple[Any, ...], Any] = {}
        self.changed: list[tuple[Any, ...]] = []
        self.version = 0
        self.indices: dict[tuple[int, ...], tuple[int, dict[Any, list[Any]]]] = {}

    def put(self, arguments: tuple[Any, ...], value: Any) -> None:
        self.rows[arguments] = value
        self.changed.append(arguments)
        self.version += 1

    def since(self, place: int) -> list[tuple[Any, ...]]:
        """The rows that changed since `changed` was so long, each with its value at the end."""
        rows = self.rows
        return [(*key, rows[key]) for key in dict.fromkeys(self.changed[place:]) if key in rows]

    def index(self, known: tuple[int, ...]) -> dict[Any, list[Any]]:
        """The rows, each with its value at the end, by their entries at these places."""
        made, found = self.indices.get(known, (-1, {}))
        if made != self.version:
            found = {}
            for arguments, value in self.rows.items():
                row = (*arguments, value)
                found.setdefault(tuple([row[i] for i in known]), []).append(row)
            self.indices[known] = self.version, found
        return found


class Engine:
    """An e-graph. Classes are opaque values, comparable and hashable."""

    def __init__(self, program: tuple[Rule, ...]) -> None:
        self.rules: dict[str, list[Compiled]] = {}
        for rule in program:
            self.rules.setdefault(rule.family, []).append(compiled(rule))
        self.tables_by_name = {name: _Table(*found) for name, found in TABLES.items()}
        self.parent: list[int] = []
        self.merged: set[int] = set()  # classes that became part of others since the last repair
        self.numbers: list[int] = []  # class of each inserted term
        self.sources = {  # by rule: the tables of its atoms
            (name, number): [self.tables_by_name[atom.table] for atom in rule.atoms]
            for name, rules in self.rules.items() for number, rule in enumerate(rules)
        }  # fmt: skip
        self.looked: dict[tuple[str, int], list[int]] = {}  # by rule: rows that its atoms have seen
        self.seen: dict[str, list[int]] = {}  # by family: the same of all tables
        self.fired: set[tuple[str, int]] = set()  # rules, by family and number
        self.call: dict[str, Callable[..., int]] = {}

    # ---- what goes in

    def insert(self, terms: Sequence[Inserted], functions: object) -> None:
        """Add terms; the term at position i is remembered as number i. functions: an object that
        has those of FUNCTIONS."""
        self.call = {name: cache(getattr(functions, name)) for name in FUNCTIONS}
        for op, arguments in terms:
            kinds = OPERATIONS[op]
            found = tuple(self.numbers[a] if k == CLASS else a for k, a in zip(kinds, arguments))
            self.numbers.append(self._make(op, found))
            self._put("term", (len(self.numbers) - 1,), self.numbers[-1])

    # ---- a step

    def run(self, *names: str) -> bool:
        """Apply these rulesets once each, the analysis before and after each; whether anything
        changed. Raises CompileError."""
        before = self._age()
        self._analyse()
        for name in names:
            if name not in self.rules:
                raise CompileError(f"there are no rules {name!r}")
            self._step(name, self.rules[name])
            self._analyse()
        return self._age() != before

    def _age(self) -> int:
        return sum(len(table.changed) for table in self.tables_by_name.values())

    def _analyse(self) -> None:
        before = -1
        while before != (before := self._age()):
            self._step("analysis", self.rules["analysis"])

    def _step(self, name: str, rules: list[Compiled]) -> None:
        self._repair()
        ages = [len(table.changed) for table in self.tables_by_name.values()]
        if ages == self.seen.get(name):
            return
        self.seen[name] = ages
        found = [self._matches(name, number, rule) for number, rule in enumerate(rules)]
        for number, (rule, matches) in enumerate(zip(rules, found)):
            if matches:
                self.fired.add((name, number))
                rule.act(matches, self.call, self._union, self._put, self._make)
        self._repair()

    def _matches(self, name: str, number: int, rule: Compiled) -> dict[tuple[Any, ...], None]:
        """New matches, once each: those with a new row in the place of at least one atom."""
        matches: dict[tuple[Any, ...], None] = {}
        tables = self.sources[name, number]
        ages, key = [len(table.changed) for table in tables], (name, number)
        looked = self.looked.get(key)
        if ages == looked or not all(table.rows for table in tables):
            return matches
        self.looked[key] = ages
        if looked is None:  # every row is new: one place finds all
            starts = {min(range(len(ages)), key=ages.__getitem__): 0}
        else:
            starts = {n: old for n, (old, age) in enumerate(zip(looked, ages)) if old < age}
        for place, start in starts.items():
            match, sides = matcher(rule, place)
            others = [self.tables_by_name[other] for other, _ in sides]
            using = [
                table.rows if known is None else table.index(known)
                for table, (_, known) in zip(others, sides)
            ]
            match(tables[place].since(start), matches, self.call, *using)
        return matches

    # ---- what comes out

    def size(self) -> int:
        """The number of e-nodes."""
        return sum(len(self.tables_by_name[op].rows) for op in OPERATIONS)

    def tables(self, names: Sequence[str]) -> dict[str, list[Row]]:
        """The rows of these functions: arguments (literals as Python values) and value."""
        return {name: list(self.tables_by_name[name].rows.items()) for name in names}

    # ---- classes and rows

    def _find(self, x: int) -> int:
        parent = self.parent
        while parent[x] != x:
            parent[x] = x = parent[parent[x]]
        return x

    def _union(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
            self.merged.add(max(a, b))

    def _canonical(self, table: _Table, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        parent = self.parent
        if all(parent[arguments[i]] == arguments[i] for i in table.classes):
            return arguments
        found = list(arguments)
        for i in table.classes:
            found[i] = self._find(found[i])
        return tuple(found)

    def _make(self, op: str, arguments: tuple[Any, ...]) -> int:
        """The class of an operation of classes and literals."""
        table = self.tables_by_name[op]
        arguments = self._canonical(table, arguments)
        found: int | None = table.rows.get(arguments)
        if found is None:
            found = len(self.parent)
            self.parent.append(found)
            table.put(arguments, found)
        return found

    def _put(self, name: str, arguments: tuple[Any, ...], value: Any) -> None:
        """A row; where there is one of these arguments, their values become one."""
        table = self.tables_by_name[name]
        arguments = self._canonical(table, arguments)
        old = table.rows.get(arguments)
        if old is None:
            table.put(arguments, value)
        elif table.output == CLASS:
            self._union(old, value)
        elif old & value != old:
            table.put(arguments, old & value)

    def _repair(self) -> None:
        """Make every row canonical; equal arguments make equal values (congruence)."""
        while self.merged:
            merged, self.merged = self.merged, set()
            for name, table in self.tables_by_name.items():
                if table.classes or table.output == CLASS:
                    self._repair_table(name, table, merged)

    def _repair_table(self, name: str, table: _Table, merged: set[int]) -> None:
        values = table.output == CLASS
        stale = [
            (arguments, value)
            for arguments, value in table.rows.items()
            if not merged.isdisjoint(arguments) or (values and value in merged)
        ]
        for arguments, _ in stale:
            del table.rows[arguments]
        table.version += len(stale)
        for arguments, value in stale:
            self._put(name, arguments, self._find(value) if values else value)
