"""How this package starts Python processes of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

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
