"""The cases, and running them one by one in a process of their own: a crash or an endless
compilation costs one row."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from ..children import safe_path
from ..errors import InputError
from ..progress import Line
from .case import Case
from .compare import Cell, Options, Row, failed, measure
from .model_cases import all_models
from .ops_cases import all_ops

TIMEOUT = 120.0  # seconds for one side of a case to load, and for timing all of them
START = 60.0  # seconds for a worker to be there, with the case's inputs and what they must give
STEP = 0.5  # seconds from one sign of life to the next
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
        for number, case in enumerate(chosen):
            with Line(len(chosen)) as line:
                row = worker.measure(case, timeout, partial(line.tell, number))
            yield row
    finally:
        worker.stop()


class _Worker:
    """A process that measures one case after the other; replaced when it dies."""

    def __init__(self, options: Options, find: Find) -> None:
        self._options, self._find = options, find
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def measure(self, case: Case, timeout: float, tell: Callable[[str], None]) -> Row:
        """A row, without the peers that crash or take longer to load than the timeout. tell: is
        called again and again with what is going on."""
        options, lost = self._options, dict[str, Cell]()
        while True:
            row, told = self._attempt(case, options, timeout, tell)
            if told not in options.peers:
                return replace(row, peers=row.peers | lost)
            lost[told] = row.ours
            options = replace(options, peers=tuple(p for p in options.peers if p != told))

    def _attempt(
        self, case: Case, options: Options, timeout: float, tell: Callable[[str], None]
    ) -> tuple[Row, str]:
        """(the row, ""), or (a row with the fault, the side that was about to be measured)."""
        pipe, told = self._started(), "starting"
        pipe.send((case.name, options))
        try:
            end = time.monotonic() + max(timeout, START)
            while time.monotonic() < end:
                tell(f"{case.name}: {told}")
                if not pipe.poll(STEP):
                    continue
                got: Row | str = pipe.recv()
                if isinstance(got, Row):
                    return got, ""
                told, end = got, time.monotonic() + timeout
            fault = f"no result within {timeout:.0f} s (last begun: {told})"
        except (EOFError, OSError):
            assert self._process is not None
            self._process.join(GRACE)
            fault = f"the process ended with code {self._process.exitcode} (last begun: {told})"
        self.stop()
        return failed(case, options.peers, fault), told

    def _started(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._find))
            with safe_path():
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


def _serve(pipe: Connection, find: Find) -> None:
    while True:
        try:
            name, options = pipe.recv()
            pipe.send(measure(find(name), options, pipe.send))
        except (EOFError, BrokenPipeError):  # nobody waits any more
            return
