"""Rules to Python: each becomes nested loops over tables, and what they then do.

The facts of a rule are flattened to atoms, rows of tables with operands in them, and tests. For
each atom there is one matcher, which starts from new rows of that atom's table and looks the others
up, the most bound first; every test is made as soon as it can be. An operand is Python text: a
variable, a number, or an expression of those, in which functions of the encoding are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

from ..once import computed_once
from .language import FUNCTIONS, OPERATIONS, TABLES

Tree: TypeAlias = Any  # a name or number, or a tuple of trees
Side: TypeAlias = tuple[str, tuple[int, ...] | None]  # a table, and its index if not by arguments
Matcher: TypeAlias = tuple[Callable[..., None], list[Side]]

PRIMITIVES = {
    "&": "({} & {})", "|": "({} | {})", "not-i64": "(~{})", "+": "({} + {})", "*": "({} * {})",
    "/": "({} / {})",
    "<": "({} < {})", ">=": "({} >= {})", "!=": "({} != {})", "=": "({} == {})",
}  # fmt: skip
RELATED = "1"  # the value of every row of a relation


@dataclass(frozen=True)
class Rule:
    """Where all facts hold, in the rules of a family: the action, which unites two classes
    (`union`), gives a function its value (`set`), or adds to a relation."""

    family: str
    facts: tuple[Tree, ...]
    action: Tree


@dataclass(frozen=True)
class Atom:
    """A row of a table: its columns, the last one its value."""

    table: str
    columns: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [column for column in self.columns if column.isidentifier()]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A rule, flattened."""

    atoms: list[Atom]
    tests: list[str]
    variables: tuple[str, ...]
    action: str

    @computed_once
    def act(self) -> Callable[..., None]:
        """act(matches, call, union, put, make) does what the rule says for each of its matches."""
        loop = f"  for {_tuple(self.variables)} in matches:"
        return _function(["def act(matches, call, union, put, make):", loop, f"    {self.action}"])


def parse(text: str) -> Tree:
    """The tree that a text in brackets is."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0][0]


@cache
def compiled(rule: Rule) -> Compiled:
    atoms, tests = list[Atom](), list[str]()
    for fact in rule.facts:
        _flatten(fact, atoms, tests)
    action = _action(rule.action, atoms)
    variables = tuple(dict.fromkeys(name for atom in atoms for name in atom.names))
    return Compiled(atoms, tests, variables, action)


@cache
def matcher(rule: Compiled, place: int) -> Matcher:
    """match(new rows of the atom at this place, {matches}, functions, *sides): adds those with
    one of the rows there, tuples of `variables`; sides: what it looks up."""
    lines, sides = _Loops(rule, place).written()
    return _function(lines), sides


def _function(lines: Sequence[str]) -> Callable[..., None]:
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<rule>", "exec"), space)
    made: Callable[..., None] = space.popitem()[1]
    return made


def _tuple(texts: Iterable[str]) -> str:
    return f"({' '.join(text + ',' for text in texts)})"


# ---- reading


def _flatten(fact: Tree, atoms: list[Atom], tests: list[str]) -> None:
    """The atoms and tests that a fact stands for."""
    op, *parts = fact
    if op not in PRIMITIVES:
        _operand(fact, atoms, RELATED)
        return
    looked = [not isinstance(part, str) and part[0] in TABLES for part in parts]
    if op == "=" and any(looked):  # a row with this value
        first, second = parts if looked[1] else parts[::-1]
        _operand(second, atoms, _operand(first, atoms))
    else:
        tests.append(_operand(fact, atoms))


def _operand(tree: Tree, atoms: list[Atom], value: str | None = None) -> str:
    """The text of an operand; tables that it looks into become atoms, of this value if given."""
    if isinstance(tree, str):
        number = re.fullmatch(r"-?\d+|-?[\d.]+(e-?\d+)?", tree)
        return tree if number else f"v_{tree}"
    columns = [_operand(part, atoms) for part in tree[1:]]
    if tree[0] in PRIMITIVES:
        return PRIMITIVES[tree[0]].format(*columns)
    if tree[0] in FUNCTIONS:
        return f"call[{tree[0]!r}]({', '.join(columns)})"
    known = next((a for a in atoms if (a.table, *a.columns[:-1]) == (tree[0], *columns)), None)
    if known is not None and value is None:
        return known.columns[-1]
    value = value or f"u_{len(atoms)}"
    atoms.append(Atom(tree[0], (*columns, value)))
    return value


# ---- writing


class _Loops:
    """The text of a rule's matcher that starts from new rows in the place of one atom."""

    def __init__(self, rule: Compiled, place: int) -> None:
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
        return [f"def match(new, matches, call, {names}):", *self.lines], self.sides

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _known(self, operand: str) -> bool:
        return not operand.isidentifier() or operand in self.bound

    def _look_up(self, atom: Atom) -> None:
        *arguments, value = atom.columns
        side = f"side{len(self.sides)}"
        if not all(map(self._known, arguments)):
            known = tuple(i for i, column in enumerate(atom.columns) if self._known(column))
            self.sides.append((atom.table, known))
            key = _tuple(atom.columns[i] for i in known)
            self._loop(atom, f"{side}.get({key}, ())", known)
            return
        self.sides.append((atom.table, None))
        found = f"{side}.get({_tuple(arguments)})"
        if self._known(value):
            self._line(f"if {found} != {value}: continue")
        else:
            self._line(f"{value} = {found}")
            self._line(f"if {value} is None: continue")
            self._bind([value])

    def _loop(self, atom: Atom, rows: str, known: Sequence[int]) -> None:
        """Over rows, which agree with the atom in the columns `known`."""
        targets, checks = [], []
        for number, column in enumerate(atom.columns):
            if self._known(column) or column in targets:
                targets.append(f"c{number}")
                checks += [] if number in known else [f"c{number} != {column}"]
            else:
                targets.append(column)
        self._line(f"for {_tuple(targets)} in {rows}:")
        self.depth += 1
        if checks:
            self._line(f"if {' or '.join(checks)}: continue")
        self._bind(atom.names)

    def _bind(self, names: Iterable[str]) -> None:
        """These are known now: make the tests that have all they need."""
        self.bound.update(names)
        ready = [test for test in self.tests if self.bound.issuperset(_names(test))]
        self.tests = [test for test in self.tests if test not in ready]
        for test in ready:
            self._line(f"if not {test}: continue")


def _promise(atom: Atom, bound: frozenset[str]) -> tuple[int, bool, int]:
    """How far the bound columns narrow an atom's rows."""
    free = sum(name not in bound for name in atom.names)
    return len(atom.columns) - free, atom.table in OPERATIONS, -free


def _names(test: str) -> list[str]:
    return re.findall(r"\b[uv]_\w+", test)


def _action(action: Tree, atoms: list[Atom]) -> str:
    if action[0] == "union":
        return f"union({_built(action[1], atoms)}, {_built(action[2], atoms)})"
    call, value = action[1:] if action[0] == "set" else (action, RELATED)
    columns = _tuple(_built(part, atoms) for part in call[1:])
    return f"put({call[0]!r}, {columns}, {_built(value, atoms)})"


def _built(tree: Tree, atoms: list[Atom]) -> str:
    """The text of what is made; what it looks up must be there."""
    if isinstance(tree, str) or tree[0] not in OPERATIONS:
        return _operand(tree, atoms)
    return f"make({tree[0]!r}, {_tuple(_built(part, atoms) for part in tree[1:])})"
