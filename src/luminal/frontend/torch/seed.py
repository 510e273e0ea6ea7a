"""The seed of a run, from PyTorch's default generator, without an operation of PyTorch's.

That generator is the Mersenne twister MT19937 (Matsumoto and Nishimura, "Mersenne twister: a
623-dimensionally equidistributed uniform pseudo-random number generator", 1998).
"""

from __future__ import annotations

import threading

import numpy as np
import torch

WORDS, AHEAD = 624, 397
UPPER, LOWER, MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
STATE = np.dtype([
    ("seed", "u8"), ("left", "i4"), ("seeded", "i4"), ("next", "u8"), ("words", "u8", WORDS),
    ("normals", "V40"),
])  # fmt: skip
"""What `Generator.get_state` of the CPU's generator holds (ATen's CPUGeneratorImplState)."""

_lock = threading.Lock()


def draw_seed() -> int:
    """63 bits: those that `torch.empty((), dtype=torch.int64).random_()` would draw, and the
    generator goes on as after it. So `torch.manual_seed` rules every run."""
    with _lock:
        state = torch.default_generator.get_state()
        if state.numel() != STATE.itemsize:  # of another version of PyTorch
            return int(torch.empty((), dtype=torch.int64).random_())
        whole = state.numpy().view(STATE)
        high, low = _draw(whole), _draw(whole)
        torch.default_generator.set_state(state)
    return (high << 32 | low) & (2**63 - 1)


def _draw(whole: np.ndarray) -> int:
    """The next 32 bits; the state moves on."""
    left, place = int(whole["left"][0]) - 1, int(whole["next"][0])
    if left == 0:
        whole["words"][0] = _following(whole["words"][0].astype(np.uint32))
        left, place = WORDS, 0
    whole["left"][0], whole["next"][0] = left, place + 1
    word = int(whole["words"][0, place])
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return word ^ word >> 18


def _following(words: np.ndarray) -> np.ndarray:
    """The next 624 words of x[k + 624] = x[k + 397] ^ A (upper bit of x[k], lower of x[k + 1])."""
    x = np.concatenate([words, words])
    step = WORDS - AHEAD
    for start in range(0, WORDS, step):
        here = slice(start, min(start + step, WORDS))
        pair = x[here] & UPPER | x[here.start + 1 : here.stop + 1] & LOWER
        twisted = pair >> np.uint32(1) ^ np.where(pair & np.uint32(1), MATRIX, np.uint32(0))
        x[here.start + WORDS : here.stop + WORDS] = (
            x[here.start + AHEAD : here.stop + AHEAD] ^ twisted
        )
    return x[WORDS:]
