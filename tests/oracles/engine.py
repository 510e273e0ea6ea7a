"""egglog behind the interface of `luminal.rewrite.engine.Engine`, of which it is the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from egglog import bindings as b

from luminal.rewrite.engine import Fact, Inserted, Row
from luminal.rewrite.language import BUFFER_SORT, OPERATIONS, TABLES
from luminal.rewrite.matching import Rule, Tree

SPAN = b.EgglogSpan(b.SrcFile(None, ""), 0, 0)


def integer(value: int) -> Any:
    return b.Lit(SPAN, b.Int(value))


def declarations() -> list[str]:
    """The sorts with their operations, then all other tables."""
    words = {"E": "E", "T": "T", "i": "i64", "f": "f64", "&": "i64"}
    sorts: dict[str, list[str]] = {"E": [], "T": []}
    functions = []
    for name, (inputs, output) in TABLES.items():
        given = " ".join(words[k] for k in inputs)
        if name in OPERATIONS:
            sorts[output].append(f"({name} {given})")
        elif not output:
            functions.append(f"(relation {name} ({given}))")
        else:
            merge = ":merge (& old new)" if output == "&" else ":no-merge"
            functions.append(f"(function {name} ({given}) {words[output]} {merge})")
    variants = (f"({sort} {' '.join(operations)})" for sort, operations in sorts.items())
    return [f"(datatype* {' '.join(variants)})", *functions]


def text(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(text, tree))})"


def rule_text(rule: Rule) -> str:
    return f"(rule {text(rule.facts)} ({text(rule.action)}) :ruleset {rule.family})"


class Egglog:
    """Use it from the thread that made it."""

    def __init__(self, program: tuple[Rule, ...]) -> None:
        self.terms: list[str] = []  # operation of each inserted term
        self.told: list[Any] = []  # commands that wait for the next run
        self.graph = b.EGraph()
        families = dict.fromkeys(rule.family for rule in program)
        commands = [*declarations(), *(f"(ruleset {family})" for family in families)]
        for text in (*commands, *map(rule_text, program)):
            self.graph.run_program(*self.graph.parse_program(text))

    def insert(self, terms: Sequence[Inserted]) -> None:
        for op, arguments in terms:
            kinds = OPERATIONS[op]
            call = b.Call(SPAN, op, [self._argument(k, a) for k, a in zip(kinds, arguments)])
            self.terms.append(op)
            number = integer(len(self.terms) - 1)
            self.told.append(b.ActionCommand(b.Set(SPAN, self._table(op), [number], call)))

    def tell(self, facts: Iterable[Fact]) -> None:
        for name, arguments, value in facts:
            inputs = [integer(a) for a in arguments]
            self.told.append(b.ActionCommand(b.Set(SPAN, name, inputs, integer(value))))

    def assert_constant(self, numbers: Iterable[int]) -> None:
        calls = (b.Call(SPAN, "fixedT", [self._term(n)]) for n in numbers)
        self.told += (b.ActionCommand(b.Expr_(SPAN, call)) for call in calls)

    def run(self, *rulesets: str) -> bool:
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

    def requests(self) -> list[tuple[int, int, int]]:
        return [arguments for arguments, _ in self.tables(["need"])["need"]]

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

    def _table(self, op: str) -> str:
        return "buffer" if op in BUFFER_SORT else "term"

    def _term(self, number: int) -> Any:
        return b.Call(SPAN, self._table(self.terms[number]), [integer(number)])

    def _argument(self, kind: str, value: Any) -> Any:
        if kind == "i":
            return integer(value)
        return b.Lit(SPAN, b.Float(value)) if kind == "f" else self._term(value)
