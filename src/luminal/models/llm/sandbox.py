"""Jinja's sandbox with bounds. Chat templates come from strangers: what takes hours or gigabytes
ends in an error.

Each turn of a loop, call, filter and printed value is a step; the texts, lists and numbers that
these make are bounded, each and all together.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_STEPS = 200_000  # in one rendering: a second
MOST_TEXT = 10_000_000  # characters or elements that one operation makes
MOST_TEXTS = 100_000_000  # that all make together
SLOW = 100  # characters are made in the time of a bit of a large product
WIDTH = re.compile(r"\d{5}|%[^a-zA-Z%]*\*")  # of a number that is printed


FILTERS = {
    "batch", "center", "format", "indent", "join", "replace", "round", "slice", "tojson",
    "wordwrap",
}  # fmt: skip
GROWING = {"expandtabs", "ljust", "rjust", "translate", "zfill", *FILTERS} - {"format"}  # methods
FORMATS = {"format", "format_map"}
LONG = str, list, tuple, dict, range


class Bounds(ValueError):
    """A template does too much."""


class Budget:
    """What one rendering may still do; it is given to the rendering under this name."""

    NAME = "_budget"

    def __init__(self) -> None:
        self.steps, self.made = MOST_STEPS, MOST_TEXTS

    def spend(self, size: int) -> None:
        self.steps -= 1
        self.made -= size
        if self.steps < 0:
            raise Bounds(f"more than {MOST_STEPS} turns of its loops")
        if self.made < 0:
            raise Bounds(f"it makes more than {MOST_TEXTS} characters")


class Sandbox(ImmutableSandboxedEnvironment):
    """As Jinja's, bounded; whoever renders gives a Budget."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, **filters: Callable[..., Any]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )  # fmt: skip
        self.filters |= filters
        self.filters |= {name: _bounded(name, self.filters[name]) for name in FILTERS}
        del self.globals["lipsum"]

    def counted(self, context: Context, value: Any = "") -> Any:
        """The value, once it is paid for."""
        # not what the template itself has set
        context.parent[Budget.NAME].spend(len(value) if isinstance(value, LONG) else 0)
        return value

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            _check("format", (left, right))
        size = _made(operator, left, right)
        if size > MOST_TEXT:
            raise Bounds(f"{operator} makes more than {MOST_TEXT} characters")
        context.parent[Budget.NAME].spend(size)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:
        method = getattr(function, "__wrapped__", function)
        operands = getattr(method, "__self__", None), *args, *named.values()
        _check(getattr(method, "__name__", ""), operands)
        return super().call(context, function, *args, **named)

    def parsed(self, template: str) -> Any:
        """The template, which counts what it does."""
        return self.from_string(Counting(self).visit(self.parse(template)))


class Counting(NodeTransformer):
    """Loops and what makes texts count."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment

    def _counted(self, node: nodes.Node, *given: nodes.Expr) -> nodes.Call:
        counted, here = nodes.EnvironmentAttribute("counted"), nodes.ContextReference()
        found = nodes.Call(counted, [here, *given], [], None, None)
        found.set_lineno(node.lineno).set_environment(self._environment)
        return found

    def _turn(self, node: nodes.Node) -> nodes.Node:
        turn = nodes.Output([self._counted(node)])
        return turn.set_lineno(node.lineno).set_environment(self._environment)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, self._turn(node))
        if node.test is not None:  # "" is false
            either = nodes.Or(self._counted(node), node.test)
            node.test = either.set_lineno(node.lineno).set_environment(self._environment)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, self._turn(node))
        return node

    def _made(self, node: nodes.Node) -> nodes.Node:
        self.generic_visit(node)
        return self._counted(node, node)  # type: ignore[arg-type]

    visit_Call = visit_Filter = visit_Concat = _made

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        plain = nodes.TemplateData, nodes.Call
        node.nodes = [n if isinstance(n, plain) else self._counted(n, n) for n in node.nodes]
        return node

    def _block(self, node: Any) -> Any:
        """Of a filter, a call or an assignment, which stay what they are."""
        node.body = [self.visit(inner) for inner in node.body]
        return node

    visit_CallBlock = visit_FilterBlock = visit_AssignBlock = _block


class Generation(Extension):
    """{% generation %} marks what the assistant said, for training; it is shown as it is."""

    tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _made(operator: str, left: Any, right: Any) -> int:
    """Elements of a text or list, or many for each bit of a number."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length(), right.bit_length()
        return SLOW * (bits[0] * max(0, right) if operator == "**" else sum(bits))
    if operator == "+":
        return sum(len(each) for each in (left, right) if isinstance(each, LONG))
    for many, times in ((left, right), (right, left)):
        if isinstance(many, LONG) and isinstance(times, int) and operator == "*":
            return len(many) * times
    return 0


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is refused what makes too much of its operands."""

    @functools.wraps(function)  # keeps what jinja2 notes on it
    def bounded(*args: Any, **named: Any) -> Any:
        _check(name, (*args, *named.values()))
        return function(*args, **named)

    return bounded


def _check(name: str, operands: Sequence[Any]) -> None:
    """Refuses what makes more of a text: the two largest of its operands bound it."""
    texts = [value for value in operands if isinstance(value, str)]
    if name in FORMATS and any(map(WIDTH.search, texts[:1])):
        raise Bounds("a number of more than 9999 places")
    sizes = [len(value) for value in operands if isinstance(value, LONG)]
    sizes += [abs(value) for value in operands if isinstance(value, int)]
    if name in GROWING and math.prod(sorted(sizes)[-2:]) > MOST_TEXT:
        raise Bounds(f"{name} makes more than {MOST_TEXT} characters")
