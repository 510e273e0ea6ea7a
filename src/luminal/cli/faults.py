"""Errors and interrupts as who runs the command sees them: one paragraph, without a place in a
program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import click

from ..errors import AT, LuminalError

INTERRUPTED = 128 + 2  # the exit status of a program that SIGINT ended


class Commands(click.Group):
    """Ctrl-C ends a command without a word, a known error with one paragraph."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with clear_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def tell(error: Exception) -> None:
    """One paragraph on the error stream, as one line that the terminal wraps: up to an empty line
    or the place in a program."""
    message = " ".join(str(error).partition("\n\n")[0].partition(AT)[0].split())
    message = message or type(error).__name__
    click.echo(f"luminal: {message}", err=True)


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """A known error is one paragraph and exit status 1, one of the system too: a disk that is full,
    a file that may not be read, memory that is not there. Where nobody reads the output any more
    nothing is said."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (LuminalError, OSError, MemoryError) as error:
        tell(error)
        sys.exit(1)
