"""egglog behind the interface of `luminal.rewrite.engine.Engine`, of which it is the oracle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from egglog import bindings as b

from luminal.rewrite.engine import Inserted, Row
from luminal.rewrite.language import FUNCTIONS, OPERATIONS, TABLES
from luminal.rewrite.matching import Rule, Tree

SPAN = b.EgglogSpan(b.SrcFile(None, ""), 0, 0)


def integer(value: int) -> Any:
    return b.Lit(SPAN, b.Int(value))


def declarations() -> list[str]:
    """The sort with its operations, then all other tables; a function that rules call is a table
    too, which is filled on request (relation `need`)."""
    words = {"E": "E", "i": "i64", "f": "f64", "&": "i64"}
    operations: list[str] = []
    found = ["(relation need (i64 i64 i64))"]
    for name, (inputs, output) in (TABLES | {n: (k, "i") for n, k in FUNCTIONS.items()}).items():
        given = " ".join(words[k] for k in inputs)
        if name in OPERATIONS:
            operations.append(f"({name} {given})")
        elif not output:
            found.append(f"(relation {name} ({given}))")
        else:
            merge = ":merge (& old new)" if output == "&" else ":no-merge"
            found.append(f"(function {name} ({given}) {words[output]} {merge})")
    return [f"(datatype* (E {' '.join(operations)}))", *found]


def text(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(text, tree))})"


def rule_texts(rule: Rule) -> Iterator[str]:
    """The rule, and one for each call in it, which asks for its value where all facts hold that
    need no later call."""
    calls: dict[Tree, str] = {}
    looked: dict[Tree, str] = {}

    def plain(tree: Tree) -> Tree:
        """The tree with names for calls; tables that actions look into are looked into before."""
        if isinstance(tree, str):
            return tree
        found = (tree[0], *map(plain, tree[1:]))
        if tree[0] in FUNCTIONS:
            return calls.setdefault(found, f"called{len(calls)}")
        return looked.setdefault(found, f"axes{len(looked)}") if tree[0] == "ax" else found

    action = rule.action
    if action[0] == "set":
        action = ("set", action[1], plain(action[2]))
    else:
        action = plain(action)
    facts = [plain(fact) for fact in rule.facts]
    facts += [("=", name, tree) for tree, name in looked.items()]
    late = {f"called{n}" for n in range(len(calls))}
    for call, name in calls.items():
        before = [fact for fact in facts if late.isdisjoint(re.findall(r"called\d+", text(fact)))]
        kind = str(list(FUNCTIONS).index(call[0]))
        ask = ("need", kind, *call[1:], *["0"] * (3 - len(call)))
        yield f"(rule {text(tuple(before))} ({text(ask)}) :ruleset {rule.family})"
        facts.append(("=", name, call))
        late.discard(name)
    yield f"(rule {text(tuple(facts))} ({text(action)}) :ruleset {rule.family})"


class Egglog:
    """Use it from the thread that made it."""

    def __init__(self, program: tuple[Rule, ...]) -> None:
        self.terms = 0  # inserted
        self.told: list[Any] = []  # commands that wait for the next run
        self.graph = b.EGraph()
        families = dict.fromkeys(rule.family for rule in program)
        commands = [*declarations(), *(f"(ruleset {family})" for family in families)]
        rules = dict.fromkeys(found for rule in program for found in rule_texts(rule))
        for command in (*commands, *rules):
            self.graph.run_program(*self.graph.parse_program(command))
        self.answered: set[tuple[int, int, int]] = set()

    def insert(self, terms: Sequence[Inserted], functions: object) -> None:
        self.functions = functions
        for op, arguments in terms:
            kinds = OPERATIONS[op]
            call = b.Call(SPAN, op, [self._argument(k, a) for k, a in zip(kinds, arguments)])
            number = integer(self.terms)
            self.terms += 1
            self.told.append(b.ActionCommand(b.Set(SPAN, "term", [number], call)))

    def run(self, *rulesets: str) -> bool:
        """A step; and again while calls are answered that were waited for."""
        updated = False
        while True:
            updated |= self._step(rulesets)
            asked = [row for row, _ in self.tables(["need"])["need"] if row not in self.answered]
            for row in asked:
                self._answer(*row)
            if not asked:
                return updated

    def _answer(self, kind: int, first: int, second: int) -> None:
        self.answered.add((kind, first, second))
        name = list(FUNCTIONS)[kind]
        arguments = (first, second)[: len(FUNCTIONS[name])]
        value = integer(getattr(self.functions, name)(*arguments))
        call = b.Set(SPAN, name, [integer(a) for a in arguments], value)
        self.told.append(b.ActionCommand(call))

    def _step(self, rulesets: Sequence[str]) -> bool:
        analysis = "(saturate (run analysis))"
        steps = "".join(f" (run {ruleset}) {analysis}" for ruleset in rulesets)
        step = self.graph.parse_program(f"(run-schedule (seq {analysis}{steps}))")
        *_, run = self.graph.run_program(*self.told, *step)
        self.told = []
        return bool(run.report.updated)

    def size(self) -> int:
        return sum(len(rows) for rows in self.tables(list(OPERATIONS)).values())

    def tables(self, names: Sequence[str]) -> dict[str, list[Row]]:
        functions = self.graph.freeze().functions
        return {n: self._rows(functions[n]) if n in functions else [] for n in names}

    def _rows(self, function: Any) -> list[Row]:
        readers = {"i64": self.graph.value_to_i64, "f64": self.graph.value_to_f64}

        def plain(sort: str, value: Any) -> Any:
            reader = readers.get(sort)
            return (sort, value) if reader is None else reader(value)

        sorts, result = function.input_sorts, function.output_sort
        return [
            (tuple(map(plain, sorts, row.inputs)), plain(result, row.output))
            for row in function.rows
        ]

    def _term(self, number: int) -> Any:
        return b.Call(SPAN, "term", [integer(number)])

    def _argument(self, kind: str, value: Any) -> Any:
        if kind == "i":
            return integer(value)
        return b.Lit(SPAN, b.Float(value)) if kind == "f" else self._term(value)
