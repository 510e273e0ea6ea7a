"""What a language model must beat: bytes guessed from the five before them, by counting."""

from __future__ import annotations

import numpy as np

ORDER = 5


def bits_per_byte(known: bytes, held_out: bytes, order: int = ORDER) -> float:
    """Of held-out ASCII text, by an interpolated model of that many bytes of context (Witten and
    Bell 1991): p(c | h) = (n(h c) + kinds(h) p(c | h')) / (n(h) + kinds(h)), h' one byte shorter,
    kinds(h) how many different bytes followed h; below order 0 all 128 are alike."""
    learned, asked = (np.frombuffer(text, np.uint8).astype(np.int64) for text in (known, held_out))
    p = np.full(len(asked), 1 / 128)
    for length in range(order + 1):
        grams, counts = np.unique(_grams(learned, length + 1), return_counts=True)
        before = grams >> 7
        contexts, first, kinds = np.unique(before, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, first)
        wanted = _grams(asked, length + 1)
        n = _looked_up(grams, counts, wanted)
        total, kind = (_looked_up(contexts, v, wanted >> 7) for v in (totals, kinds))
        shorter = p[length:]
        mixed = (n + kind * shorter) / np.maximum(total + kind, 1)
        p[length:] = np.where(total > 0, mixed, shorter)
    return float(-np.log2(p).mean())


def _grams(text: np.ndarray, length: int) -> np.ndarray:
    """So many bytes in a row as one number, at each place that has them, 7 bits each."""
    count = len(text) - length + 1
    found = np.zeros(count, np.int64)
    for at in range(length):
        found = found << 7 | text[at : at + count]
    return found


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values of keys, 0 of those that there are not."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
