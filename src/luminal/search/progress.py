"""A progress bar on the error stream, where that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

WIDTH = 24


class Progress:
    """Used as a context; prints nothing where nobody looks."""

    def __init__(self, kernels: int) -> None:
        self.kernels, self.number, self.name = kernels, 0, ""
        self.shown = sys.stderr is not None and sys.stderr.isatty()

    def kernel(self, number: int, name: str) -> None:
        """The search for a kernel begins."""
        self.number, self.name = number, name
        self.step(0, 1.0)

    def step(self, tried: int, gain: float) -> None:
        """So many candidates were tried; the best is so many times as fast as the default."""
        if not self.shown:
            return
        done = WIDTH * self.number // max(1, self.kernels)
        bar = "#" * done + "-" * (WIDTH - done)
        text = f"[{bar}] {self.number + 1}/{self.kernels} {self.name}: {tried} tried, {gain:.2f} x"
        sys.stderr.write(f"\r{text[:100]:<100}")
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self.shown:
            sys.stderr.write("\r" + " " * 100 + "\r")
            sys.stderr.flush()
