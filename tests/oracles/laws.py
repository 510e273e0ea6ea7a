"""What a rule may say: operations have their operands, of their sorts, and nothing is made or asked
of a name that no fact has found."""

from __future__ import annotations

from collections.abc import Iterator

from luminal.rewrite.language import FUNCTIONS, OPERATIONS, TABLES
from luminal.rewrite.matching import PRIMITIVES, Rule, Tree

FINDING = ("power", "share", "under")  # relations that find what a name stands for


class WrongLaw(Exception):
    """A rule that says what nobody knows."""


def check(rule: Rule) -> None:
    """Raises WrongLaw."""
    found = {name for fact in rule.facts for name in _found(fact)}
    used = (*rule.facts, *rule.action[1:])
    if unknown := {name for tree in used for name in _names(tree)} - found:
        raise WrongLaw(f"no fact finds {unknown}: {rule}")
    sorts = {"e": "E"}
    for tree in rule.facts:
        _sort(tree, sorts)
    for tree in rule.action[1:] if rule.action[0] == "union" else [rule.action]:
        _sort(tree, sorts)


def _names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, str):
        yield from [tree] if tree[0].isalpha() else []
    else:
        yield from (name for part in tree[1:] for name in _names(part))


def _found(fact: Tree) -> Iterator[str]:
    """The names that a fact finds something for, beyond those that it asks about."""
    if fact[0] in FINDING:
        yield from _names(fact)
    for part in fact[1:] if fact[0] == "=" else ():
        if isinstance(part, str) or part[0] in OPERATIONS:
            yield from _names(part)


def _sort(tree: Tree, sorts: dict[str, str], wanted: str = "") -> str:
    """The sort of an expression, "" for any number. Names are of one sort all over a rule."""
    if isinstance(tree, str):
        name = tree[0].isalpha()
        found = (sorts.setdefault(tree, wanted) if wanted else sorts.get(tree, "")) if name else ""
    elif tree[0] in PRIMITIVES:
        found = _sort_of_primitive(tree, sorts)
    elif tree[0] not in TABLES and tree[0] not in FUNCTIONS:
        raise WrongLaw(f"nobody knows {tree[0]!r}")
    else:
        kinds, result = TABLES.get(tree[0]) or (FUNCTIONS[tree[0]], "i")
        if len(tree) - 1 != len(kinds):
            raise WrongLaw(f"{tree[0]} takes {len(kinds)} operands: {tree}")
        for kind, part in zip(kinds, tree[1:]):
            _sort(part, sorts, kind)
        found = "i" if result == "&" else result
    if wanted and found != wanted and (found or wanted == "E"):
        raise WrongLaw(f"{tree} is of another sort than {wanted}")
    return found


def _sort_of_primitive(tree: Tree, sorts: dict[str, str]) -> str:
    """Numbers are compared and computed with, classes only compared."""
    op, *parts = tree
    common = max(_sort(part, sorts) for part in parts)
    for part in parts:
        _sort(part, sorts, common)
    if common == "E" and op not in ("=", "!="):
        raise WrongLaw(f"{op} is of numbers: {tree}")
    return common if op in "+*/&|" or op == "not-i64" else ""
