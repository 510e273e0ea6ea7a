"""How an index is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .index import Index, Monomial


def term_key(term: tuple[Monomial, int]) -> tuple[int, str]:
    """Terms stand in this order: products of fewer atoms first, then by name."""
    return len(term[0]), "*".join(map(str, term[0]))


def sum_text(terms: tuple[tuple[Monomial, int], ...]) -> str:
    """A sum as people write it; `parse.index_of` reads it back."""
    written = ""
    for monomial, coefficient in sorted(terms, key=lambda term: not term[0]):  # constant last
        factors = [] if abs(coefficient) == 1 and monomial else [str(abs(coefficient))]
        minus = coefficient < 0
        sign = (" - " if minus else " + ") if written else "-" if minus else ""
        written += sign + "*".join(factors + [str(atom) for atom in monomial])
    return written or "0"


def factor(index: Index) -> str:
    """An index as a factor of a product: in brackets if it is a sum."""
    single = len(index.terms) == 1 and not index.text.startswith("-") and "*" not in index.text
    return index.text if single else f"({index.text})"
