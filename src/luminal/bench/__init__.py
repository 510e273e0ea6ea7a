"""The benchmark suite: our programs beside what a user would pick instead, paired in one run.

    luminal bench [ops|models] [--only WORD] [--threads N] [--short | --all]

Every result is checked against PyTorch before it is timed and again afterwards; a wrong result is
an error in the table, never a time. PyTorch is needed for that; the other peers take part if they
are installed.
"""

from .case import Case, Mark, Work, operation
from .compare import Cell, Options, Row, measure
from .machine import Machine, cpu_name, measured
from .paired import Result, Spread, interleaved
from .peers import PEERS
from .suite import cases, run, select

__all__ = [
    "PEERS",
    "Case",
    "Cell",
    "Machine",
    "Mark",
    "Options",
    "Result",
    "Row",
    "Spread",
    "Work",
    "cases",
    "cpu_name",
    "interleaved",
    "measure",
    "measured",
    "operation",
    "run",
    "select",
]
