"""A backend of torch.compile: Dynamo -> AOTAutograd -> our graph -> one native program.

backend.py      the function that torch.compile calls, and what it asks of AOTAutograd
compare.py      results beside PyTorch's, where the user asks for it
decompose.py    which operations AOTAutograd expands into smaller ones
record.py       the nodes of an FX graph, recorded in a graph of ours
sizes.py        PyTorch's symbolic sizes as ours
table/          the operations: one short function for each
split.py        which nodes run natively and which in PyTorch
views.py        views among the results, which PyTorch makes
export.py       a module as a program that runs without PyTorch
program.py      a compiled part: tensors in, tensors out
weights.py      which weights have changed since a program took them in
arrays.py       tensors as arrays and back, without copies
report.py       what fell back to PyTorch, where and why
"""

from .arrays import from_array
from .backend import Options, backend, reset
from .export import export
from .report import Report, report

__all__ = ["Options", "Report", "backend", "export", "from_array", "report", "reset"]
