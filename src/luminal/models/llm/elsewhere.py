"""A decoder's graph is recorded by a function, so that another process can do the same: programs of
large models are compiled by one that is gone when the weights come. What a compilation leaves
behind would lie beside them.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import cores, nn
from ...artifact.shortcut import Shortcut
from ...backend import devices
from ...children import calling_main
from ...collecting import collected_later
from ...graph import Graph, Tensor
from ...options import backend_of, checked_threads, passed
from ...progress import showing, wanted
from ...runtime.executable import Executable
from ...search.database import state_of
from ...store import Store
from .weights import LARGE, parameter_bytes

RECORDING = ("models", "nn", "ops")  # what a recorded graph comes from


@dataclass(frozen=True)
class Recorded:
    """A graph, ready to be compiled; its inputs and outputs go by name. finish: records what is not
    there yet, if anything: all sources are."""

    graph: Graph
    model: nn.Module
    states: Sequence[Tensor]
    finish: Callable[[], None] | None = None

    def whole(self) -> Graph:
        """The graph, finished; to be called once."""
        if self.finish is not None:
            self.finish()
        return self.graph


def compiled(
    record: Callable[..., Recorded], arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Recorded, Executable]:
    """What `record` (a function of a module) makes of the arguments, and its graph compiled with
    these options; a graph whose program is kept is not finished. Raises as `compile_graph`."""
    with collected_later():
        made = record(**arguments)
        cut, found = None, None
        if made.finish is not None and not options.get("search"):
            cut, found = _recalled(made, (record.__qualname__, arguments), **options)
        if found is not None:
            return made, found
        graph = made.whole()
    from ...compiler import compile_graph  # half of a later start's imports

    large = sum(parameter_bytes(made.model).values()) >= LARGE
    elsewhere = partial(_in_a_child, record, arguments, options) if large else None
    return made, compile_graph(graph, elsewhere=elsewhere, shortcut=cut, **options)


def _recalled(
    made: Recorded, job: Any, precision: str, threads: int | None = None, device: str = "auto",
    seed: int = 0, database: Any = None, **more: Any,
) -> tuple[Shortcut | None, Executable | None]:  # fmt: skip
    """The way to the program, and the program if it is kept."""
    backend = backend_of(device)
    if backend is None or more.keys() - {"search"}:
        return None, None
    count = checked_threads(threads) or cores.count()
    state = state_of(backend, backend.target(count), seed, database)
    cut = Shortcut.of(Store.of(None), job, precision, state, RECORDING)
    sources = [tensor.node for tensor in made.graph.sources]
    return cut, cut.follow(backend, count, sources, lambda: passed(made.whole(), device, precision))


def _in_a_child(*job: Any) -> None:
    """Do a job of `main`. Where it fails, this process will meet the same fault, and tell."""
    start = calling_main(__name__)
    subprocess.run(start, input=pickle.dumps((wanted(), *job)), stdout=subprocess.DEVNULL)


def main() -> None:
    """Record and compile, so that the program is kept, and the code of its workers."""
    from ...compiler import compile_graph

    progress, record, arguments, options = pickle.load(sys.stdin.buffer)
    with showing(progress):
        compile_graph(record(**arguments).whole(), **options)
    devices.host().prepare()
