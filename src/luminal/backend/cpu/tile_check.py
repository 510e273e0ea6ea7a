"""Whether this process may use matrix registers (Intel AMX), and whether they compute what they
should here. Linux keeps their contents only for a process that has asked; a child tries all
products once for each kind of machine, so that what fails there fails nowhere else."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import sys

import numpy as np

from ...children import calling_main
from ...graph.dtype import DType
from ...sources import llvm_build
from ...store import Store
from . import tiles

ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # of x86-64; ARCH_REQ_XCOMP_PERM
SECONDS = 60.0
RIGHT = b"right"
TEXT = """
@tiles = private unnamed_addr constant {configured}
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{name}(i8, i8, i8)
define void @product(ptr %c, ptr %a, ptr %b) {{
  call void @llvm.x86.ldtilecfg(ptr @tiles)
  call void @llvm.x86.tileloadd64(i8 0, ptr %c, i64 64)
  call void @llvm.x86.tileloadd64(i8 1, ptr %a, i64 64)
  call void @llvm.x86.tileloadd64(i8 7, ptr %b, i64 64)
  call void @llvm.x86.{name}(i8 0, i8 1, i8 7)
  call void @llvm.x86.tilestored64(i8 0, ptr %c, i64 64)
  call void @llvm.x86.tilerelease()
  ret void
}}
"""


def usable(machine: str) -> bool:
    """Whether kernels of this process may use them. machine: what names this kind of it."""
    key = hashlib.sha256(f"tiles {llvm_build()} {machine}".encode()).hexdigest()
    if not _granted() or getattr(sys, "frozen", False):  # the executable is the program itself
        return False
    try:
        return Store.of_machine().remembered(key, _tried) == RIGHT
    except (OSError, subprocess.TimeoutExpired):  # it could not be asked today
        return False


def _granted() -> bool:
    """Linux saves their contents for this process from now on, threads and forks included."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST, TILE_DATA) == 0


def _tried() -> bytes:
    """What a child says: nothing, where it crashed."""
    return subprocess.run(calling_main(__name__), capture_output=True, timeout=SECONDS).stdout


def main() -> None:
    """The child: all products, against NumPy."""
    if _granted() and all(_multiplies(*row) for row in tiles.NAMES.items()):
        sys.stdout.buffer.write(RIGHT)


def _multiplies(dtypes: tuple[DType, DType, DType], names: tuple[str, str]) -> bool:
    from . import elf, jit
    from .target import named

    text = TEXT.format(configured=tiles.configured(), name=names[0])
    (built,) = jit.build([text], named("amx"))
    functions, memory = elf.load(built.code, int)  # it calls nothing
    product = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(functions["product"])
    first, second, total = dtypes
    collapse = tiles.ROW // first.bytes
    random = np.random.default_rng(0)
    a, b, c = (
        random.integers(0 if dtype.name == "u8" else -100, 100, shape).astype(dtype.numpy)
        for dtype, shape in ((first, (16, collapse)), (second, (16, collapse)), (total, (16, 16)))
    )
    want = c + a.astype(total.numpy) @ b.astype(total.numpy).T
    rows = np.ascontiguousarray(b.reshape(16, 16, -1).transpose(1, 0, 2))
    product(*(array.ctypes.data for array in (c, a, rows)))
    del memory
    return bool((c == want).all())
