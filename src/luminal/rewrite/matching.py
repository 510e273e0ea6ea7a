"""Rules as text to rules as Python: each becomes nested loops over tables, and what they then do.

A rule `(rule (facts) (actions) :ruleset name)` is flattened to atoms, rows of tables with variables
in them, and tests. For each atom there is one matcher, which starts from new rows of that atom's
table and looks the others up, the most bound first; every test is made as soon as it can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias

from ..errors import CompileError
from .language import OPERATIONS

Sexp: TypeAlias = Any  # nested lists of str
Side: TypeAlias = tuple[str, tuple[int, ...] | None]  # a table, and its index if not by arguments
Signature: TypeAlias = tuple[list[str], str, bool]  # inputs, output, whether values meet by `&`

PRIMITIVES = {
    "&": "({} & {})", "|": "({} | {})", "not-i64": "(~{})", "+": "({} + {})", "*": "({} * {})",
    "/": "({} / {})",
    "<": "({} < {})", ">=": "({} >= {})", "!=": "({} != {})", "=": "({} == {})",
}  # fmt: skip
SORTS = ("E", "T")


@dataclass(frozen=True)
class Variable:
    """text: its name in Python."""

    text: str


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class Computed:
    """A primitive applied to operands."""

    op: str
    arguments: tuple[Any, ...]

    @property
    def text(self) -> str:
        return PRIMITIVES[self.op].format(*(a.text for a in self.arguments))


Operand: TypeAlias = "Variable | Literal | Computed"


@dataclass(frozen=True)
class Atom:
    """A row of a table: its columns, the last one its value."""

    table: str
    columns: tuple[Operand, ...]


@dataclass
class Rule:
    """act(matches, union, put, make) does what the rule says for each of its matches."""

    atoms: list[Atom]
    tests: list[Computed]
    variables: tuple[str, ...]
    actions: list[Sexp]
    _matchers: dict[int, tuple[Callable[..., None], list[Side]]] = field(default_factory=dict)
    _act: Callable[..., None] | None = None

    @property
    def tables(self) -> list[str]:
        """Of each atom."""
        return [atom.table for atom in self.atoms]

    def matcher(self, place: int) -> tuple[Callable[..., None], list[Side]]:
        """match(new rows of the atom at this place, {matches}, *sides): adds those with one of the
        rows there, tuples of `variables`; sides: what it looks up."""
        found = self._matchers.get(place)
        if found is None:
            lines, sides = _Loops(self, place).written()
            found = self._matchers[place] = _function("match", lines), sides
        return found

    def act(self, *given: Any) -> None:
        if self._act is None:
            head = [
                "def act(matches, union, put, make):",
                f"  for {_tuple(self.variables)} in matches:",
            ]
            self._act = _function("act", [*head, *("    " + _action(a) for a in self.actions)])
        self._act(*given)


Ruleset: TypeAlias = list[Rule]


def _function(name: str, lines: Sequence[str]) -> Callable[..., None]:
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<rule>", "exec"), space)
    made: Callable[..., None] = space[name]
    return made


def _tuple(texts: Sequence[str]) -> str:
    return f"({' '.join(text + ',' for text in texts)})"


# ---- reading


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
def rulesets(program: tuple[str, ...]) -> tuple[dict[str, Signature], dict[str, Ruleset]]:
    """The tables and the rules, by ruleset, of a program: one command a text."""
    signatures: dict[str, Signature] = {}
    rules: dict[str, Ruleset] = {}
    for text in program:
        command = parse(text)
        if command[0] == "datatype*":
            for sort, *variants in command[1:]:
                signatures |= {name: (inputs, sort, False) for name, *inputs in variants}
        elif command[0] == "function":
            signatures[command[1]] = command[2], command[3], ":merge" in command
        elif command[0] == "relation":
            signatures[command[1]] = command[2], "Unit", False
        elif command[0] == "ruleset":
            rules[command[1]] = []
        elif command[0] == "rule":
            rules[command[-1]].append(_rule(command[1], command[2]))
        else:
            raise CompileError(f"unknown command {command[0]}")
    return signatures, rules


def _operand(token: str) -> Variable | Literal:
    number = re.fullmatch(r"-?\d+|-?[\d.]+(e-?\d+)?", token)
    return Literal(token) if number else Variable(f"v_{token.replace('$', '_')}")


def _rule(body: list[Sexp], actions: list[Sexp]) -> Rule:
    flat = _Flattener(body)
    columns = (c for atom in flat.atoms for c in atom.columns)
    variables = dict.fromkeys(c.text for c in columns if isinstance(c, Variable))
    return Rule(flat.atoms, flat.tests, tuple(variables), actions)


class _Flattener:
    """A rule's body as atoms and tests."""

    def __init__(self, body: list[Sexp]) -> None:
        self.atoms: list[Atom] = []
        self.tests: list[Computed] = []
        for fact in body:
            self._fact(fact)

    def _fact(self, fact: Sexp) -> None:
        if fact[0] == "=":
            first, second = (self._expression(x) for x in fact[1:])
            self._equate(first, second)
        elif fact[0] in PRIMITIVES:
            self.tests.append(Computed(fact[0], tuple(map(self._expression, fact[1:]))))
        else:  # a relation, whose value is always the same
            columns = tuple(map(self._expression, fact[1:]))
            self.atoms.append(Atom(fact[0], (*columns, Literal("True"))))

    def _expression(self, item: Sexp) -> Operand:
        """An operand; tables that it looks into become atoms."""
        if isinstance(item, str):
            return _operand(item)
        arguments = tuple(map(self._expression, item[1:]))
        if item[0] in PRIMITIVES:
            return Computed(item[0], arguments)
        result = Variable(f"u_{len(self.atoms)}")
        self.atoms.append(Atom(item[0], (*arguments, result)))
        return result

    def _equate(self, first: Operand, second: Operand) -> None:
        if isinstance(second, Variable) and not isinstance(first, Computed):
            self._rename(second, first)
        elif isinstance(first, Variable) and not isinstance(second, Computed):
            self._rename(first, second)
        else:
            self.tests.append(Computed("=", (first, second)))

    def _rename(self, old: Variable, new: Operand) -> None:
        def swap(item: Operand) -> Operand:
            if isinstance(item, Computed):
                return Computed(item.op, tuple(map(swap, item.arguments)))
            return new if item == old else item

        self.atoms = [Atom(a.table, tuple(map(swap, a.columns))) for a in self.atoms]
        self.tests = [Computed(t.op, tuple(map(swap, t.arguments))) for t in self.tests]


