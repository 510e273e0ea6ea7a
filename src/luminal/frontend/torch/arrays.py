"""Tensors as NumPy arrays over the same memory, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...graph.dtype import ALL, DType, dtype, f32, f64

TORCH_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64",
    "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32",
    "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
TO_TORCH = {kind: getattr(torch, TORCH_NAMES[kind.name]) for kind in ALL}
FROM_TORCH = {theirs: ours for ours, theirs in TO_TORCH.items()}
BFLOAT16 = next(kind.numpy for kind in ALL if kind.name == "bf16")


@dataclass(frozen=True)
class Pairs:
    """A complex dtype: real and imaginary part, of that dtype, in a last dimension of size 2."""

    part: DType

    @property
    def whole(self) -> np.dtype:
        return np.result_type(self.part.numpy, np.complex64)


PAIRS = {torch.complex64: Pairs(f32), torch.complex128: Pairs(f64)}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's own memory as an array; bfloat16 as ml_dtypes has it, complex as pairs."""
    plain = tensor.detach().cpu()  # the same where it is there
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(BFLOAT16)
    return plain.resolve_neg().numpy()


def tensor_of(array: np.ndarray, kind: DType | Pairs) -> torch.Tensor:
    """A tensor over the array's memory, which lives as long as the tensor."""
    if isinstance(kind, Pairs):
        pairs = np.ascontiguousarray(array).view(kind.whole)
        return torch.from_numpy(pairs.reshape(array.shape[:-1]))
    if kind.name == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def from_array(array: np.ndarray) -> torch.Tensor:
    """A tensor over an array's memory, of any dtype that programs have, bf16 among them. Raises
    TypeError for others.

    >>> luminal.torch.from_array(np.float32([1, 2]))
    tensor([1., 2.])
    """
    return tensor_of(np.ascontiguousarray(array), dtype(array.dtype))


def memory_order(strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest in memory; None where elements overlap or
    leave gaps. Dimensions of size 1 take part by the stride that they claim."""
    dims = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d], d))
    expected = 1
    for d in reversed(dims):
        if sizes[d] != 1 and strides[d] != expected:
            return None
        expected *= sizes[d]
    return tuple(dims)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    result = [0] * len(order)
    for place, dim in enumerate(order):
        result[dim] = place
    return tuple(result)
