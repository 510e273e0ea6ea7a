"""Graphs and compiled plans as one HTML file that needs nothing else: to look at, keep, send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..container import write_over
from ..errors import InputError, Unsupported
from ..graph.graph import Graph
from ..graph.passes import Program, program_of
from ..rewrite.rates import CostModel
from ..runtime.executable import Executable
from .egraph import egraph_records
from .record import graph_record, plan_record

SLOT = "__LUMINAL_DATA__"  # in the page: where its data goes
LISTINGS = 150  # distinct kernels up to which the page has their generated code


def page(
    shown: Graph | Program | Executable | Sequence[Executable], listings: bool | None = None
) -> str:
    """The page of a graph, of a compiled program, or of several of one graph, to compare them.

    listings: with every kernel's loop program, LLVM IR and assembly; None: where there are at most
    150 kernels. A program that has run is shown with its sizes, measured times and memory. Raises
    InputError for a graph without outputs; Unsupported where the page was not built.

    >>> y = cx.tensor(3).exp().output()
    >>> luminal.view.page(cx).startswith("<!doctype html>")
    True
    """
    several = list(shown) if isinstance(shown, Sequence) else [shown]
    plans = [made for made in several if isinstance(made, Executable)]
    data: dict[str, Any] = {"graph": None, "plans": [], "egraphs": []}
    first = several[0] if several else None
    program = first.program if isinstance(first, Executable) else first
    if isinstance(program, Graph):
        program = program_of(program)
    if program is not None:
        if not program.roots:
            raise InputError("the graph has no output: nothing to show")
        data["graph"] = graph_record(program)
    for number, made in enumerate(plans):
        if made.inspected() is not None:
            few = len(made.report.kernels) <= LISTINGS
            name = "plan" if len(plans) == 1 else f"plan {number + 1}"
            data["plans"].append(plan_record(name, made, few if listings is None else listings,
                                             made.has_run))  # fmt: skip
    if program is not None and plans and (seen := plans[0].inspected()) is not None:
        model = CostModel.of(seen.backend.target(seen.threads))
        data["egraphs"] = egraph_records(program, model)
    if data["graph"] is None and not data["plans"]:
        raise InputError("there is neither a graph nor a plan to show")
    return _filled(data)


def write_page(
    path: str | Path, shown: Graph | Program | Executable | Sequence[Executable],
    listings: bool | None = None,
) -> Path:  # fmt: skip
    """Write the page of `shown` to a file; see `page`.

    >>> y = cx.tensor(3).exp().output()
    >>> luminal.view.write_page("graph.html", cx).name
    'graph.html'
    """
    path = Path(path)
    write_over(path, page(shown, listings).encode())
    return path


def built_page() -> str:
    """The page without its data. Raises Unsupported where it was not built."""
    built = files("luminal.view") / "viewer.html"
    if not built.is_file():
        raise Unsupported("the viewer's page is not built: run `make viewer` (it needs npm) first")
    return built.read_text(encoding="utf-8")


def _filled(data: dict[str, Any]) -> str:
    """The built page with its data. Within a script "<" would end it, or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return built_page().replace(SLOT, text)
