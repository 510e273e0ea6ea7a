"""Arrays that users give, and the run-time sizes that their shapes tell.

An array that has the right dtype, lies contiguous and is aligned for its dtype is used in place:
the program reads the caller's memory when it runs. All others are copied once, when they are set,
and converted only without loss.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import InputError, LossyInput
from .dtype import DType, dtype, f32, f64
from .index import Index
from .infer import text
from .node import Loop, Node, Shape, View


def lossless(source: DType, wanted: DType) -> bool:
    """Every value of `source` is a value of `wanted`: as NumPy has it, but i64 is no f64."""
    rounded = source.is_integer and source.bytes == 8 and wanted is f64
    return np.can_cast(source.numpy, wanted.numpy) and not rounded


@cache
def _holds(wanted: DType, small: np.dtype[Any]) -> bool:
    """Every value of a type of a byte that is none of ours (float8, int4) is one of `wanted`."""
    if small.itemsize != 1:
        return False
    values = np.arange(256, dtype=np.uint8).view(small)
    try:
        with np.errstate(all="ignore"):
            kept = values.astype(wanted.numpy).astype(np.float64)
        return np.array_equal(kept, values.astype(np.float64), equal_nan=True)
    except (TypeError, ValueError):  # no numbers
        return False


def as_array(name: str, wanted: DType, value: Any) -> np.ndarray:
    """The value as a contiguous, aligned array of the wanted dtype.

    Python numbers and lists of them take the wanted dtype; an array is widened, never narrowed.
    Raises InputError, LossyInput.
    """
    if type(value) is np.ndarray and value.dtype is wanted.numpy:  # the usual case, kept short
        flags = value.flags
        if flags.c_contiguous and flags.aligned:
            return value
    array = _numbers(name, value)
    if isinstance(value, (bool, int, float, list, tuple)):
        array = _python_numbers(name, array, wanted)
    try:
        fits = lossless(dtype(array.dtype.newbyteorder("=")), wanted)
    except TypeError:
        fits = _holds(wanted, array.dtype)
    if not fits:
        raise LossyInput(
            f"'{name}' is {wanted}; an array of {array.dtype} does not fit without loss. "
            f"Convert it yourself: array.astype({wanted.numpy.name!r})"
        )
    return np.require(array, wanted.numpy, ["C", "A"])


def array_of(value: Any) -> np.ndarray:
    """The value as NumPy holds it, by NumPy's protocol or DLPack's, without a copy where it can be;
    PyTorch's tensors without their gradients, and of bfloat16 and float8 too."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        return np.from_dlpack(value) if only_dlpack else np.asarray(value)
    plain = value.detach().cpu()
    lacked = getattr(ml_dtypes, str(plain.dtype).removeprefix("torch."), None)  # by NumPy
    bits = {1: torch.uint8, 2: torch.int16}.get(plain.dtype.itemsize)
    if lacked is not None and bits is not None:
        return np.asarray(plain.contiguous().view(bits).numpy().view(lacked))
    return np.asarray(plain.numpy())


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = array_of(value)
    except Exception as error:
        raise InputError(f"'{name}': {type(value).__name__} is not an array: {error}") from error
    if array.dtype.kind in "OSUMmc" or array.dtype.names:
        raise InputError(
            f"'{name}' wants an array of numbers, got {type(value).__name__} of {array.dtype}"
        )
    return array


def _python_numbers(name: str, array: np.ndarray, wanted: DType) -> np.ndarray:
    """Python's own numbers have no width: a float may be any float, an int any number it fits."""
    rank = {"b": 0, "i": 1, "u": 1, "f": 2}
    have = rank.get(array.dtype.kind, 2)
    want = {"bool": 0, "int": 1, "uint": 1, "float": 2}[wanted.kind]
    if have > want and array.size:
        raise LossyInput(f"'{name}' is {wanted}; the values given are {array.dtype}")
    if have == want == 1 and array.size and not _in_range(array, wanted):
        raise LossyInput(f"'{name}' is {wanted}; a value given lies outside its range")
    return array.astype(wanted.numpy)


