"""Element types: their sizes, their NumPy forms, and PyTorch's promotion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DTypeError


@dataclass(frozen=True)
class DType:
    """An element type. `kind`: "float", "int", "uint" or "bool".

    >>> x = cx.tensor(2, "bf16")
    >>> x.dtype, x.dtype.bytes, x.dtype.is_float
    (bf16, 2, True)
    """

    name: str
    bytes: int
    kind: str
    numpy: Any  # np.dtype

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_half(self) -> bool:
        """f16 or bf16: computed in f32, and rounded once."""
        return self.is_float and self.bytes == 2

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("float", "int")

    @property
    def lowest(self) -> int | float:
        """The smallest value: minus infinity for floats."""
        if self.is_float:
            return -np.inf
        return 0 if self.kind == "bool" else int(np.iinfo(self.numpy).min)

    @property
    def highest(self) -> int | float:
        """The largest value: infinity for floats."""
        if self.is_float:
            return np.inf
        return 1 if self.kind == "bool" else int(np.iinfo(self.numpy).max)

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)  # there is one of each

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


f64 = DType("f64", 8, "float", np.dtype(np.float64))
f32 = DType("f32", 4, "float", np.dtype(np.float32))
f16 = DType("f16", 2, "float", np.dtype(np.float16))
bf16 = DType("bf16", 2, "float", np.dtype(ml_dtypes.bfloat16))
i64 = DType("i64", 8, "int", np.dtype(np.int64))
i32 = DType("i32", 4, "int", np.dtype(np.int32))
i16 = DType("i16", 2, "int", np.dtype(np.int16))
i8 = DType("i8", 1, "int", np.dtype(np.int8))
u64 = DType("u64", 8, "uint", np.dtype(np.uint64))
u32 = DType("u32", 4, "uint", np.dtype(np.uint32))
u16 = DType("u16", 2, "uint", np.dtype(np.uint16))
u8 = DType("u8", 1, "uint", np.dtype(np.uint8))
boolean = DType("bool", 1, "bool", np.dtype(np.bool_))

ALL = (f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean)
BY_NAME = {d.name: d for d in ALL}
PYTHON = {bool: boolean, int: i64, float: f32}
ALIASES = {"float": f32, "bfloat16": bf16, "long": i64, "int": i32}  # others are NumPy's own names


def wrapped(value: int) -> int:
    """The number of i64 that is equal modulo 2^64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def dtype(value: Any) -> DType:
    """The DType that a name ("f32", "float32"), a Python type, a dtype of NumPy or PyTorch, or a
    DType means."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in PYTHON:
        return PYTHON[value]
    if type(value).__module__ == "torch":  # torch.float16
        value = str(value).removeprefix("torch.")
    if isinstance(value, str):
        found = BY_NAME.get(value) or ALIASES.get(value)
        if found is not None:
            return found
    try:
        wanted = np.dtype(value)
    except TypeError:
        wanted = None
    for known in ALL:
        if wanted is not None and known.numpy == wanted:
            return known
    names = ", ".join(BY_NAME)
    raise DTypeError(f"no dtype {value!r}; the dtypes are {names}")


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two tensors, as `torch.promote_types` has it."""
    if a is b:
        return a
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.is_float and b.is_float:
        return f32 if a.bytes == b.bytes else max(a, b, key=lambda d: d.bytes)
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        return max(a, b, key=lambda d: d.bytes)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bytes > unsigned.bytes:
        return signed
    return {1: i16, 2: i32, 4: i64, 8: f32}[unsigned.bytes]
