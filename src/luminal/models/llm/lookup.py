"""Guesses of the next tokens, looked up in what came before (prompt look-up decoding, Saxena 2023).

A model runs guesses with the last token at once; those that it would have chosen itself are free.
"""

from __future__ import annotations

from collections.abc import Sequence

LENGTHS = (4, 3, 2)  # of the n-grams that are looked up, in this order


class Lookup:
    """The n-grams of one growing sequence, and where each was last continued."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._read = 0

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """What may follow the tokens, which begin with those of the last call: as many as `count`,
        or none. Where the earlier place is near the end, its continuation goes round."""
        for place in range(self._read, len(tokens)):
            for length in LENGTHS:
                if place >= length:
                    self._next[tuple(tokens[place - length : place])] = place
        self._read = len(tokens)
        for length in LENGTHS:
            place = self._next.get(tuple(tokens[-length:]), len(tokens))
            if place < len(tokens):
                period = len(tokens) - place
                return [tokens[place + n % period] for n in range(count)]
        return []
