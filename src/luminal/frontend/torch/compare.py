"""`options={"check": True}`: what a program computes beside what PyTorch does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from ...errors import CompileError
from .report import where

EXACT = 0.0
TOLERANCES = {  # of the largest value in the tensor, so long as computations are exact in f32
    torch.float64: 1e-8, torch.complex128: 1e-8, torch.float32: 1e-4, torch.complex64: 1e-4,
    torch.bfloat16: 3e-2, torch.float16: 4e-3,
}  # fmt: skip
ROUNDED = 5e-2  # where the user lets computations round to less than f32


def compare(
    nodes: Sequence[fx.Node], got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor],
    precision: str,
) -> None:  # fmt: skip
    """Raises CompileError, which names the first wrong value, where one is further from PyTorch's
    than rounding explains; NaN and infinities must be the same."""
    for node, mine, theirs in zip(nodes, got, expected, strict=True):
        kind = theirs.dtype
        tolerance = TOLERANCES.get(kind, EXACT)
        if tolerance and precision != "f32":
            tolerance = max(tolerance, ROUNDED)
        wrong = _wrong(mine, theirs, tolerance)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise CompileError(
                f"{node.target} computes {mine[at].item()} at {list(at)}, where PyTorch has "
                f"{theirs[at].item()}; {int(wrong.sum())} of {wrong.numel()} values ({kind}, "
                f"{list(theirs.shape)}) differ by more than {tolerance} of the largest: a fault of "
                f"luminal's\n{where(node)}"
            )


def _wrong(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Where they differ. (A difference of infinities is NaN, which is in no order.)"""
    if tolerance == EXACT:
        return mine != theirs
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    mine, theirs = mine.to(wide), theirs.to(wide)
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    finite = theirs[theirs.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return ~(same | ((mine - theirs).abs() <= tolerance * scale))
