"""The child process that builds and times candidates, one kernel after the other."""

from __future__ import annotations

import importlib
from typing import Any

from .. import cores
from ..backend.contract import Accelerator
from ..children import serve
from .trial import Bench


class Server:
    """Answers messages: what the bench of a kernel is asked, by name, and two of its own."""

    def __init__(self) -> None:
        self._bench: Bench | None = None

    def answer(self, message: tuple[Any, ...]) -> Any:
        """The answer to one message."""
        name, *args = message
        if name == "rates":  # what the machine can do at most
            backend, threads = args
            return dict(_backend(backend).rates(threads))
        if name == "open":  # the kernel that the following messages are about
            self._bench = None  # frees its arrays first
            kernel, target, backend, seed = args
            self._bench = Bench(kernel, target, _backend(backend), seed)
            return None
        return getattr(self._bench, name)(*args)


def _backend(named: str | Accelerator) -> Any:
    """A module by its name; a device as it is."""
    return importlib.import_module(named) if isinstance(named, str) else named


def main() -> None:
    """Serve until the other side is gone."""
    cores.share_with_parent()
    serve(Server().answer)
