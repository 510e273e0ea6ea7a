"""Ctrl-C while a command begins."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Inside Ctrl-C ends the process at once, as any other program. While several threads import
    modules an exception in its place may be lost, and may leave a lock that all wait for."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
