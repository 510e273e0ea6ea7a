"""Errors as who runs the command sees them: one line, without a place in a program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click

from ..errors import LuminalError


def tell(error: Exception) -> None:
    """One line on the error stream."""
    message = str(error).partition("\n")[0]
    click.echo(f"luminal: {message}", err=True)


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """A known error is one line and exit status 1."""
    try:
        yield
    except LuminalError as error:
        tell(error)
        sys.exit(1)