def _in_range(array: np.ndarray, wanted: DType) -> bool:
    return int(array.min()) >= wanted.lowest and int(array.max()) <= wanted.highest


def constant(value: Any) -> tuple[np.ndarray, DType]:
    """A constant's own copy, and its dtype: Python floats are f32, Python ints i64."""
    given = _numbers("constant", value)
    array = isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__")
    kind = f32 if given.dtype == np.float64 and not array else dtype(given.dtype)
    if array and not given.flags.writeable:
        return given, kind
    copy = np.array(given, kind.numpy, order="C")
    copy.flags.writeable = False
    return copy, kind


def checked(node: Node, value: Any) -> np.ndarray:
    """The array for a source: right dtype, rank and constant sizes. A flat Python list stands for
    as many elements of a fixed shape. Raises InputError, LossyInput."""
    name = node.attribute.name
    array = as_array(name, node.dtype, value)
    if isinstance(value, (list, tuple)) and array.ndim == 1:
        sizes = tuple(size.constant for size in node.shape if size.is_constant)
        if len(sizes) == len(node.shape) and array.size == math.prod(sizes):
            array = array.reshape(sizes)
    implied_sizes(name, node.shape, array.shape)
    return array


def fitting(name: str, wanted: DType, value: Any) -> np.ndarray:
    """As `as_array`; an array that need not be converted may keep its strides."""
    right = isinstance(value, np.ndarray) and value.dtype == wanted.numpy
    return value if right else as_array(name, wanted, value)


# ---- sizes


def sizes_of(nodes: Iterable[Node]) -> frozenset[str]:
    """The run-time sizes that these nodes depend on (and names of positions)."""
    used: set[str] = set()
    for node in nodes:
        indices = list(node.shape)
        if isinstance(node.attribute, Index):
            indices.append(node.attribute)
        elif isinstance(node.attribute, View):
            indices += node.attribute.index + node.attribute.conditions
        elif isinstance(node.attribute, Loop) and node.attribute.length is not None:
            indices.append(node.attribute.length)
        used.update(*(index.names() for index in indices))
    return frozenset(used)


def implied_sizes(name: str, shape: Shape, actual: tuple[int, ...]) -> dict[str, int]:
    """The run-time sizes that an array's shape tells; raises InputError where it cannot fit.

    A dimension k * s + c tells s. A dimension of several sizes tells nothing and is checked later.
    """
    if len(shape) != len(actual):
        raise InputError(mismatch(name, shape, actual, "the ranks differ"))
    sizes: dict[str, int] = {}
    for number, (dim, extent) in enumerate(zip(shape, actual)):
        if dim.is_constant:
            if dim.constant != extent:
                reason = f"dimension {number} is {extent}, not {dim}"
                raise InputError(mismatch(name, shape, actual, reason))
            continue
        implied = solve(dim, extent)
        if implied is None:
            continue
        size, value = implied
        if value is None or sizes.setdefault(size, value) != value:
            reason = f"dimension {number} is {extent}, which is no {dim} of the others"
            raise InputError(mismatch(name, shape, actual, reason))
    return sizes


def solve(dim: Index, extent: int) -> tuple[str, int | None] | None:
    """(name, value) where dim = k * name + c (value None: no integer fits), None for other dims."""
    terms = [(m, k) for m, k in dim.terms if m]
    if len(terms) != 1 or len(terms[0][0]) != 1 or not isinstance(terms[0][0][0], str):
        return None
    name, factor = terms[0][0][0], terms[0][1]
    value, rest = divmod(extent - dim.constant, factor)
    return name, None if rest else value


def mismatch(name: str, shape: Shape, actual: tuple[int, ...], reason: str) -> str:
    return f"'{name}' wants shape {text(shape)}, got {tuple(actual)}: {reason}"