# ---- writing


class _Loops:
    """The text of a rule's matcher that starts from new rows in the place of one atom."""

    def __init__(self, rule: Rule, place: int) -> None:
        self.rule, self.place = rule, place
        self.lines: list[str] = []
        self.sides: list[Side] = []
        self.bound: set[str] = set()
        self.tests = list(rule.tests)
        self.depth = 1

    def written(self) -> tuple[list[str], list[Side]]:
        atoms = list(self.rule.atoms)
        self._loop(atoms.pop(self.place), "new", ())
        while atoms:
            atom = max(atoms, key=partial(_promise, bound=frozenset(self.bound)))
            atoms.remove(atom)
            self._look_up(atom)
        self._line(f"matches[{_tuple(self.rule.variables)}] = None")
        names = ", ".join(f"side{n}" for n in range(len(self.sides)))
        return [f"def match(new, matches, {names}):", *self.lines], self.sides

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _known(self, operand: Operand) -> bool:
        return not isinstance(operand, Variable) or operand.text in self.bound

    def _look_up(self, atom: Atom) -> None:
        *arguments, value = atom.columns
        side = f"side{len(self.sides)}"
        if not all(map(self._known, arguments)):
            known = tuple(i for i, column in enumerate(atom.columns) if self._known(column))
            self.sides.append((atom.table, known))
            key = _tuple([atom.columns[i].text for i in known])
            self._loop(atom, f"{side}.get({key}, ())", known)
            return
        self.sides.append((atom.table, None))
        found = f"{side}.get({_tuple([a.text for a in arguments])})"
        if self._known(value):
            self._line(f"if {found} != {value.text}: continue")
        else:
            self._line(f"{value.text} = {found}")
            self._line(f"if {value.text} is None: continue")
            self._bind(value)

    def _loop(self, atom: Atom, rows: str, known: Sequence[int]) -> None:
        """Over rows, which agree with the atom in the columns `known`."""
        targets, checks = [], []
        for number, column in enumerate(atom.columns):
            if self._known(column) or column.text in targets:
                targets.append(f"c{number}")
                checks += [] if number in known else [f"c{number} != {column.text}"]
            else:
                targets.append(column.text)
        self._line(f"for {_tuple(targets)} in {rows}:")
        self.depth += 1
        if checks:
            self._line(f"if {' or '.join(checks)}: continue")
        self._bind(*atom.columns)

    def _bind(self, *columns: Operand) -> None:
        """These are known now: make the tests that have all they need."""
        self.bound |= {c.text for c in columns if isinstance(c, Variable)}
        ready = [test for test in self.tests if _names(test) <= self.bound]
        self.tests = [test for test in self.tests if test not in ready]
        for test in ready:
            self._line(f"if not {test.text}: continue")


def _promise(atom: Atom, bound: frozenset[str]) -> tuple[int, bool, int]:
    """How far the bound columns narrow an atom's rows."""
    free = sum(isinstance(c, Variable) and c.text not in bound for c in atom.columns)
    return len(atom.columns) - free, atom.table in OPERATIONS, -free


def _names(item: Operand) -> set[str]:
    if isinstance(item, Computed):
        return set().union(*map(_names, item.arguments))
    return {item.text} if isinstance(item, Variable) else set()


def _action(action: Sexp) -> str:
    if action[0] == "union":
        return f"union({_built(action[1])}, {_built(action[2])})"
    call, value = (action[1], _built(action[2])) if action[0] == "set" else (action, "True")
    return f"put({call[0]!r}, {_tuple([_built(a) for a in call[1:]])}, {value})"


def _built(expression: Sexp) -> str:
    if isinstance(expression, str):
        return _operand(expression).text
    arguments = [_built(a) for a in expression[1:]]
    if expression[0] in PRIMITIVES:
        return PRIMITIVES[expression[0]].format(*arguments)
    return f"make({expression[0]!r}, {_tuple(arguments)})"
