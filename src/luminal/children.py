"""How this package starts Python processes of its own, and talks to them."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from .errors import CompileError

PACKAGE = Path(__file__).resolve().parents[1]  # where a child finds this package
CALL = (  # modules are nothing to collect
    "import gc, sys; sys.path.insert(0, sys.argv[1]); gc.disable(); from {} import main;"
    " gc.enable(); main()"
)
SECONDS = 3600.0  # for one job of a helper
SAFE = "PYTHONSAFEPATH"  # as -P, for children that others start


def python(text: str, *arguments: str) -> list[str]:
    """A command that runs a text. -P: modules are not looked for in the working directory."""
    return [sys.executable, "-P", "-c", text, *arguments]


def calling_main(module: str) -> list[str]:
    """A command that calls `main` of a module of this very package."""
    return python(CALL.format(module), str(PACKAGE))


@contextmanager
def safe_path() -> Iterator[None]:
    """Python processes started inside are as those of `python`."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        del os.environ[SAFE]
        if before is not None:
            os.environ[SAFE] = before


class Lost(Exception):
    """The child crashed or ran out of time."""


class Child:
    """A process that answers messages: pickles of tuples (name, arguments...), each with one
    answer, ("done", result) or ("failed", text), as `serve` gives it. Only pipes between a process
    and its own child carry them. main: the module whose `main` serves. Only one thread may use it.
    """

    def __init__(self, main: str) -> None:
        self._main = main
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()

    def ask(self, seconds: float, *message: Any) -> Any:
        """The answer to a message. Raises Lost, or CompileError with what the child says."""
        status, result = "lost", ""
        try:
            if self._process is None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
            status, result = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise Lost(f"no answer within {seconds:g} s") from None
        except BrokenPipeError:
            pass
        finally:
            if status == "lost":  # after an interrupt, too: nobody waits for that answer
                self.stop()
        if status == "lost":
            raise Lost("the process crashed")
        if status == "failed":
            raise CompileError(result)
        return result

    def _start(self) -> None:
        self._process = subprocess.Popen(
            calling_main(self._main),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # the oracle's: spinning disturbs
        )
        self._answers = queue.Queue()
        reader = threading.Thread(
            target=_read_all, args=(self._process.stdout, self._answers), daemon=True
        )
        reader.start()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


class Helpers:
    """Children that do jobs of lists beside this process, list after list. They start at once. Used
    as a context, at whose end they are gone.

    main: as that of a child; opening: the first message to each, the others are jobs.
    """

    def __init__(self, count: int, main: str, *opening: Any) -> None:
        self._todo, self._over, self._changed = deque[Any](), False, threading.Condition()
        self._taken = list[tuple[Any, Future[Any]]]()  # of the present list, by children
        self._children = [Child(main) for _ in range(count)]
        for child in self._children:
            threading.Thread(target=self._help, args=(child, opening), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._todo.clear()
            self._over = True
            self._changed.notify_all()
        for child in self._children:
            child.stop()

    def shared(self, jobs: Iterable[Any]) -> Iterator[Any]:
        """The jobs that are left to the caller; meanwhile the children take others."""
        with self._changed:
            self._todo.extend(jobs)
            self._taken.clear()
            self._changed.notify_all()
        while True:
            with self._changed:
                if not self._todo:
                    return
                job = self._todo.popleft()
            yield job

    def results(self) -> Iterator[tuple[Any, Any]]:
        """Jobs of the children and their answers, without those that failed."""
        with self._changed:
            taken = [*self._taken]
        for job, answer in taken:
            if answer.exception() is None:
                yield job, answer.result()

    def _help(self, child: Child, opening: tuple[Any, ...]) -> None:
        try:
            child.ask(SECONDS, *opening)
            while (taken := self._take()) is not None:
                job, answer = taken
                try:
                    answer.set_result(child.ask(SECONDS, job))
                except BaseException as error:  # or whoever waits for it would wait for ever
                    answer.set_exception(error)
        except Exception:  # none could be started: nothing is lost with one that has not begun
            return
        finally:
            child.stop()

    def _take(self) -> tuple[Any, Future[Any]] | None:
        """A job, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._todo or self._over)
            if not self._todo:
                return None
            taken = self._todo.popleft(), Future[Any]()
            self._taken.append(taken)
        return taken


class Pool:
    """Children that each answer one message at a time, started when they are needed, ended by
    `close`. main: as that of a child."""

    def __init__(self, processes: int, main: str, seconds: float = 300.0) -> None:
        self._threads = ThreadPoolExecutor(processes, "luminal-pool")
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._made: list[Child] = []
        self._main, self._seconds = main, seconds

    def submit(self, *message: Any) -> Future[Any]:
        """The answer to a message. It raises CompileError."""
        return self._threads.submit(self._ask, *message)

    def _ask(self, *message: Any) -> Any:
        try:
            child = self._idle.get_nowait()
        except queue.Empty:
            child = Child(self._main)
            self._made.append(child)
        try:
            try:
                return child.ask(self._seconds, *message)
            except Lost:  # where memory is short the system ends processes; it starts anew
                return child.ask(self._seconds, *message)
        except Lost as lost:
            raise CompileError(f"{self._main}: its process was lost twice: {lost}") from lost
        finally:
            self._idle.put(child)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for child in self._made:
            child.stop()


def _read_all(pipe: Any, answers: queue.Queue[Any]) -> None:
    """Pass on what the child says; a timeout on a pipe is not portable, one on a queue is."""
    try:
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
            while True:
                answers.put(pickle.load(pipe))
    finally:
        answers.put(("lost", None))


def serve(answer: Callable[[tuple[Any, ...]], Any]) -> None:
    """Answer a parent's messages until it is gone. A failure is an answer too."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    os.dup2(2, 1)  # whatever is printed must not get among the messages
    while True:
        try:
            message = pickle.load(incoming)
        except EOFError:
            sys.exit(0)
        try:
            found = "done", answer(message)
        except Exception as error:
            found = "failed", f"{type(error).__name__}: {error}"
        try:
            pickle.dump(found, outgoing)
            outgoing.flush()
        except BrokenPipeError:  # nobody is left to hear it
            with suppress(BrokenPipeError):
                outgoing.close()
            sys.exit(0)
