"""The e-graphs of a program's regions as a page shows them: equal expressions side by side, and
which of them the plan without a search takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..graph.passes import Program
from ..graph.stages import blocks_of, stages_of
from ..progress import tracked
from ..rewrite.extract import Classes, ENode
from ..rewrite.normalise import normalise
from ..rewrite.optimise import optimise
from ..rewrite.plan import Plan
from ..rewrite.rates import CostModel
from ..rewrite.regions import regions
from ..rewrite.terms import Region

MOST_REGIONS = 24  # distinct ones of a program
MOST_NODES = 400  # of an e-graph; of a larger one only what the plan takes, and what equals it


def egraph_records(program: Program, model: CostModel) -> list[dict[str, Any]]:
    """One for each distinct region, in order: the numbers of the regions that are alike (as calls
    name them), notes, e-nodes as rows. A class is a group; what an e-node reads is the chosen
    e-node of each operand's class."""
    alike: dict[str, list[int]] = {}
    first: dict[str, Region] = {}
    for number, region in enumerate(_regions(program)):
        alike.setdefault(region.key, []).append(number)
        first.setdefault(region.key, region)
    shown = tracked("e-graph of region", list(first)[:MOST_REGIONS])
    return [_record(first[key], alike[key], model) for key in shown]


def _regions(program: Program) -> Iterator[Region]:
    states = [source for source, _ in program.states]
    for block in blocks_of(stages_of(program.roots, states)):
        normal = normalise(
            program.graph.space, block.kept, states, block.given, block.ends, block.steady
        )
        yield from regions(normal)


def _record(region: Region, numbers: list[int], model: CostModel) -> dict[str, Any]:
    plan = optimise(region, model)
    classes, taken = plan.classes, _taken(plan)
    shown = _reached(classes)
    if sum(len(classes.alternatives[c]) for c in shown) > MOST_NODES:
        shown = [c for c in shown if c in taken]
    place: dict[int, int] = {}  # of the chosen e-node of a class
    rows: list[dict[str, Any]] = []
    pairs = [(c, n) for c in shown for n in range(len(classes.alternatives[c]))]
    for number, (c, n) in enumerate(pairs):
        if n == plan.choice[c]:
            place[c] = number
    for c, n in pairs:
        node = classes.alternatives[c][n]
        rows.append({
            "label": node_text(classes, node),
            "chosen": c in taken and n == plan.choice[c],
            "inputs": [place[x] for x in node.children if x in place],
            "path": [_class_text(classes, plan, c)],
        })  # fmt: skip
    return {"regions": numbers, "notes": plan.notes, "nodes": rows}


def _taken(plan: Plan) -> set[int]:
    """The classes that some kernel of the plan computes."""
    return {c for piece in plan.pieces for c, _ in piece.body} | set(plan.classes.roots)


def _reached(classes: Classes) -> list[int]:
    """All classes that something of the roots' is made of, operands first."""
    seen: dict[int, None] = {}
    waiting = list(classes.roots)
    while waiting:
        c = waiting.pop()
        if c not in seen:
            seen[c] = None
            waiting += [x for node in classes.alternatives[c] for x in node.children]
    return sorted(seen)


def _class_text(classes: Classes, plan: Plan, c: int) -> str:
    space = classes.encoding.names(classes.axes[c])
    kept = ", in memory" if classes.in_memory(c) or c in plan.stored else ""
    return f"class {c} [{' '.join(space)}]{kept}"


def node_text(classes: Classes, node: ENode) -> str:
    """An e-node as one reads it."""
    if node.op == "const":
        return f"{node.attribute:g}"
    if node.op == "input":
        return f"input {node.attribute.number}"
    if node.over:
        axes = classes.encoding.names(node.over)
        return f"{node.op} over {' '.join(axes)}"
    if node.op == "wexp":
        return f"2^({node.attribute[1]:g} (x - max x))"
    if node.op in ("read", "gather", "index", "guard"):
        entries = getattr(node.attribute, "entries", None)
        moved = None if entries is None else [f"{a}: {b}" for a, b in entries if a != str(b)]
        what = str(node.attribute) if moved is None else ", ".join(moved)
        return f"{node.op} {what}"[:60]
    return node.op
