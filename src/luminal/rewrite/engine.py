"""The e-graph engine: the egglog extension behind one small interface.

Only the low-level bindings of egglog 13.2 are used, loaded without the rest of the package. An
engine is given declarations and rules as text, terms and facts as data, is stepped one ruleset at a
time, and gives its tables back as plain tuples.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from ..errors import CompileError
from .language import BUFFER_SORT, OPERATIONS, TERM_SORT

Fact = tuple[str, tuple[int, ...], int]  # function, arguments, value
Inserted = tuple[str, tuple[Any, ...]]  # operation, literals and numbers of earlier terms
Row = tuple[tuple[Any, ...], Any]


@cache
def load_bindings() -> Any:
    """The extension module alone (25 ms; the whole package takes 280). Raises CompileError."""
    found = sys.modules.get("egglog.bindings")
    if found is not None:
        return found
    package = importlib.util.find_spec("egglog")
    places = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec("bindings", places and list(places))
    if not places or spec is None or spec.origin is None:
        raise CompileError("the package egglog, which holds the e-graph, is not installed")
    named = importlib.util.spec_from_file_location("egglog.bindings", spec.origin)
    assert named is not None and named.loader is not None
    module = importlib.util.module_from_spec(named)
    sys.modules["egglog.bindings"] = module
    named.loader.exec_module(module)
    return module


class _Idle(threading.local):
    """E-graphs without terms, by the program that they have read, which takes 25 ms.

    An e-graph may be used only by the thread that made it.
    """

    def __init__(self) -> None:
        self.graphs: dict[tuple[str, ...], list[Any]] = {}


_idle = _Idle()
_parsed: dict[str, tuple[Any, ...]] = {}


def _schedule(rulesets: tuple[str, ...]) -> str:
    analysis = "(saturate (run analysis))"
    steps = "".join(f" (run {ruleset}) {analysis}" for ruleset in rulesets)
    return f"(run-schedule (seq {analysis}{steps}))"


class Egglog:
    """An e-graph. Use it from the thread that made it. Classes are opaque values, comparable and
    hashable."""

    def __init__(self, program: tuple[str, ...]) -> None:
        b = load_bindings()
        self.bindings, self.program = b, program
        self.span = b.EgglogSpan(b.SrcFile(None, ""), 0, 0)
        self.terms: list[str] = []  # operation of each inserted term
        self.told: list[Any] = []  # commands that wait for the next run
        self.sizes: dict[str, int] = {}  # rows of each table after the last run
        self.requested = 0  # rows of `need` when they were last looked at
        idle = _idle.graphs.setdefault(program, [])
        if idle:
            self.graph = idle.pop()
        else:
            self.graph = b.EGraph()
            self._run(command for text in program for command in self._commands(text))
        self._run(self._commands("(push 1)"))

    def close(self) -> None:
        """The engine is not used any more."""
        self._run(self._commands("(pop 1)"))
        _idle.graphs[self.program].append(self.graph)
        del self.graph

    def insert(self, terms: Sequence[Inserted]) -> None:
        """Add terms; the term at position i is remembered as number i."""
        b, span = self.bindings, self.span
        for op, arguments in terms:
            kinds = OPERATIONS[op]
            call = b.Call(span, op, [self._argument(k, a) for k, a in zip(kinds, arguments)])
            number = self._integer(len(self.terms))
            self.terms.append(op)
            self.told.append(b.ActionCommand(b.Set(span, self._table(op), [number], call)))

    def tell(self, facts: Iterable[Fact]) -> None:
        """Set integer functions of integers."""
        b, span = self.bindings, self.span
        self.told += (
            b.ActionCommand(
                b.Set(span, name, [self._integer(a) for a in arguments], self._integer(value))
            )
            for name, arguments, value in facts
        )

    def assert_constant(self, numbers: Iterable[int]) -> None:
        """The buffers of these terms are known before the program runs."""
        b, span = self.bindings, self.span
        calls = (b.Call(span, "fixedT", [self._term(n)]) for n in numbers)
        self.told += (b.ActionCommand(b.Expr_(span, call)) for call in calls)

    def run(self, *rulesets: str) -> bool:
        """Apply these rulesets once each, the analysis before and after each; whether anything
        changed."""
        # one command: a call takes longer than most rulesets
        step = (*self._commands(_schedule(rulesets)), *self._commands("(print-size)"))
        *_, run, sizes = self._run((*self.told, *step))
        self.told = []
        self.sizes = dict(sizes.sizes)
        return bool(run.report.updated)

    def size(self) -> int:
        """The number of e-nodes."""
        return sum(self.sizes.get(op, 0) for op in OPERATIONS)

    def tables(self, names: Sequence[str]) -> dict[str, list[Row]]:
        """The rows of these functions; literals as Python values, classes as (sort, number)."""
        functions = self.graph.freeze().functions
        return {n: self._rows(functions[n]) if n in functions else [] for n in names}

    def requests(self) -> list[tuple[int, int, int]]:
        """The rows of the relation `need`; none if there is no new one."""
        count = self.sizes.get("need", 0)
        if count == self.requested:
            return []
        self.requested = count
        found = self.graph.freeze().functions.get("need")
        value = self.graph.value_to_i64
        rows = found.rows if found is not None else ()
        return [tuple(value(v) for v in row.inputs) for row in rows]

    # ---- to and from the bindings

    def _rows(self, function: Any) -> list[Row]:
        readers = {"i64": self.graph.value_to_i64, "f64": self.graph.value_to_f64}

        def plain(sort: str, value: Any) -> Any:
            reader = readers.get(sort)
            return (sort, value) if reader is None else reader(value)

        sorts, result = function.input_sorts, function.output_sort
        return [
            (tuple(map(plain, sorts, row.inputs)), plain(result, row.output))
            for row in function.rows
            if not row.subsumed
        ]

    def _commands(self, text: str) -> tuple[Any, ...]:
        """A command, parsed alone: a parsed command carries its whole source text."""
        found = _parsed.get(text)
        if found is None:
            found = _parsed[text] = tuple(self.graph.parse_program(text))
        return found

    def _run(self, commands: Iterable[Any]) -> Any:
        try:
            return self.graph.run_program(*commands)
        except Exception as error:
            raise CompileError(f"the e-graph engine refused a command: {error}") from error
        except BaseException as error:  # a Rust panic is not an Exception
            if type(error).__name__ != "PanicException":
                raise
            raise CompileError(f"the e-graph engine failed: {error}") from error

    def _integer(self, value: int) -> Any:
        return self.bindings.Lit(self.span, self.bindings.Int(value))

    def _table(self, op: str) -> str:
        return "buffer" if op in BUFFER_SORT else "term"

    def _term(self, number: int) -> Any:
        table = self._table(self.terms[number])
        return self.bindings.Call(self.span, table, [self._integer(number)])

    def _argument(self, kind: str, value: Any) -> Any:
        if kind == "i":
            return self._integer(value)
        if kind == "f":
            return self.bindings.Lit(self.span, self.bindings.Float(value))
        assert kind in (TERM_SORT, "T")
        return self._term(value)
