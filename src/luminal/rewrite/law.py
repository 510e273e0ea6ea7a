"""A law as it is written to the rules of an engine: short forms, both orders, views.

A law is an expression tree, read by `matching.parse`. Short forms are written out, sums and
products take both orders, a law about a view becomes a rule about a read. The tests check what a
law may say: operations have their operands of their sorts, and the right side uses names of the
left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from ..errors import CompileError
from .language import MODERATE
from .matching import Rule, Tree, parse

SHORT: dict[str, tuple[str, str]] = {  # parameters, what the short form stands for
    "inv": ("k x", "(= 0 (& k (ax x)))"),
    "dep": ("k x", "(!= 0 (& k (ax x)))"),
    "weight": ("x", "(fixed x) (!= 0 (ax x))"),
    "moderate": ("c", MODERATE.format("c")),
    "positive": ("c", "(moderate c) (< 0.0 c)"),
    "minus": ("x", "(Mul x (Const d -1.0))"),
    "below": ("k x", "(Add x (minus (Max k x)))"),  # x less its maximum
    "is-minimum": ("o", "(= 1 (minimum o))"),
    "shift": ("k x r", "(inv k r) (= k (& k (ax x)))"),  # what shifts x, the same all over k
    "inverse": ("b c", "(< -1.000001 (* b c)) (< (* b c) -0.999999)"),  # c = -1 / b, rounded
    "own": ("m x", "(restrict m (ax x))"),  # a map on the axes of what it reads
    "at": ("x", "(Read x m)"),
}
Trees: TypeAlias = tuple[Tree, ...]
_VIEWED = "(= e (Read x m)) (= a (ax x)) (!= 0 a) (= m (restrict m a))"


def rules_of(law: str, family: str, mirrored: bool = False) -> list[Rule]:
    """The rules of a law."""
    head, _, conditions = law.partition("  if ")
    before, arrow, after = head.partition(" --> ")
    if not arrow:
        before, _, after = head.partition(" asks ")
    view = before.startswith("(at (")
    pattern = parse(before)[1] if view else _written(parse(before))[0]
    facts, result = _all_written(conditions), _written(parse(after))[0]
    if view:
        body = (*_all_written(_VIEWED), ("=", "x", pattern), *facts)
        found = _moved(body, parse(after)) if arrow else [(body, result)]
        return [Rule(family, *rule) for rule in found]
    forms = _orders(pattern, facts) if mirrored else [pattern]
    action = ("union", "e", result) if arrow else result
    return [Rule(family, (("=", "e", form), *facts), action) for form in forms]


# ---- short forms


def _all_written(text: str) -> Trees:
    return tuple(written for tree in parse(f"({text})") for written in _written(tree))


def _written(tree: Tree) -> list[Tree]:
    """A tree without short forms; one that stands for conditions may become several."""
    if isinstance(tree, str):
        return [tree]
    parts = (tree[0], *(written for part in tree[1:] for written in _written(part)))
    if tree[0] not in SHORT:
        return [parts]
    parameters, text = SHORT[tree[0]]
    if len(parameters.split()) != len(parts) - 1:
        raise CompileError(f"{tree[0]} takes {parameters!r}, not {parts[1:]}")
    given = dict(zip(parameters.split(), parts[1:]))
    return [w for inner in parse(f"({text})") for w in _written(_replaced(inner, given))]


def _replaced(tree: Tree, given: dict[str, Tree]) -> Tree:
    if isinstance(tree, str):
        return given.get(tree, tree)
    return (tree[0], *(_replaced(part, given) for part in tree[1:]))


# ---- both orders of sums and products


def _orders(pattern: Tree, facts: Trees) -> list[Tree]:
    """The pattern with operands of sums and products in either order, each once. Constants stand
    second in the e-graph."""
    found: dict[Tree, Tree] = {}
    for form in _forms(pattern):
        found.setdefault(_anonymous(form, facts), form)
    return list(found.values())


def _forms(tree: Tree) -> list[Tree]:
    if isinstance(tree, str):
        return [tree]
    inner: list[Tree] = [(tree[0], *parts) for parts in product(*map(_forms, tree[1:]))]
    if tree[0] in ("Add", "Mul") and tree[2][0] != "Const":
        inner += [(op, q, p) for op, p, q in inner]
    return inner


def _anonymous(pattern: Tree, facts: Trees) -> Tree:
    """The same for patterns that differ in names only."""
    names: dict[str, Tree] = {}
    for name in _names(pattern):
        names.setdefault(name, f"n{len(names)}")
    return _replaced(pattern, names), frozenset(_replaced(fact, names) for fact in facts)


def _names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, str):
        if tree[0].isalpha():
            yield tree
        return
    for part in tree[1:]:
        yield from _names(part)


# ---- views


def _moved(facts: Trees, after: Tree) -> Iterator[tuple[Trees, Tree]]:
    """A view of a value, as rules. An operation of two values is defined where both are. One that
    has all axes keeps the conditions of the map; the other, if it has fewer, is read without."""
    facts += tuple(fact for part in after[1:] for fact in _inside(part))
    action = "union", "e", _written(after)[0]
    if after[-2:] != (("at", "p"), ("at", "q")) or after[0] == "Ternary":
        yield facts, action
        return
    yield facts + _all_written("(= (ax p) (ax q))"), action
    yield facts + _all_written("(!= (ax p) (ax q)) (!= a (ax p)) (!= a (ax q))"), action
    for wide, narrow in ("pq", "qp"):
        fewer = facts + _all_written(f"(= a (ax {wide})) (= b (ax {narrow})) (!= a b)")
        near = parse(f"(Read {narrow} (near m b))")
        moved = [near if x == narrow else ("at", x) for x in "pq"]
        yield fewer, ("union", "e", _written((*after[:-2], *moved))[0])


def _inside(part: Tree) -> Trees:
    """A map says nothing about axes that what it reads lacks. An alternative of that value may
    have operands that vary along such axes (the dead branch of a guard): it is not moved."""
    if isinstance(part, str):
        return ()
    if part[0] == "at":
        return _all_written(f"(= 0 (& (ax {part[1]}) (not-i64 a)))")
    if part[0] == "Read":
        return _all_written(f"(= 0 (& (ax {part[1]}) (not-i64 (| a k))))")
    return tuple(fact for inner in part[1:] for fact in _inside(inner))
