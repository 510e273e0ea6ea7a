"""A BLAS that is present: the OpenBLAS that comes with NumPy, as one more way to multiply matrices.

It is loaded from a copy of its file, so that it has one thread a call (our workers share out the
rows) while NumPy's own keeps the threads that it has.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import tempfile

from ...errors import DeviceError
from ..openblas import found

SYMBOL = "luminal_sgemm"  # what generated code calls
CBLAS = "scipy_cblas_sgemm64_"  # sizes are 64-bit integers
ROW_MAJOR, PLAIN, TURNED = 101, 111, 112  # CBLAS_LAYOUT, CBLAS_TRANSPOSE (netlib's cblas.h)
DECLARATION = (
    f"declare void @{SYMBOL}"
    "(i32, i32, i32, i64, i64, i64, float, ptr, i64, ptr, i64, float, ptr, i64)"
)


@functools.cache
def address() -> int:
    """Of the function that SYMBOL stands for. Raises DeviceError."""
    path = found()
    if path is None:
        raise DeviceError("this program calls the OpenBLAS of NumPy's wheels, which is not here")
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when the library is loaded
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = ctypes.CDLL(shutil.copy(path, folder))
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]
        if before is not None:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    address = ctypes.cast(getattr(library, CBLAS), ctypes.c_void_p).value
    assert address is not None
    return address
