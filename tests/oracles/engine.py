"""A small e-graph engine in plain Python that runs the same rule text as egglog.

It is the oracle of `luminal.rewrite.engine.Egglog`. Tables are dictionaries, classes are union-find
numbers, a rule is matched atom by atom through indices on the columns that are bound. A rule looks
at all rows again (no semi-naive evaluation) if one of its tables changed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias

from luminal.errors import CompileError
from luminal.rewrite.engine import Fact, Inserted, Row
from luminal.rewrite.language import BUFFER_SORT, OPERATIONS

Sexp: TypeAlias = Any  # nested lists of str
Binding = dict[str, Any]

PRIMITIVES: dict[str, Callable[..., Any]] = {
    "&": operator.and_, "|": operator.or_, "not-i64": operator.invert, "+": operator.add,
    "*": operator.mul, "<": operator.lt, ">=": operator.ge, "!=": operator.ne, "=": operator.eq,
}  # fmt: skip
SORTS = ("E", "T")


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Computed:
    """A primitive applied to operands."""

    op: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Atom:
    """A row of a table: its columns, the last one its value."""

    table: str
    columns: tuple[Any, ...]  # Variable or literal


@dataclass
class Rule:
    """Atoms in the order in which they are matched, each with the tests that it makes possible."""

    steps: list[tuple[Atom, list[Any]]]
    variables: tuple[str, ...]
    actions: list[Sexp]
    applied: set[tuple[Any, ...]] = field(default_factory=set)
    seen: list[int] = field(default_factory=list)  # versions of its tables when it was matched


@cache
def parse(text: str) -> Sexp:
    """The nested lists of one command."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]


@cache
def operand(token: str) -> Any:
    """A literal or a variable."""
    if re.fullmatch(r"-?\d+", token):
        return int(token)
    return float(token) if re.fullmatch(r"-?[\d.]+(e-?\d+)?", token) else Variable(token)


