"""The OpenBLAS that comes with NumPy: where it is, and how many threads it takes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


@functools.cache
def found() -> Path | None:
    """Its file, where NumPy has brought one."""
    folder = Path(np.__file__).resolve().parents[1] / "numpy.libs"
    return next(iter(sorted(folder.glob("libscipy_openblas64_*.so"))), None)


@contextmanager
def one_thread() -> Iterator[None]:
    """NumPy's products on one thread: threads that wait for each other by spinning lose whole time
    slices where other work shares the cores."""
    path = found()
    if path is None:
        yield
        return
    library = ctypes.CDLL(str(path))  # the one that NumPy has loaded
    before = library.scipy_openblas_get_num_threads64_()
    library.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        library.scipy_openblas_set_num_threads64_(before)
