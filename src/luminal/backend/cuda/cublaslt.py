"""cuBLASLt, where it is found at run time: one more way to multiply matrices (`lowering/library.py`
says which kernels it computes, and a search whether it is the fastest).

Such a kernel has no text: the arithmetic of its program is done on the host when it is launched.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DeviceError
from ...graph.dtype import DType
from ...kernel.program import Instruction, Program
from ...lowering.library import GEMM
from .. import text

MARK = "// cuBLASLt "
NAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "cublasLt64_13.dll",
         "cublasLt64_12.dll")  # fmt: skip
FOLDERS = ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu13/bin")  # of wheels
# cudaDataType_t, cublasComputeType_t and cublasLt*Attributes_t, by NVIDIA's documentation
KINDS = {"f32": 0, "f16": 2, "bf16": 14}
COMPUTE_F32, TURN_FIRST, TURN_SECOND, BATCH, STRIDE = 68, 3, 4, 5, 6
WORKSPACE = 32 << 20  # bytes: what NVIDIA recommends for sm_90


def call_of(program: Program) -> Instruction | None:
    """Its call of the library; None for a program that is a kernel of its own."""
    _, loop = text.shared_out(program)
    last = loop.body[-1] if loop.body else None
    return last if isinstance(last, Instruction) and last.op == GEMM else None


@dataclass(frozen=True)
class Product:
    """c (m, n) = a (m, k) b (k, n), in rows `leading` elements apart; turned: a, b lie transposed.
    places: elements from the start of each buffer; strides: from one of `count` to the next."""

    m: int
    n: int
    k: int
    leading: tuple[int, ...]
    turned: tuple[bool, ...]
    places: tuple[int, ...]
    strides: tuple[int, ...]
    count: int


def products(program: Program, sizes: Sequence[int]) -> list[Product]:
    """Those of a launch: one, of a batch that is evenly apart, or many."""
    before, loop = text.shared_out(program)
    known = text.computed(before, text.sizes_of(program, sizes))
    count = int(text.value(loop.count, known))
    if not count:
        return []
    inside = [s for s in loop.body if isinstance(s, Instruction)]
    known = text.computed(inside, known | {loop.var.name: np.arange(count)})
    call = inside[-1]
    rows = np.stack([np.broadcast_to(text.value(a, known), (count,)) for a in call.args])
    steps = np.diff(rows, axis=1)
    if count > 1 and (steps == steps[:, :1]).all() and not steps[3:].any():
        return [_product(rows[:, 0], call, steps[:3, 0], count)]
    return [_product(row, call, (0, 0, 0), 1) for row in rows.T]


def _product(row: Any, call: Instruction, strides: Any, count: int) -> Product:
    (*places, m, n, k), leading = map(int, row[:6]), tuple(map(int, row[6:]))
    turned, apart = tuple(map(bool, call.attrs)), tuple(map(int, strides))
    return Product(m, n, k, leading, turned, tuple(places), apart, count)


class CublasLt:
    """A handle, and calls on a stream."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_int
        status = function(*arguments)
        if status:
            raise DeviceError(f"{name} failed: status {status}")

    def multiply(
        self, p: Product, kinds: Sequence[DType], addresses: Sequence[int], workspace: int,
        stream: int,
    ) -> None:  # fmt: skip
        """kinds, addresses: of the buffers a, b and c. Matrices of the library are columns: it is
        given the transposed product, c' = b' a'. Raises DeviceError."""
        made = ctypes.c_void_p()
        self._call("cublasLtMatmulDescCreate", ctypes.byref(made), COMPUTE_F32, KINDS["f32"])
        layouts: list[ctypes.c_void_p] = []
        try:
            for attribute, turn in ((TURN_FIRST, p.turned[1]), (TURN_SECOND, p.turned[0])):
                wanted = ctypes.c_int32(turn)
                self._call("cublasLtMatmulDescSetAttribute", made, attribute,
                           ctypes.byref(wanted), ctypes.c_size_t(4))  # fmt: skip
            shapes = ((p.k, p.m) if not p.turned[0] else (p.m, p.k),
                      (p.n, p.k) if not p.turned[1] else (p.k, p.n), (p.n, p.m))  # fmt: skip
            for number, shape in enumerate(shapes):
                layouts.append(self._layout(p, number, shape, KINDS[kinds[number].name]))
            a, b, c = (
                ctypes.c_void_p(address + place * kind.bytes)
                for address, place, kind in zip(addresses, p.places, kinds, strict=True)
            )
            one, none = ctypes.c_float(1), ctypes.c_float(0)
            self._call(
                "cublasLtMatmul", self._handle, made, ctypes.byref(one), b, layouts[1], a,
                layouts[0], ctypes.byref(none), c, layouts[2], c, layouts[2], None,
                ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(stream),
            )  # fmt: skip
        finally:
            for layout in layouts:
                self._call("cublasLtMatrixLayoutDestroy", layout)
            self._call("cublasLtMatmulDescDestroy", made)

    def _layout(
        self, p: Product, number: int, shape: tuple[int, int], kind: int
    ) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        rows, columns = (ctypes.c_uint64(n) for n in shape)
        self._call("cublasLtMatrixLayoutCreate", ctypes.byref(made), kind, rows, columns,
                   ctypes.c_int64(p.leading[number]))  # fmt: skip
        batch, stride = ctypes.c_int32(p.count), ctypes.c_int64(p.strides[number])
        for attribute, value in ((BATCH, batch), (STRIDE, stride)):
            self._call("cublasLtMatrixLayoutSetAttribute", made, attribute, ctypes.byref(value),
                       ctypes.c_size_t(ctypes.sizeof(value)))  # fmt: skip
        return made


@functools.cache
def library() -> ctypes.CDLL | None:
    """Where the loader or a wheel has it."""
    places = [Path(entry, folder, name)
              for entry in sys.path for folder in FOLDERS for name in NAMES]  # fmt: skip
    for name in (*NAMES, *(str(place) for place in places if place.exists())):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def opened() -> CublasLt:
    """Raises DeviceError."""
    found = library()
    if found is None:
        raise DeviceError("this program calls cuBLASLt, which is not found here")
    return CublasLt(found)
