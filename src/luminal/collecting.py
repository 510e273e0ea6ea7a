"""Garbage in cycles is collected after work that makes many objects and hardly any cycles: to look
through all of them again and again takes a tenth of a compilation."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OWN = 1_000  # more than Python freezes of its own at its start (375 in 3.12), less than any user
GROWTH = 1_000_000  # blocks, some 80 MB: for less no collection is worth its time
_settled = 0  # blocks of memory after the last collection made here


@contextmanager
def collected_later() -> Iterator[None]:
    """No collection in this block, unless another thread ends such a block meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_freeze_count() < OWN:  # what stays is old at once, without a look through it
                gc.freeze()
                gc.unfreeze()
                _collect_what_doubled()
            gc.enable()


def _collect_what_doubled() -> None:
    """The interpreter counts none of what is made old at once, so it would never look for it."""
    global _settled
    blocks = sys.getallocatedblocks()
    if _settled and blocks <= max(2 * _settled, _settled + GROWTH):
        return
    if _settled:
        gc.collect()
    _settled = sys.getallocatedblocks()
