"""A law as it is written to the rules of an engine: short forms, both orders, views; checked.

A law is an expression tree, read by `matching.parse`. Short forms are written out, sums and
products take both orders, a law about a view becomes a rule about a read. What a law may say is
checked: operations have their operands of their sorts, and the right side uses names of the left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from ..errors import CompileError
from .language import FUNCTIONS, MODERATE, OPERATIONS, TABLES
from .matching import PRIMITIVES, Rule, Tree, parse

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
    """The rules of a law. Raises CompileError where it is written wrong."""
    head, _, conditions = law.partition("  if ")
    before, arrow, after = head.partition(" --> ")
    if not arrow:
        before, _, after = head.partition(" asks ")
    view = before.startswith("(at (")
    pattern = parse(before)[1] if view else _written(parse(before))[0]
    facts, result = _all_written(conditions), _written(parse(after))[0]
    _check(law, pattern, facts, result, view)
    if view:
        body = (*_all_written(_VIEWED), ("=", "x", pattern), *facts)
        found = _moved(body, parse(after)) if arrow else [(body, result)]
        return [Rule(family, *rule) for rule in found]
    forms = _orders(pattern, facts) if mirrored else [pattern]
    action = ("union", "e", result) if arrow else result
    return [Rule(family, (("=", "e", form), *facts), action) for form in forms]


def _text(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(_text, tree))})"


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
        raise CompileError(f"{tree[0]} takes {parameters!r}, not {_text(parts[1:])}")
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


# ---- what a law may say

_FOUND = ("power", "share", "under")  # conditions that say what a name stands for


def _check(law: str, pattern: Tree, facts: Trees, result: Tree, view: bool) -> None:
    said = {"e", "a", *("mx" if view else ""), *_names(pattern)}
    for fact in facts:
        said |= set(_told(fact))
    left = [name for fact in facts for name in _names(fact)]
    if unknown := [name for name in (*left, *_names(result)) if name not in said]:
        raise CompileError(f"a law says nothing of {unknown} on its left: {law}")
    sorts = {"e": "E", "m": "i", "a": "i", "x": "E"} if view else {"e": "E"}
    for tree in (pattern, *facts, result):
        _sort(law, tree, sorts)


def _told(fact: Tree) -> Iterator[str]:
    """The names that a condition finds something for, beyond those that it asks about."""
    if fact[0] in _FOUND:
        yield from _names(fact)
    for part in fact[1:] if fact[0] == "=" else ():
        if isinstance(part, str) or part[0] in OPERATIONS:
            yield from _names(part)


def _sort(law: str, tree: Tree, sorts: dict[str, str], wanted: str = "") -> str:
    """The sort of an expression, "" for any number. Names are of one sort all over a law."""
    if isinstance(tree, str):
        name = tree[0].isalpha()
        found = (sorts.setdefault(tree, wanted) if wanted else sorts.get(tree, "")) if name else ""
    elif tree[0] in PRIMITIVES:
        found = _sort_of_primitive(law, tree, sorts)
    elif tree[0] not in TABLES and tree[0] not in FUNCTIONS:
        raise CompileError(f"a law uses {tree[0]!r}, which nobody knows: {law}")
    else:
        kinds, result = TABLES.get(tree[0]) or (FUNCTIONS[tree[0]], "i")
        if len(tree) - 1 != len(kinds):
            raise CompileError(f"{tree[0]} takes {len(kinds)} operands: {law}")
        for kind, part in zip(kinds, tree[1:]):
            _sort(law, part, sorts, kind)
        found = "i" if result == "&" else result
    if wanted and found != wanted and (found or wanted == "E"):
        raise CompileError(f"{_text(tree)} is of another sort than {wanted}: {law}")
    return found


def _sort_of_primitive(law: str, tree: Tree, sorts: dict[str, str]) -> str:
    """Numbers are compared and computed with, classes only compared."""
    op, *parts = tree
    common = max(_sort(law, part, sorts) for part in parts)
    for part in parts:
        _sort(law, part, sorts, common)
    if common == "E" and op not in ("=", "!="):
        raise CompileError(f"{op} is of numbers: {law}")
    return common if op in "+*/&|" or op == "not-i64" else ""
