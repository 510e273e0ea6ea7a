"""The child process that builds and times candidates, one kernel after the other."""

from __future__ import annotations

import importlib
from typing import Any

from .. import cores
from ..backend.contract import Accelerator
from ..children import serve
from ..kernel.kernel import Kernel
from ..kernel.schedule import Schedule
from ..kernel.target import Target
from .trial import Bench, Result


class Server:
    """Answers messages; methods without an underscore are their names."""

    def __init__(self) -> None:
        self._bench: Bench | None = None

    def answer(self, message: tuple[Any, ...]) -> Any:
        """The answer to one message."""
        name, *args = message
        return getattr(self, f"do_{name}")(*args)

    def do_open(
        self, kernel: Kernel, target: Target, backend: str | Accelerator, seed: int
    ) -> None:
        """The kernel that the following messages are about."""
        self._bench = None  # frees its arrays first
        self._bench = Bench(kernel, target, _backend(backend), seed)

    def do_begin(self, batch: list[tuple[int, Kernel, Schedule]]) -> None:
        """Candidates to build beside each other."""
        assert self._bench is not None
        for candidate in batch:
            self._bench.begin(*candidate)

    def do_attempt(self, number: int, kernel: Kernel, schedule: Schedule, limit: float) -> Result:
        assert self._bench is not None
        return self._bench.attempt(number, kernel, schedule, limit)

    def do_race(self, numbers: list[int], rounds: int, seconds: float) -> dict[int, list[float]]:
        assert self._bench is not None
        return self._bench.race(numbers, rounds, seconds)

    def do_rates(self, backend: str | Accelerator, threads: int) -> dict[str, float]:
        """What the machine can do at most."""
        return dict(_backend(backend).rates(threads))


def _backend(named: str | Accelerator) -> Any:
    """A module by its name; a device as it is."""
    return importlib.import_module(named) if isinstance(named, str) else named


def main() -> None:
    """Serve until the other side is gone."""
    cores.share_with_parent()
    serve(Server().answer)
