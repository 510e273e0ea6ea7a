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

from ... import nn
from ...backend import devices
from ...children import calling_main
from ...collecting import collected_later
from ...compiler import Executable, compile_graph
from ...graph import Graph, Tensor
from ...progress import showing, wanted
from .weights import LARGE, parameter_bytes


@dataclass(frozen=True)
class Recorded:
    """A graph, ready to be compiled; its inputs and outputs go by name."""

    graph: Graph
    model: nn.Module
    states: Sequence[Tensor]


def compiled(
    record: Callable[..., Recorded], arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Recorded, Executable]:
    """What `record` (a function of a module) makes of the arguments, and its graph compiled with
    these options. Raises as `compile_graph`."""
    with collected_later():
        made = record(**arguments)
    large = sum(parameter_bytes(made.model).values()) >= LARGE
    elsewhere = partial(_in_a_child, record, arguments, options) if large else None
    return made, compile_graph(made.graph, elsewhere=elsewhere, **options)


def _in_a_child(*job: Any) -> None:
    """Do a job of `main`. Where it fails, this process will meet the same fault, and tell."""
    start = calling_main(__name__)
    subprocess.run(start, input=pickle.dumps((wanted(), *job)), stdout=subprocess.DEVNULL)


def main() -> None:
    """Record and compile, so that the program is kept, and the code of its workers."""
    progress, record, arguments, options = pickle.load(sys.stdin.buffer)
    with showing(progress):
        compile_graph(record(**arguments).graph, **options)
    devices.host().prepare()
