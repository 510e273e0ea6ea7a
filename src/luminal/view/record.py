"""What a page shows, as plain data: a graph, and the plans that were compiled from it.

A node or a call has a `path`, the names of the groups around it, outermost first; the page folds by
them. Numbers refer to positions in these lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from ..graph.display import attribute_text
from ..graph.node import Node
from ..graph.passes import Program
from ..kernel.show import kernel_text
from ..kernel.work import usual_sizes, work
from ..progress import tracked
from ..runtime.executable import Executable
from ..runtime.inspection import Inspected
from ..runtime.plan import Call
from ..runtime.report import Report
from ..search.roofline import roofline
from .folds import repeats

SAMPLE = 5  # runs of which the best is a kernel's time
LINE_NODES = 60  # of one line of the user's, from which on they are a group
LISTED = 400  # characters of an attribute


def graph_record(program: Program) -> dict[str, Any]:
    """The nodes of a program. hidden: literals, and what is made of nothing else; a page draws
    them into their readers."""
    nodes = program.nodes()
    numbers = {node: number for number, node in enumerate(nodes)}
    hidden: set[Node] = set()
    readers: dict[int, list[int]] = {}
    rows = []
    for node in nodes:
        for operand in node.inputs:
            readers.setdefault(numbers[operand], []).append(numbers[node])
        if node.op in ("literal", "iota") or (node.inputs and set(node.inputs) <= hidden):
            hidden.add(node)
        rows.append(_node_row(program, node, numbers, node in hidden))
    for number in reversed(range(len(rows))):  # what one module alone reads belongs to it
        if not rows[number]["path"] and number in readers:
            rows[number]["path"] = _common([rows[reader]["path"] for reader in readers[number]])
    lines = Counter(row["where"] for row in rows if not row["path"] and row["where"])
    for row in rows:  # what one line of the user's has made: gradients, an update
        if not row["path"] and lines[row["where"]] >= LINE_NODES:
            row["path"] = [f"of {row['where']}"]
    names = program.graph.output_names
    outputs = [[numbers[node], names.get(node, "")] for node in program.outputs]
    states = [[numbers.get(old, -1), numbers[new]] for old, new in program.states]
    return {"nodes": rows, "outputs": outputs, "states": states}


def _common(paths: Sequence[list[str]]) -> list[str]:
    """The groups that all paths begin with."""
    first = paths[0]
    for length in range(min(map(len, paths)), 0, -1):
        if all(path[:length] == first[:length] for path in paths):
            return first[:length]
    return []


def _node_row(
    program: Program, node: Node, numbers: Mapping[Node, int], hidden: bool
) -> dict[str, Any]:
    file, line = program.graph.locations.get(node, ("", 0))
    source = node.attribute if node.op == "input" else None
    scope = program.graph.scopes.get(node, "")
    return {
        "op": source.kind if source else node.op,
        "name": source.name if source else "",
        "shape": f"{node.dtype}[{', '.join(map(str, node.shape))}]",
        "inputs": [numbers[operand] for operand in node.inputs],
        "attribute": "" if source else ", ".join(attribute_text(node))[:LISTED],
        "path": scope.split(".") if scope else [],
        "where": f"{PurePath(file).name}:{line}" if file else "",
        "hidden": hidden,
    }


def plan_record(name: str, made: Executable, listings: bool, time: bool) -> dict[str, Any]:
    """A compiled program: its kernels, calls, memories. listings: with loop programs, IR and
    assembly. time: with the measured time of each call of a run; the program must have run."""
    seen = made.inspected()
    if seen is None:
        raise ValueError("the reference device has no plan")
    report = made.report
    times = [seconds for _, seconds in made.time_kernels(SAMPLE)] if time else []
    rates = dict(seen.rates()) if time else {}
    kernels = [_kernel_row(seen, report, number, rates, listings)
               for number in tracked("describing kernel", range(len(report.kernels)))]  # fmt: skip
    running = list(seen.running) or [n for n, c in enumerate(seen.plan.calls) if not c.constant]
    order = [n for n, call in enumerate(seen.plan.calls) if call.constant] + running
    return {
        "name": name,
        "device": report.device,
        "threads": report.threads,
        "sizes": dict(seen.sizes),
        "stages": report.stages,
        "search": report.search,
        "regions": [list(nodes) for nodes in report.origins],
        "choices": report.plans,
        "kernels": kernels,
        "calls": _call_rows(seen, order, dict(zip(running, times))),
        "memories": [_memory_row(seen, n) for n in range(len(seen.plan.memories))],
        "placed": [asdict(placed) for placed in seen.placed],
        "steps": {number: step for step, number in enumerate(running)},
        "rates": rates,
    }


def _kernel_row(
    seen: Inspected, report: Report, number: int, rates: Mapping[str, float], listings: bool
) -> dict[str, Any]:
    made = report.kernels[number]
    wanted = {**usual_sizes(made.kernel), **seen.sizes}
    done = work(made.kernel, wanted)
    target = seen.backend.target(seen.threads)
    least = roofline(made.kernel, target, rates, warm=True, sizes=wanted) if rates else None
    texts = {"values": kernel_text(made.kernel), "schedule": made.schedule.text()}
    return {
        "name": made.name,
        "calls": report.count(made),
        "flops": done.flops,
        "bytes": done.bytes,
        "least": least,
        "notes": report.notes.get(made.name, []),
        "tried": [asdict(each) for each in report.tried.get(made.name, [])],
        "texts": texts | (seen.listing(number) if listings else {}),
    }


def _call_rows(
    seen: Inspected, order: Sequence[int], times: Mapping[int, float]
) -> list[dict[str, Any]]:
    """Calls in order, with the calls that made what they read. Those that run once come first."""
    calls = seen.plan.calls
    paths = _paths([calls[number] for number in order])
    writer: dict[int, int] = {}
    rows = []
    for place, (number, path) in enumerate(zip(order, paths)):
        call = calls[number]
        reads, writes = seen.plan.touched(call)
        rows.append({
            "number": number,
            "kernel": call.kernel,
            "region": call.region,
            "constant": call.constant,
            "reads": sorted(reads),
            "writes": sorted(writes),
            "inputs": sorted({writer[m] for m in reads if m in writer}),
            "path": path,
            "time": times.get(number),
        })  # fmt: skip
        writer |= dict.fromkeys(writes, place)
    return rows


def _paths(calls: Sequence[Call]) -> list[list[str]]:
    """Groups: what runs when parameters are set, and every repetition of a repeated layer."""
    paths = [["when parameters are set"] if call.constant else [] for call in calls]
    first = sum(call.constant for call in calls)
    found_all = repeats([call.kernel for call in calls[first:]])
    for number, found in enumerate(found_all):
        name = f"{found.count} times {found.period} kernels"
        name += f" ({number + 1})" if len(found_all) > 1 else ""
        for at in range(found.start, found.end):
            layer = (at - found.start) // found.period
            paths[first + at] = [name, f"layer {layer}"]
    return paths


def _memory_row(seen: Inspected, number: int) -> dict[str, Any]:
    memory = seen.plan.memories[number]
    shape = ", ".join(map(str, memory.shape))
    size = memory.bytes(seen.sizes) if seen.sizes or not _open(memory.shape) else None
    return {
        "name": memory.name,
        "kind": memory.kind,
        "shape": f"{memory.dtype}[{shape}]",
        "bytes": size,
    }


def _open(shape: Sequence[Any]) -> bool:
    return any(not extent.is_constant for extent in shape)
