"""What LLVM knows of this processor, and whether its matrix registers (Intel AMX) compute what they
should here. A child is asked once for each kind of processor: LLVM would stay in this process,
which may have nothing to compile, and what fails there fails nowhere else.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from ...children import calling_main
from ...graph.dtype import DType
from ...sources import llvm_build
from ...store import Store
from . import tiles
from .llvm import llvm

ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18  # of x86-64; ARCH_REQ_XCOMP_PERM
SECONDS = 60.0
KIND_OF_CPU = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
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


def processor() -> tuple[str, str, bool]:
    """LLVM's triple and features, and whether kernels of this process may use matrix registers."""
    try:
        lines = set(Path("/proc/cpuinfo").read_text().splitlines())
        same = sorted(line for line in lines if line.startswith(KIND_OF_CPU))
        key = hashlib.sha256("\n".join([f"tiles {llvm_build()}", *same]).encode()).hexdigest()
        triple, features, right = json.loads(Store.of_machine().remembered(key, asked_elsewhere))
    except (OSError, TypeError, ValueError, subprocess.SubprocessError):  # not to be asked today
        triple, features, right = *asked(), False
    return triple, features, right and granted()


def asked() -> tuple[str, str]:
    """Here and now."""
    return llvm().get_process_triple(), llvm().get_host_cpu_features().flatten()


def asked_elsewhere() -> bytes:
    """As JSON. Raises OSError, SubprocessError, ValueError."""
    if getattr(sys, "frozen", False):
        raise OSError("the executable is the program itself: it has no Python to start")
    child = subprocess.run(calling_main(__name__), capture_output=True, timeout=SECONDS)
    first, _, second = child.stdout.partition(b"\n")  # without the second where it crashed
    return json.dumps([*json.loads(first), second == RIGHT]).encode()


def granted() -> bool:
    """Linux saves their contents for this process from now on, threads and forks included."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST, TILE_DATA) == 0


def main() -> None:
    """The child: what LLVM says, then all products against NumPy."""
    found = asked()
    print(json.dumps(found), flush=True)
    has = "+amx-tile" in found[1] and granted()
    if has and all(_multiplies(*found, *row) for row in tiles.NAMES.items()):
        sys.stdout.buffer.write(RIGHT)


def _multiplies(
    triple: str, features: str, dtypes: tuple[DType, DType, DType], names: tuple[str, str]
) -> bool:
    from . import elf, jit
    from .target import Machine

    text = TEXT.format(configured=tiles.configured(), name=names[0])
    built = jit.compiled(text, Machine(triple, "generic", features, frozenset()))
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
