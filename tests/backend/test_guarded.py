"""Kernels read nothing but what they are given: arrays beside pages that nobody may read."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, mmap, os, sys
import numpy as np
import luminal
from luminal import ops

def guarded(array, before):
    libc, page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
    room = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in (start, start + page + room):
        assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) == 0
    at = start + page + (0 if before else room - array.nbytes)
    raw = (ctypes.c_char * array.nbytes).from_address(at)
    found = np.frombuffer(raw, array.dtype).reshape(array.shape)
    found[...] = array
    return found, memory

def pairs(x):
    return x[:, :, :, ::2] + x[:, :, :, 1::2]

SHAPE = (1, 3, 56, 56)
FUNCTIONS = {
    "second": lambda x: ops.pad(x, (0, 0, 1, 1))[:, :, :, ::2] * 2.0,
    "pairs": lambda x: pairs(ops.pad(x, (0, 0, 1, 1))),
    "pool": lambda x: ops.max_pool2d(x, 3, stride=2, padding=1),
    "turned": lambda x: ops.pad(x, (1, 1, 1, 1)).transpose(2, 3) * 2.0,
}
x = np.random.default_rng(0).standard_normal(SHAPE).astype("f")
for before in (True, False):
    cx = luminal.Graph()
    y = FUNCTIONS[sys.argv[1]](cx.tensor(SHAPE)).output()
    rt = cx.compile(threads=1, cache=False)
    given, memory = guarded(x, before)
    np.testing.assert_array_equal(rt(given), cx.compile("reference", cache=False)(x))
print("right")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for pages nobody may read")
@pytest.mark.parametrize("function", ["second", "pairs", "pool", "turned"])
def test_nothing_is_read_in_front_of_an_array_or_behind_it(function: str) -> None:
    """LLVM made one instruction of a load under a mask and a permutation under the same one, which
    AVX-512 reads whole."""
    run = subprocess.run([sys.executable, "-c", PROGRAM, function], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "right\n"), run.stderr[-500:]


WIDENED = """
import numpy as np
import luminal
from luminal import ops

for count in (3, 4, 11, 12, 13, 44):
    for dtype in ("i32", "u32"):
        cx = luminal.Graph()
        x = cx.tensor((count,), dtype)
        ops.prod(x.cast("i64"), 0).output()
        array = np.full(count, 2, "u4" if dtype == "u32" else "i4")
        assert cx.compile(threads=1, cache=False)(array) == 2**count
print("right")
"""


def test_products_of_widened_integers_are_selected() -> None:
    """LLVM ended the process where what is loaded under a mask came out of a register."""
    command = [sys.executable, "-c", WIDENED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "right\n", done.stderr[-1000:]
