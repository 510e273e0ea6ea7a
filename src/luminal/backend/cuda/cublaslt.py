"""cuBLASLt, where it is found at run time: one more way to multiply matrices (`lowering/library.py`
says which kernels it computes, and a search whether it is the fastest).

The text of such a kernel is the arithmetic on its run-time sizes, as JSON behind a comment; it is
done on the host when the kernel is launched.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DeviceError
from ...graph.dtype import dtype, i64
from ...graph.scalars import compute
from ...kernel.program import Instruction, Parallel, Program, Statement, Val
from ...lowering.library import GEMM

MARK = b"// cuBLASLt "
NAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "cublasLt64_13.dll",
         "cublasLt64_12.dll")  # fmt: skip
FOLDERS = ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu13/bin")  # of wheels
# cudaDataType_t, cublasComputeType_t and cublasLt*Attributes_t, by NVIDIA's documentation
KINDS = {"f32": 0, "f16": 2, "bf16": 14}
COMPUTE_F32, TURN_FIRST, TURN_SECOND, BATCH, STRIDE = 68, 3, 4, 5, 6
WORKSPACE = 32 << 20  # bytes: what NVIDIA recommends for sm_90


def text_of(program: Program) -> bytes | None:
    """What a call of the library is kept as; None for a program that is a kernel of its own."""
    (units,) = [s for s in program.body if isinstance(s, Parallel)]
    before = [s for s in program.body if s is not units]
    inside = [s for s in _instructions([*before, *units.body])]
    if not inside or inside[-1].op != GEMM:
        return None
    call = inside.pop()
    memories = program.memories
    kinds = [memories[a.memory].dtype.name for a in call.args[:3]]
    order = [b.name for b in program.buffers]
    found = {
        "unit": units.var.name, "count": _told(units.count), "sizes": program.sizes,
        "steps": [[s.out.name, s.op, s.out.dtype.name if s.out.dtype else "",
                   [_told(a) for a in s.args]] for s in inside if s.out],
        "places": [order.index(a.memory) for a in call.args[:3]],
        "numbers": [_told(a) for a in call.args], "turned": call.attrs, "kinds": kinds,
    }  # fmt: skip
    return MARK + json.dumps(found).encode()


def _instructions(body: Sequence[Statement]) -> list[Instruction]:
    return [s for s in body if isinstance(s, Instruction)]


def _told(val: Val) -> list[str]:
    """A number, or what is known by a name."""
    if val.literal:
        assert val.dtype is not None
        return [val.name, val.dtype.name]
    return ["0", i64.name] if val.name.startswith("%p_") else [val.name]


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


class Call:
    """A kernel that the library computes."""

    def __init__(self, code: bytes) -> None:
        made = json.loads(code.removeprefix(MARK))
        self._made: Mapping[str, Any] = made
        self.buffers: Sequence[int] = made["places"]
        self.kinds: Sequence[str] = made["kinds"]

    def products(self, sizes: Sequence[int]) -> list[Product]:
        """Those of a launch: one, of a batch that is evenly apart, or many."""
        made = self._made
        known: dict[str, Any] = {
            f"%d_{n}": i64.numpy.type(s) for n, s in zip(made["sizes"], sizes, strict=True)
        }

        def value(told: Sequence[str]) -> Any:
            return known[told[0]] if len(told) == 1 else dtype(told[1]).numpy.type(int(told[0]))

        def work(steps: Sequence[Any]) -> None:
            for out, op, kind, args in steps:
                if any(len(a) == 1 and a[0] not in known for a in args):
                    continue  # of the unit
                known[out] = (
                    value(args[0]) + value(args[1]).astype(np.int64) if op == "offset"
                    else compute(op, dtype(kind), *map(value, args))
                )  # fmt: skip

        work(made["steps"])
        count = int(value(made["count"]))
        if not count:
            return []
        known[made["unit"]] = np.arange(count)
        work(made["steps"])
        rows = np.stack([np.broadcast_to(value(told), (count,)) for told in made["numbers"]])
        turned = tuple(map(bool, made["turned"]))
        steps = np.diff(rows, axis=1)
        if count == 1 or ((steps == steps[:, :1]).all() and not steps[3:].any()):
            strides = steps[:3, 0] if count > 1 else np.zeros(3, np.int64)
            return [_product(rows[:, 0], turned, strides, count)]
        return [_product(rows[:, unit], turned, np.zeros(3, np.int64), 1) for unit in range(count)]


def _product(row: Any, turned: tuple[bool, ...], strides: Any, count: int) -> Product:
    places, (m, n, k), leading = row[:3], row[3:6], row[6:]
    return Product(int(m), int(n), int(k), tuple(map(int, leading)), turned,
                   tuple(map(int, places)), tuple(map(int, strides)), count)  # fmt: skip


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
        self, product: Product, kinds: Sequence[str], addresses: Sequence[int], workspace: int,
        stream: int,
    ) -> None:  # fmt: skip
        """addresses: of the buffers a, b and c. Matrices of the library are columns: it is given
        the transposed product, c' = b' a'. Raises DeviceError."""
        p, made = product, ctypes.c_void_p()
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
                layouts.append(self._layout(p, number, shape, KINDS[kinds[number]]))
            a, b, c = (
                ctypes.c_void_p(address + place * dtype(kind).bytes)
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
