"""Garbage in cycles is collected after work that makes many objects and hardly any cycles: to look
through all of them again and again takes a tenth of a compilation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """No collection in this block, unless another thread ends such a block meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # what stays is old at once, without a look through it
                gc.freeze()
                gc.unfreeze()
            gc.enable()
