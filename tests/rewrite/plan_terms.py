"""E-graph classes back as terms: the oracle of terms gives every alternative a meaning."""

from __future__ import annotations

import numpy as np
from oracles.terms import Values

from luminal.graph.dtype import ALL
from luminal.graph.index import Index
from luminal.rewrite.extract import Classes, ENode
from luminal.rewrite.maps import within
from luminal.rewrite.normal import axis_key
from luminal.rewrite.terms import Map, Terms


class Meaning:
    """One term for each class (its first alternative that can be), more on request."""

    def __init__(self, classes: Classes) -> None:
        self.classes, self.encoding = classes, classes.encoding
        self.terms = Terms(classes.encoding.space)
        self.of: dict[int, int] = {}
        for c, option in classes.first.items():
            self.of[c] = self.term(c, classes.alternatives[c][option])

    def term(self, c: int, node: ENode) -> int:
        """The term of an alternative of a class, over the terms of its operands."""
        op, dtype = node.op, self.classes.dtype[c]
        children = tuple(self.of[x] for x in node.children)
        add = self.terms.add
        if op == "one":
            return add("const", (), 1.0, ALL[1])
        if op in ("wexp", "osum"):
            return self._online(node, children)
        if op == "guard" and node.attribute is None:
            return children[1]
        attribute = self.encoding.names(node.over) if node.over else node.attribute
        if op in ("read", "gather"):
            attribute = self._total(attribute, children[0])
        return add(op, children, attribute, node.dtype or dtype)

    def _total(self, found: Map, buffer: int) -> Map:
        """The map on the axes that this very buffer has, defined where the map was."""
        entries, axes = dict(found.entries), self.terms.axes[buffer]
        whole = sorted(axes, key=lambda a: (len(a), a))
        left = Map(tuple(e for e in found.entries if e[0] not in axes), found.conditions)
        conditions = tuple(found.conditions) + tuple(within(self.terms.space, left))
        return Map(tuple((a, entries.get(a, Index.of(a))) for a in whole), conditions)

    def _online(self, node: ENode, children: tuple[int, ...]) -> int:
        mask, scale = node.attribute
        add, over, score = self.terms.add, self.encoding.names(mask), children[0]
        dtype = self.terms.nodes[score].dtype
        top = add("max", (score,), over, dtype)
        minus = add("mul", (top, add("const", (), -1.0, dtype)), None, dtype)
        difference = add("add", (score, minus), None, dtype)
        scaled = add("mul", (difference, add("const", (), scale, dtype)), None, dtype)
        weight = add("exp2", (scaled,), None, dtype)
        if node.op == "wexp":
            return weight
        factor = self.terms.nodes[children[1]]
        if factor.op == "const" and factor.attribute == 1.0:
            return add("sum", (weight,), over, dtype)
        return add("sum", (add("mul", (children[1], weight), None, factor.dtype),), over, dtype)


def differences(classes: Classes, arrays, sizes, tolerance: float) -> list[str]:
    """Alternatives that differ from their class: in a value, or in where they are defined. (An
    equality of values where both are defined would not be transitive.)"""
    meaning = Meaning(classes)
    pairs = [
        (c, node, meaning.term(c, node))
        for c in meaning.of
        for node in classes.alternatives[c]
        if all(x in meaning.of for x in node.children)
    ]
    values = Values(meaning.terms, arrays, sizes)
    wrong = []
    for c, node, term in pairs:
        if node.op == "one":
            continue
        mine = meaning.of[c]
        axes = tuple(sorted(meaning.terms.axes[term] | meaning.terms.axes[mine], key=axis_key))
        defined, same = values.defined_at(mine, axes), values.defined_at(term, axes)
        a, b = (values.at(t, axes)[defined & same].astype(np.float64) for t in (term, mine))
        signs = tolerance > 1e-4 or np.array_equal(np.signbit(a[a == 0]), np.signbit(b[a == 0]))
        equal = np.allclose(a, b, tolerance, tolerance, equal_nan=True) and signs
        if not equal or (defined != same).any():
            wrong.append(f"class {c}: {node}")
    return wrong