class Reference:
    """The engine; see `luminal.rewrite.engine.Egglog`."""

    def __init__(self, program: tuple[str, ...]) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], Any]] = {}
        self.version: dict[str, int] = {}  # of each table, larger after each change
        self.signature: dict[str, tuple[list[str], str]] = {}
        self.merge: dict[str, bool] = {}  # functions whose values meet by `&`
        self.rules: dict[str, list[Rule]] = {}
        self.parent: list[int] = []
        self.numbers: list[int] = []  # class of each inserted term
        self.unions = False
        self._indices: dict[tuple[str, tuple[int, ...]], dict[tuple[Any, ...], list[Any]]] = {}
        for text in program:
            self._declare(parse(text))

    # ---- the interface

    def insert(self, terms: Sequence[Inserted]) -> None:
        for op, arguments in terms:
            kinds = OPERATIONS[op]
            found = tuple(self.numbers[a] if k in SORTS else a for k, a in zip(kinds, arguments))
            self.numbers.append(self._make(op, found))
            table = "buffer" if op in BUFFER_SORT else "term"
            self._set(table, (len(self.numbers) - 1,), self.numbers[-1])

    def tell(self, facts: Iterable[Fact]) -> None:
        for name, arguments, value in facts:
            self._set(name, arguments, value)

    def assert_constant(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._set("fixedT", (self._find(self.numbers[number]),), True)

    def run(self, *rulesets: str) -> bool:
        changed = self._analyse()
        for ruleset in rulesets:
            if self._step(ruleset):
                changed = True
                self._analyse()
        return changed

    def _step(self, ruleset: str) -> bool:
        self._rebuild()
        self._indices, before = {}, dict(self.version)
        due = [rule for rule in self.rules[ruleset] if self._is_due(rule)]
        found = [(rule, list(self._matches(rule))) for rule in due]
        for rule, matches in found:
            for match in matches:
                self._apply(rule, match)
        self._rebuild()
        return self.version != before

    def _is_due(self, rule: Rule) -> bool:
        """Whether a table that the rule looks at has changed since it was matched."""
        before, rule.seen = rule.seen, [self.version[atom.table] for atom, _ in rule.steps]
        return before != rule.seen

    def _analyse(self) -> bool:
        changed = False
        while self._step("analysis"):
            changed = True
        return changed

    def size(self) -> int:
        return sum(len(self.rows[op]) for op in OPERATIONS)

    def tables(self, names: Sequence[str]) -> dict[str, list[Row]]:
        return {name: list(self._plain(name)) for name in names}

    def requests(self) -> list[tuple[int, int, int]]:
        return [(kind, first, second) for kind, first, second in self.rows["need"]]

    def close(self) -> None:
        """Nothing to give back."""

    def _plain(self, name: str) -> Iterator[Row]:
        inputs, output = self.signature[name]

        def tagged(sort: str, value: Any) -> Any:
            return (sort, value) if sort in SORTS else value

        for arguments, value in self.rows[name].items():
            yield tuple(map(tagged, inputs, arguments)), tagged(output, value)

    # ---- classes and rows

    def _find(self, x: int) -> int:
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def _union(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)
            self.unions = True

    def _canonical(self, sorts: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._find(v) if s in SORTS else v for s, v in zip(sorts, values))

    def _make(self, op: str, arguments: tuple[Any, ...]) -> int:
        arguments = self._canonical(self.signature[op][0], arguments)
        found = self.rows[op].get(arguments)
        if found is None:
            found = len(self.parent)
            self.parent.append(found)
            self.rows[op][arguments] = found
            self.version[op] += 1
        return int(found)

    def _set(self, name: str, arguments: tuple[Any, ...], value: Any) -> None:
        inputs, output = self.signature[name]
        arguments = self._canonical(inputs, arguments)
        table = self.rows[name]
        old = table.get(arguments)
        if old is None:
            table[arguments] = value
            self.version[name] += 1
        elif output in SORTS:
            self._union(old, value)
        elif self.merge.get(name) and old & value != old:
            table[arguments] = old & value
            self.version[name] += 1

    def _rebuild(self) -> None:
        """Make every row canonical; equal arguments make equal values."""
        while self.unions:
            self.unions = False
            for name, table in self.rows.items():
                inputs, output = self.signature[name]
                if output not in SORTS and not any(s in SORTS for s in inputs):
                    continue
                self.rows[name], version = {}, self.version[name]
                for arguments, value in table.items():
                    value = self._find(value) if output in SORTS else value
                    self._set(name, arguments, value)
                if self.rows[name] == table:
                    self.version[name] = version

    # ---- declarations

    def _declare(self, command: Sexp) -> None:
        head = command[0]
        if head == "datatype*":
            for sort, *variants in command[1:]:
                for name, *inputs in variants:
                    self._table(name, inputs, sort)
        elif head in ("function", "relation"):
            self._table(command[1], command[2], command[3] if head == "function" else "Unit")
            self.merge[command[1]] = ":merge" in command
        elif head == "ruleset":
            self.rules[command[1]] = []
        elif head == "rule":
            self._rule(command[1], command[2], command[-1])
        else:
            raise CompileError(f"unknown command {head}")

    def _table(self, name: str, inputs: list[str], output: str) -> None:
        self.signature[name] = (inputs, output)
        self.rows[name], self.version[name] = {}, 0

    def _rule(self, body: list[Sexp], actions: list[Sexp], ruleset: str) -> None:
        steps = _Flattener(body).ordered()
        variables = tuple(dict.fromkeys(
            c.name for atom, _ in steps for c in atom.columns if isinstance(c, Variable)
        ))  # fmt: skip
        self.rules[ruleset].append(Rule(steps, variables, actions))

    # ---- matching

    def _matches(
        self, rule: Rule, depth: int = 0, bound: Binding | None = None
    ) -> Iterator[Binding]:
        bound = bound or {}
        if depth == len(rule.steps):
            yield bound
            return
        atom, tests = rule.steps[depth]
        for row in self._rows_for(atom, bound):
            extended = self._extend(atom, row, bound)
            if extended is not None and all(_value(t, extended) for t in tests):
                yield from self._matches(rule, depth + 1, extended)

    def _rows_for(self, atom: Atom, bound: Binding) -> Sequence[Any]:
        """The rows that agree with what is bound."""
        known = tuple(
            i for i, c in enumerate(atom.columns)
            if not isinstance(c, Variable) or c.name in bound
        )  # fmt: skip
        index = self._indices.get((atom.table, known))
        if index is None:
            index = self._indices[atom.table, known] = {}
            for arguments, value in self.rows[atom.table].items():
                row = (*arguments, value)
                index.setdefault(tuple(row[i] for i in known), []).append(row)
        columns = (atom.columns[i] for i in known)
        key = tuple(bound[c.name] if isinstance(c, Variable) else c for c in columns)
        return index.get(key, ())

    @staticmethod
    def _extend(atom: Atom, row: Sequence[Any], bound: Binding) -> Binding | None:
        extended = dict(bound)
        for column, value in zip(atom.columns, row):
            if isinstance(column, Variable) and extended.setdefault(column.name, value) != value:
                return None
        return extended

    # ---- acting

    def _apply(self, rule: Rule, bound: Binding) -> None:
        key = tuple(bound[name] for name in rule.variables)
        if key in rule.applied:
            return
        rule.applied.add(key)
        for action in rule.actions:
            if action[0] == "union":
                self._union(self._build(action[1], bound), self._build(action[2], bound))
            elif action[0] == "set":
                arguments = tuple(self._build(a, bound) for a in action[1][1:])
                self._set(action[1][0], arguments, self._build(action[2], bound))
            else:  # a relation
                self._set(action[0], tuple(self._build(a, bound) for a in action[1:]), True)

    def _build(self, expression: Sexp, bound: Binding) -> Any:
        if isinstance(expression, str):
            return _value(operand(expression), bound)
        arguments = tuple(self._build(a, bound) for a in expression[1:])
        if expression[0] in PRIMITIVES:
            return PRIMITIVES[expression[0]](*arguments)
        return self._make(expression[0], arguments)


def _value(item: Any, bound: Binding) -> Any:
    if isinstance(item, Variable):
        return bound[item.name]
    if isinstance(item, Computed):
        return PRIMITIVES[item.op](*(_value(a, bound) for a in item.args))
    return item


class _Flattener:
    """A rule's body as atoms and tests."""

    def __init__(self, body: list[Sexp]) -> None:
        self.atoms: list[Atom] = []
        self.tests: list[Computed] = []
        for fact in body:
            self.fact(fact)

    def fact(self, fact: Sexp) -> None:
        if fact[0] == "=":
            first, second = (self.expression(x) for x in fact[1:])
            self._equate(first, second)
        elif fact[0] in PRIMITIVES:
            self.tests.append(Computed(fact[0], tuple(map(self.expression, fact[1:]))))
        else:  # a relation, whose value is always the same
            columns = tuple(map(self.expression, fact[1:]))
            self.atoms.append(Atom(fact[0], (*columns, True)))

    def expression(self, item: Sexp) -> Any:
        """An operand; tables that it looks into become atoms."""
        if isinstance(item, str):
            return operand(item)
        arguments = tuple(map(self.expression, item[1:]))
        if item[0] in PRIMITIVES:
            return Computed(item[0], arguments)
        result = Variable(f"${len(self.atoms)}")
        self.atoms.append(Atom(item[0], (*arguments, result)))
        return result

    def _equate(self, first: Any, second: Any) -> None:
        if isinstance(second, Variable) and not isinstance(first, Computed):
            self._rename(second, first)
        elif isinstance(first, Variable) and not isinstance(second, Computed):
            self._rename(first, second)
        else:
            self.tests.append(Computed("=", (first, second)))

    def _rename(self, old: Variable, new: Any) -> None:
        def swap(item: Any) -> Any:
            if isinstance(item, Computed):
                return Computed(item.op, tuple(map(swap, item.args)))
            return new if item == old and isinstance(item, Variable) else item

        self.atoms = [Atom(a.table, tuple(map(swap, a.columns))) for a in self.atoms]
        self.tests = [Computed(t.op, tuple(map(swap, t.args))) for t in self.tests]

    def ordered(self) -> list[tuple[Atom, list[Any]]]:
        """The most bound atom first; every test as soon as it can be made."""
        steps: list[tuple[Atom, list[Any]]] = []
        atoms, tests, bound = list(self.atoms), list(self.tests), set[str]()
        while atoms:
            best = max(atoms, key=partial(_promise, bound=frozenset(bound)))
            atoms.remove(best)
            bound |= {c.name for c in best.columns if isinstance(c, Variable)}
            ready = [t for t in tests if _names(t) <= bound]
            tests = [t for t in tests if t not in ready]
            steps.append((best, ready))
        return steps


def _promise(atom: Atom, bound: frozenset[str]) -> tuple[int, bool, int]:
    """How far the bound columns narrow an atom's rows."""
    free = sum(isinstance(c, Variable) and c.name not in bound for c in atom.columns)
    return len(atom.columns) - free, atom.table in OPERATIONS, -free


def _names(item: Any) -> set[str]:
    if isinstance(item, Variable):
        return {item.name}
    if isinstance(item, Computed):
        return set().union(*map(_names, item.args))
    return set()
