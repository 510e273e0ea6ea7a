"""How far a search is: kernels, candidates tried, what was gained."""

from __future__ import annotations

from ..progress import Line


class Progress:
    """Tells a line which kernel is searched for."""

    def __init__(self, line: Line) -> None:
        self._line, self._number, self._name = line, 0, ""

    def kernel(self, number: int, name: str) -> None:
        """The search for a kernel begins."""
        self._number, self._name = number, name
        self.step(0, 1.0)

    def step(self, tried: int, gain: float) -> None:
        """So many candidates were tried; the best is so many times as fast as the default."""
        place = f"{self._number + 1}/{self._line.total} {self._name}"
        self._line.tell(self._number, f"search {place}: {tried} tried, {gain:.2f} x")
