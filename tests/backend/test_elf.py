"""Our loader of object files against LLVM's, and what it leaves to that one."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys

import numpy as np
import pytest

from luminal.backend.cpu import elf, jit
from luminal.backend.cpu.target import host, host_machine

TEXT = """
declare double @cos(double)
define double @first(double %x) {
  %a = fmul double %x, 0x400921FB54442D18
  %b = call double @cos(double %a)
  ret double %b
}
define double @second(double %x) {
  %a = call double @first(double %x)
  %b = fadd double %a, 0x3FF3C0CA428C59FB
  ret double %b
}
"""
pytestmark = pytest.mark.skipif(
    "x86_64" not in host_machine().triple or "linux" not in host_machine().triple,
    reason="LLVM's loader is taken elsewhere",
)


def called(address: int | None, x: float) -> float:
    assert address
    return float(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(x))


def test_functions_constants_and_calls_outside() -> None:
    (built,) = jit.build([TEXT], host())
    theirs = built._load_by_llvm()
    for name, more in (("first", 0.0), ("second", float.fromhex("0x1.3c0ca428c59fbp+0"))):
        for x in (0.0, 0.3, -7.5):
            found = called(built.address(name), x)
            assert found == called(theirs(name), x) == np.cos(x * np.pi) + more
    assert set(elf.load(built.code, jit._outside)[0]) == {"first", "second"}


def test_what_is_not_known_is_refused() -> None:
    (built,) = jit.build([TEXT], host())
    with pytest.raises(elf.Unknown):
        elf.load(b"MZ" + bytes(200), jit._outside)
    with pytest.raises(elf.Unknown, match="no function"):
        elf.load(built.code.replace(b"\0cos\0", b"\0qqq\0"), jit._outside)
    odd = built.code
    for relocation in range(len(odd) - 24):  # one of a type that is not known
        offset, kind, symbol, addend = struct.unpack_from("<QIIq", odd, relocation)
        if kind == 4 and addend == -4 and symbol < 20 and offset < 100:
            odd = odd[: relocation + 8] + b"\x01" + odd[relocation + 9 :]
    with pytest.raises(elf.Unknown, match="relocation of type 1"):
        elf.load(odd, jit._outside)


def test_a_data_section_is_left_to_llvm() -> None:
    text = "@n = global i64 5\ndefine i64 @next() { %a = load i64, ptr @n\n ret i64 %a }"
    (built,) = jit.build([text], host())
    with pytest.raises(elf.Unknown, match="written"):
        elf.load(built.code, jit._outside)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(built.address("next"))() == 5


def test_a_second_start_needs_no_compiler(tmp_path) -> None:
    """A kept program runs in a process that never loads LLVM."""
    script = f"""
import sys
import numpy as np
import luminal
cx = luminal.Graph()
x = cx.tensor((8, 40))
y = luminal.ops.softmax(x, -1).output()
rt = cx.compile(cache={str(tmp_path)!r}, threads=2)
rt[x] = np.eye(8, 40, dtype=np.float32)
rt.run()
assert np.allclose(rt[y].sum(-1), 1)
print("llvmlite.binding" in sys.modules)
"""
    start = [sys.executable, "-c", script]
    said = [subprocess.run(start, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [each.stdout.split() for each in said] == [["True"], ["False"]]
