"""The cases, and running them one by one in a process of their own: a crash or an endless
compilation costs one row."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from ..errors import InputError
from .case import Case
from .compare import Options, Row, failed, measure
from .model_cases import all_models
from .ops_cases import all_ops

TIMEOUT = 600.0  # seconds for a case, all peers together
GRACE = 5.0  # seconds for a worker to end by itself

Find = Callable[[str], Case]


def cases() -> list[Case]:
    """The whole suite."""
    return [*all_ops(), *all_models()]


def find(name: str) -> Case:
    """A case by its name."""
    return next(case for case in cases() if case.name == name)


def select(kind: str = "all", only: str = "", short: bool = False) -> list[Case]:
    """Cases of a kind ("ops", "models", "all") with a word in their name. Raises InputError where
    there is none."""
    chosen = [
        case
        for case in cases()
        if kind in ("all", case.kind) and only in case.name and (case.short or not short)
    ]
    if not chosen:
        raise InputError(f"no case of kind {kind!r} with {only!r} in its name")
    return chosen


def run(
    chosen: Sequence[Case], options: Options, timeout: float = TIMEOUT, find: Find = find
) -> Iterator[Row]:
    """A row for each case, as they come. `find` must be importable: the other process calls it."""
    worker = _Worker(options, find)
    try:
        for case in chosen:
            yield worker.measure(case, timeout)
    finally:
        worker.stop()


class _Worker:
    """A process that measures one case after the other; replaced when it dies."""

    def __init__(self, options: Options, find: Find) -> None:
        self._options, self._find = options, find
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def measure(self, case: Case, timeout: float) -> Row:
        pipe = self._started()
        pipe.send(case.name)
        end, told = time.monotonic() + timeout, "starting"
        try:
            while pipe.poll(max(0.0, end - time.monotonic())):
                got: Row | str = pipe.recv()
                if isinstance(got, Row):
                    return got
                told = got
            fault = f"no result within {timeout:.0f} s (last begun: {told})"
        except (EOFError, OSError):
            assert self._process is not None
            self._process.join(GRACE)
            fault = f"the process ended with code {self._process.exitcode} (last begun: {told})"
        self.stop()
        return failed(case, self._options.peers, fault)

    def _started(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._options, self._find))
            self._process.start()
            theirs.close()
        return self._pipe

    def stop(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._pipe.close()  # a worker that waits for its next case ends by itself
            self._process.join(GRACE)
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def _serve(pipe: Connection, options: Options, find: Find) -> None:
    while True:
        try:
            name = pipe.recv()
            pipe.send(measure(find(name), options, pipe.send))
        except (EOFError, BrokenPipeError):  # nobody waits any more
            return
