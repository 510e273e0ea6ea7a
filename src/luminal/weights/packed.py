"""A matrix whose numbers are made when they are asked for, from however a file has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .quants import Quants

Made = Quants | np.ndarray


@dataclass(frozen=True)
class Packed:
    """A matrix (..., out, in), or several. NumPy sees its values in f32, made anew each time.

    kind: how models store it best (`luminal.models.llm.storage`): a float type, or blocks. make:
    its `Quants`, with the leading dimensions of `shape`; or floats of this shape.
    """

    shape: tuple[int, ...]
    kind: str
    make: Callable[[], Made]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made = self.make()
        return np.asarray(made.values() if isinstance(made, Quants) else made, dtype)

    def __getitem__(self, key: Any) -> Packed:
        """A part along the leading dimensions."""
        rows = np.broadcast_to(np.int8(0), self.shape[:-1])[key].shape
        return Packed((*rows, self.shape[-1]), self.kind, lambda: mapped(self.make(), key))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        """Roughly, as it will be stored."""
        return self.size * {"f32": 4, "bf16": 2, "f16": 2}.get(self.kind, 1)

    @property
    def T(self) -> np.ndarray:
        return np.asarray(self).T

    def swapaxes(self, a: int, b: int) -> np.ndarray:
        return np.asarray(self).swapaxes(a, b)

    def reshape(self, *shape: int) -> np.ndarray:
        return np.asarray(self).reshape(*shape)


def mapped(made: Made, key: Any) -> Made:
    """A part along the leading dimensions."""
    return made.map(lambda part: part[key]) if isinstance(made, Quants) else made[key]


def stacked(pieces: Sequence[Any]) -> Any:
    """Matrices of one shape below each other: (matrices, out, in)."""
    first = pieces[0]
    if not all(isinstance(p, Packed) and p.kind == first.kind for p in pieces):
        return np.stack([np.asarray(piece) for piece in pieces])

    def make() -> Made:
        made = [piece.make() for piece in pieces]
        if isinstance(made[0], Quants):
            return Quants.stack(made)
        return np.stack(made)

    return Packed((len(pieces), *first.shape), first.kind, make)
