"""Element types of ONNX in ours.

A type that we lack is carried by a wider one that holds its values exactly: a float8 as f32, an
int4 as i8. Arrays of such types cross the border as NumPy (with ml_dtypes) has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ...errors import DTypeError, Unsupported
from ...graph.dtype import (
    DType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

NATIVE: dict[int, DType] = {
    TensorProto.FLOAT: f32, TensorProto.DOUBLE: f64, TensorProto.FLOAT16: f16,
    TensorProto.BFLOAT16: bf16, TensorProto.INT8: i8, TensorProto.INT16: i16,
    TensorProto.INT32: i32, TensorProto.INT64: i64, TensorProto.UINT8: u8,
    TensorProto.UINT16: u16, TensorProto.UINT32: u32, TensorProto.UINT64: u64,
    TensorProto.BOOL: boolean,
}  # fmt: skip
NARROW_INTEGERS = {"INT4": i8, "INT2": i8, "UINT4": u8, "UINT2": u8}
NARROW_FLOATS = (
    "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "FLOAT4E2M1",
)  # fmt: skip
CARRIED: dict[int, DType] = {
    getattr(TensorProto, name): carrier
    for name, carrier in [*NARROW_INTEGERS.items(), *((name, f32) for name in NARROW_FLOATS)]
    if hasattr(TensorProto, name)
}
STRING = int(TensorProto.STRING)
OURS = {kind: number for number, kind in NATIVE.items()}


def name_of(kind: int) -> str:
    """As the standard writes it: "FLOAT8E4M3FN"."""
    return str(TensorProto.DataType.Name(kind))


def dtype_of(kind: int) -> DType:
    """Our dtype for an element type, or the one that carries it. Raises Unsupported."""
    found = NATIVE.get(kind) or CARRIED.get(kind)
    if found is None:
        raise Unsupported(f"tensors of {name_of(kind)}")
    return found


def numpy_of(kind: int) -> Any:
    """NumPy's dtype of an element type, with ml_dtypes for those that NumPy lacks."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


_BY_NUMPY = {numpy_of(kind): kind for kind in (*NATIVE, *CARRIED)}


def kind_of(array: np.ndarray) -> int:
    """The element type of an array. Raises DTypeError."""
    if array.dtype.kind in "OSU":
        return STRING
    found = _BY_NUMPY.get(array.dtype)
    if found is None:
        raise DTypeError(f"no ONNX tensor has elements of {array.dtype}")
    return found


def inward(array: np.ndarray) -> np.ndarray:
    """An array in our dtype, or the one that carries it."""
    kind = kind_of(array)
    return array.astype(CARRIED[kind].numpy) if kind in CARRIED else array


def outward(array: np.ndarray, kind: int) -> np.ndarray:
    """What our programs give, as an array of an element type."""
    return array.astype(numpy_of(kind)) if kind in CARRIED else array
