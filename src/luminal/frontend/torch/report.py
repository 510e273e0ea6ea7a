"""What PyTorch still computes itself: which operations, where in the user's code, and why."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field
from html import escape

from torch import fx
from torch._dynamo.utils import counters

from ... import forks

BREAKS = ("unimplemented", "graph_break")  # where Dynamo counts them, by reason


@dataclass(frozen=True)
class Fallback:
    """One operation that PyTorch computes. where: the user's file and line, as PyTorch knows it."""

    op: str
    why: str
    where: str


@dataclass
class Report:
    """Since the last `reset()`. graphs: given by AOTAutograd. parts: compiled natively.

    fallbacks: operations left to PyTorch, with the number of graphs in which they occur.
    failures: whole parts that our compiler refused, and why; they run in PyTorch too. breaks: why
    Dynamo cut a function, or left it to Python (an LSTM, unless `torch._dynamo.config.allow_rnn`):
    what it leaves out never comes here, and is in none of the other numbers.

    >>> luminal.torch.reset()
    >>> luminal.torch.report().parts
    0
    """

    graphs: int = 0
    parts: int = 0
    reused: int = 0
    native: int = 0
    fallbacks: Counter[Fallback] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _breaks_before: Counter[str] = field(default_factory=lambda: _all_breaks())

    @property
    def breaks(self) -> Counter[str]:
        return _all_breaks() - self._breaks_before

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        eager = sum(self.fallbacks.values())
        lines = [
            f"{self.graphs} graphs: {self.native} operations in {self.parts} native programs "
            f"({self.reused} of them reused), {eager} operations in PyTorch"
        ]
        for fallback, count in self.fallbacks.most_common():
            lines.append(f"  {fallback.op} x {count}: {fallback.why}")
            lines += [f"    {line}" for line in fallback.where.splitlines()]
        for failure in self.failures:
            lines.append(f"  NOT COMPILED: {failure}")
        for why, count in self.breaks.most_common():
            first, *rest = [line.strip() for line in why.splitlines() if line.strip()]
            told = [line for line in rest if line.startswith(("Explanation", "Hint: Set", "Devel"))]
            lines += [f"  outside of all graphs x {count}: {first}", *(f"    {t}" for t in told)]
        return "\n".join(lines)


def _all_breaks() -> Counter[str]:
    """One that is counted in two places is one."""
    first, second = (Counter(counters[name]) for name in BREAKS)
    return first | second


_lock = threading.RLock()
forks.guard(sys.modules[__name__], "_lock", forks.INNER)
_report = Report()


def report() -> Report:
    """What the backend did since the last `reset()`; print it.

    >>> luminal.torch.reset()
    >>> print(luminal.torch.report())
    0 graphs: 0 operations in 0 native programs (0 of them reused), 0 operations in PyTorch
    """
    return _report


def clear() -> None:
    """An empty report."""
    _report.__init__()  # type: ignore[misc]


def count_graph() -> None:
    with _lock:
        _report.graphs += 1


def count_native(operations: int, reused: bool) -> None:
    """One part that runs natively."""
    with _lock:
        _report.parts += 1
        _report.native += operations
        _report.reused += reused


def count_fallback(node: fx.Node, why: str, quiet: bool = False) -> None:
    """One node that PyTorch computes; quiet: it is meant to, or the user knows."""
    with _lock:
        first = not _report.fallbacks and not _report.failures
        _report.fallbacks[Fallback(str(node.target), why, where(node))] += 1
    if first and not quiet:
        _warn(f"{node.target} runs in PyTorch: {why} {where(node)}")


def count_failure(why: str) -> None:
    """A part that our compiler refused."""
    with _lock:
        first = not _report.failures
        _report.failures.append(why)
    if first:
        _warn(f"a part of the model runs in PyTorch, by a fault of luminal's: {why}")


def _warn(text: str) -> None:
    """Once for each kind since the last `reset()`."""
    warnings.warn(
        f"{text}\nluminal.torch.report() lists all; options={{'strict': True}} refuses them",
        RuntimeWarning, stacklevel=2,
    )  # fmt: skip


def where(node: fx.Node) -> str:
    """The innermost line of the user's that the node comes from; "" where PyTorch lost it."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [n for n, line in enumerate(lines) if line.startswith("File ")]
    return "\n".join(lines[files[-1] : files[-1] + 2]) if files else ""
