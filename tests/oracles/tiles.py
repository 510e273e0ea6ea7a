"""What Intel's manual says that products of tile registers do, bit for bit (instruction set
reference, AMX): bf16 as two chains of fused multiply-adds a row, of even and of odd numbers, whose
sum joins the accumulator, all rounded to the nearest even; denormals are zeros going in and out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from luminal.backend.reference.arrays import Array
from luminal.graph.dtype import f32
from luminal.kernel.target import MatrixInstruction

TINY = 2.0**-126  # the least normal number


def exact(instruction: MatrixInstruction) -> Callable[[Array, Array, Array], Array]:
    """(acc (r, c), a (r, ...), b (c, ...)) -> acc as the instruction leaves it."""
    if not instruction.registers:
        return instruction.specification
    return _floats if instruction.accumulator is f32 else _integers


def _integers(acc: Array, a: Array, b: Array) -> Array:
    total = a.reshape(len(a), -1).astype(np.int64) @ b.reshape(len(b), -1).astype(np.int64).T
    return np.asarray((acc.astype(np.int64) + total).astype(np.int32))


def _floats(acc: Array, a: Array, b: Array) -> Array:
    a, b = (_normal(side.reshape(len(side), -1, 2).astype(np.float32)) for side in (a, b))
    chains = np.zeros((*acc.shape, 2), np.float32)
    for step in range(a.shape[1]):
        product = a[:, None, step].astype(np.float64) * b[None, :, step]  # exact: 8 bits by 8
        chains = _sum(product, chains)
    return _sum(_normal(np.asarray(acc, np.float32)), _sum(chains[..., 0], chains[..., 1]))


def _normal(x: Array) -> Array:
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def _sum(x: Array, y: Array) -> Array:
    """x + y, of which one has 24 bits and the other at most 24, rounded to f32: what f64 loses of
    that is too far from a tie of f32 to matter. A result that is tiny is zero."""
    total = x.astype(np.float64) + y.astype(np.float64)
    rounded = total.astype(np.float32)
    tiny = np.abs(total) < TINY * (1 - 2.0**-25)
    return np.where(tiny, np.copysign(np.float32(0), rounded), rounded)

