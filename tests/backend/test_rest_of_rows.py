"""What is left of a row beyond full vectors: not a byte beside it is written."""

from __future__ import annotations

import numpy as np
import pytest

import luminal
from luminal import ops

BEYOND = 64  # bytes behind the row


@pytest.mark.parametrize("length", [1, 17, 18, 33, 65])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "u8", "i16", "i32", "f32", "bool"])
def test_nothing_beside_a_row_is_written(dtype: str, length: int) -> None:
    cx = luminal.Graph()
    x = cx.tensor((1, length), name="x")
    scaled = ops.sum(x, 1, keepdim=True) * 0.0 + x * 1.5
    y = (scaled > 0.0 if dtype == "bool" else scaled.cast(dtype)).output("y")
    made = cx.compile(threads=1, cache=False, database=False)
    data = np.arange(1, length + 1, dtype=np.float32)
    raw = np.zeros(4096, np.uint8)
    start = -raw.ctypes.data % 64
    nbytes = length * y.dtype.bytes
    raw[start + nbytes : start + nbytes + BEYOND] = 0xA5
    given = np.zeros(length + 64, np.float32)
    given[:length] = data
    made.launch([given.ctypes.data], [raw.ctypes.data + start], {})
    assert np.all(raw[start + nbytes : start + nbytes + BEYOND] == 0xA5)
    got = raw[start : start + nbytes].view(y.dtype.numpy)
    want = data > 0 if dtype == "bool" else (data * 1.5).astype(y.dtype.numpy)
    assert np.array_equal(got.astype(np.float32), want.astype(np.float32))
