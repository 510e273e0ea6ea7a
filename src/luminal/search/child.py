"""The child process that builds and times candidates, one kernel after the other.

Messages are tuples (name, arguments...); each has one answer: ("done", result) or ("failed", text).
They are pickles: only pipes between a process and its own child carry them.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import Any

from .. import cores
from ..kernel.kernel import Kernel
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from .trial import Bench, Result


class Server:
    """Answers messages; methods without an underscore are their names."""

    def __init__(self) -> None:
        self._bench: Bench | None = None

    def answer(self, message: tuple[Any, ...]) -> tuple[str, Any]:
        """The answer to one message. A failure is an answer too."""
        name, *args = message
        try:
            return "done", getattr(self, f"do_{name}")(*args)
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"

    def do_open(self, kernel: Kernel, target: Target, backend: str, seed: int) -> None:
        """The kernel that the following messages are about."""
        self._bench = None  # frees its arrays first
        self._bench = Bench(kernel, target, _backend(backend), seed)

    def do_attempt(self, number: int, kernel: Kernel, schedule: Schedule, limit: float) -> Result:
        assert self._bench is not None
        return self._bench.attempt(number, kernel, schedule, limit)

    def do_race(self, numbers: list[int], rounds: int, seconds: float) -> dict[int, list[float]]:
        assert self._bench is not None
        return self._bench.race(numbers, rounds, seconds)

    def do_rates(self, backend: str, threads: int) -> dict[str, float]:
        """What the machine can do at most."""
        return dict(_backend(backend).rates(threads))


def _backend(name: str) -> Any:
    return importlib.import_module(name)


def main() -> None:
    """Serve until the other side is gone."""
    cores.share_with_parent()
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed must not get among the messages
    server = Server()
    while True:
        try:
            message = pickle.load(incoming)
        except EOFError:
            sys.exit(0)
        pickle.dump(server.answer(message), outgoing)
        outgoing.flush()
