"""Work in a thread of its own, for one request at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from starlette.types import Receive

from .asking import unless_gone
from .faults import Fault

MOST_WAITING = 8  # requests
T = TypeVar("T")
Check: TypeAlias = Callable[[], None]


class Stopped(Exception):
    """Nobody waits for the rest."""


class Turns:
    """what: what is worked on, in messages. waiting: requests for it."""

    def __init__(self, what: str) -> None:
        self._what, self.waiting = what, 0
        self._worker = ThreadPoolExecutor(1, f"luminal-{what}")

    def close(self) -> None:
        """What has not begun is not begun any more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def run(self, receive: Receive, work: Callable[[Check], T]) -> T:
        """What the work returns. It calls what it is given now and then, which ends it where the
        client has left. Raises Fault where too many wait, Gone."""
        if self.waiting >= MOST_WAITING:
            raise Fault(429, f"{MOST_WAITING} {self._what} wait already", "queue_full")
        stop = threading.Event()

        def check() -> None:
            if stop.is_set():
                raise Stopped

        def begun() -> T:
            check()
            return work(check)

        async def ended() -> T:
            return await asyncio.get_running_loop().run_in_executor(self._worker, begun)

        self.waiting += 1
        try:
            found: T = await unless_gone(receive, ended())
            return found
        finally:
            stop.set()
            self.waiting -= 1
