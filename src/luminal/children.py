"""How this package starts Python processes of its own, and talks to them."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import CompileError

PACKAGE = Path(__file__).resolve().parents[1]  # where a child finds this package
CALL = "import sys; sys.path.insert(0, sys.argv[1]); from {} import main; main()"
SAFE = "PYTHONSAFEPATH"  # as -P, for children that others start


def python(text: str, *arguments: str) -> list[str]:
    """A command that runs a text. -P: modules are not looked for in the working directory."""
    return [sys.executable, "-P", "-c", text, *arguments]


def calling_main(module: str) -> list[str]:
    """A command that calls `main` of a module of this very package."""
    return python(CALL.format(module), str(PACKAGE))


@contextlib.contextmanager
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
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
            status, result = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            raise Lost(f"no answer within {seconds:g} s") from None
        except OSError:
            status, result = "lost", None
        if status == "lost":
            self.stop()
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
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


def _read_all(pipe: Any, answers: queue.Queue[Any]) -> None:
    """Pass on what the child says; a timeout on a pipe is not portable, one on a queue is."""
    try:
        while True:
            answers.put(pickle.load(pipe))
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        answers.put(("lost", None))


def serve(answer: Callable[[tuple[Any, ...]], Any]) -> None:
    """Answer a parent's messages until it is gone. A failure is an answer too."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
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
        pickle.dump(found, outgoing)
        outgoing.flush()
