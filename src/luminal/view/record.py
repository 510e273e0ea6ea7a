"""What a page shows, as plain data: a graph, and the plans that were compiled from it.

A node or a call has a `path`, the names of the groups around it, outermost first; the page folds by
them. Numbers refer to positions in these lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from ..errors import Unsupported
from ..graph.display import attribute_text
from ..graph.node import Node
from ..graph.passes import Program
from ..kernel.work import usual_sizes, work
from ..progress import tracked
from ..runtime.executable import Executable
from ..runtime.inspection import Inspected
from ..runtime.plan import GIVEN, Call
from ..runtime.report import Report
from ..runtime.show import kernel_text
from ..search.roofline import roofline
from .folds import repeats

SAMPLE = 5  # runs of which the best is a kernel's time
LINE_NODES = 60  # of one line of the user's, from which on they are a group
LEAST_CALLS = 4  # of one part of a model without a break, from which on they are a group
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
    modules = _modules(made, seen)
    return {
        "name": name,
        "device": report.device,
        "threads": report.threads,
        "peak": made.peak_bytes if time else None,
        "sizes": dict(seen.sizes),
        "stages": report.stages,
        "search": report.search,
        "regions": [list(nodes) for nodes in report.origins],
        "choices": report.plans,
        "kernels": kernels,
        "calls": _call_rows(seen, order, dict(zip(running, times)), modules),
        "memories": [_memory_row(seen, n) for n in range(len(seen.plan.memories))],
        "placed": [asdict(placed) for placed in seen.placed],
        "trace": _trace_rows(made) if time else [],
        "steps": {number: step for step, number in enumerate(running)},
        "rates": rates,
    }


def _trace_rows(made: Executable) -> list[list[float]]:
    """Of the shortest of some runs: [step, thread, start, seconds]."""
    try:
        runs = [made.trace() for _ in range(SAMPLE if made.memory == "cpu" else 1)]
    except Unsupported:
        return []
    best = min(runs, key=lambda spans: max((s.start + s.seconds for s in spans), default=0.0))
    return [[s.call, s.thread, s.start, s.seconds] for s in best]


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
        "notes": list(made.notes),
        "tried": [asdict(each) for each in made.tried],
        "texts": texts | (seen.listing(number) if listings else {}),
    }


def _call_rows(
    seen: Inspected, order: Sequence[int], times: Mapping[int, float], modules: Sequence[str]
) -> list[dict[str, Any]]:
    """Calls in order, with the calls that made what they read. Those that run once come first.
    modules: of each call."""
    calls = seen.plan.calls
    paths = _paths([calls[number] for number in order], [modules[number] for number in order])
    writer: dict[int, int] = {}
    rows = []
    for place, (number, path) in enumerate(zip(order, paths)):
        call = calls[number]
        reads, writes = seen.plan.touched(call)
        rows.append({
            "number": number,
            "kernel": call.kernel,
            "region": call.region,
            "module": modules[number],
            "constant": call.constant,
            "reads": sorted(reads),
            "writes": sorted(writes),
            "inputs": sorted({writer[m] for m in reads if m in writer}),
            "path": path,
            "time": times.get(number),
        })  # fmt: skip
        writer |= dict.fromkeys(writes, place)
    return rows


def _modules(made: Executable, seen: Inspected) -> list[str]:
    """The module of each call: that of the largest parameter that it reads (as it is, or laid out
    anew). Where it reads none, the one that holds all of its region, or, of a region that reads
    none at all, most of it."""
    program, plan = made.program, seen.plan
    if program is None:
        return ["" for _ in plan.calls]
    recorded = _recorded(program, made.report)
    regions = [recorded[c.region] if c.region < len(recorded) else [""] for c in plan.calls]
    known = {_without_phase(scope) for scope in program.graph.scopes.values() if scope}
    names = {_plain(module): module for module in known}  # exported models flatten their names
    given = {n: _plain(m.name) for n, m in enumerate(plan.memories) if m.kind in GIVEN}
    owners = {number: names[owner] for number, name in given.items()
              if (owner := name.rpartition("_")[0]) in names}  # fmt: skip
    found = dict[int, str]()
    for number, call in enumerate(plan.calls):
        reads, writes = plan.touched(call)
        if own := [memory for memory in sorted(reads - writes) if memory in owners]:
            largest = max(own, key=lambda m: plan.memories[m].bytes(seen.sizes))
            owners |= dict.fromkeys(writes if call.constant else (), owners[largest])
            phase = _most_common(regions[number]).partition(".")[0]
            found[number] = ".".join([phase] * (phase in PHASES) + [owners[largest]])
    divided = {plan.calls[number].region for number in found}
    for number, call in enumerate(plan.calls):
        whole = ".".join(_common([scope.split(".") for scope in regions[number]]))
        found.setdefault(number, whole if call.region in divided else _most_common(regions[number]))
    return [found[number] for number in range(len(plan.calls))]


def _recorded(program: Program, report: Report) -> list[list[str]]:
    """The modules that recorded the nodes of each region, the last first: without sources, and
    literals, which are made once and belong to whoever was the first."""
    scopes = [program.graph.scopes.get(node, "") for node in program.nodes()]
    plain = [node.op not in ("input", "literal") for node in program.nodes()]
    return [[scopes[node] for node in sorted(region, reverse=True) if plain[node]] or [""]
            for region in report.origins]  # fmt: skip


def _most_common(scopes: Iterable[str]) -> str:
    """Of those that have a name; of several the first."""
    counts = Counter(scope for scope in scopes if scope)
    return max(counts, key=lambda name: counts[name]) if counts else ""


def _plain(name: str) -> str:
    """As an identifier, without the mark of a parameter or buffer in programs of torch.export."""
    return name.replace(".", "_").removeprefix("p_").removeprefix("b_")


def _without_phase(module: str) -> str:
    words = module.split(".")
    return ".".join(words[words[0] in PHASES :])


PHASES = ("backward", "update")  # first words of the modules of gradients and of new parameters


def _paths(calls: Sequence[Call], modules: Sequence[str]) -> list[list[str]]:
    """Groups: what runs when parameters are set, every repetition of a repeated layer, and what
    else one part of the model runs without a break."""
    paths = [["when parameters are set"] if call.constant else [] for call in calls]
    first = sum(call.constant for call in calls)
    taken: set[str] = set()
    for found in repeats([call.kernel for call in calls[first:]]):
        starts = range(first + found.start, first + found.end, found.period)
        for depth in (2, 1):  # blocks within stages, or stages
            names = [_most(modules[at : at + found.period], depth) for at in starts]
            known = "" not in names and len(set(names)) == found.count
            if known:
                break
        whole = f"{names[0]} … {names[-1].rpartition(' ')[2]}, " if known else ""
        name = _fresh(f"{whole}{found.count} × {found.period} kernels", taken)
        for layer, at in enumerate(starts):
            inside = [name, names[layer] if known else f"layer {layer}"]
            paths[at : at + found.period] = [inside] * found.period
    for start, end in _stretches(paths, [part_of(module) for module in modules]):
        paths[start:end] = [[_fresh(_most(modules[start:end]), taken)]] * (end - start)
    return paths


def part_of(module: str, depth: int = 1) -> str:
    """The layer that a module belongs to, whether its values, gradients or parameters are made:
    of update.blocks.3.norm, blocks.3. depth: how many numbers a name has at most."""
    words = _without_phase(module).split(".")
    numbers = [place for place, word in enumerate(words) if word.isdecimal()]
    return ".".join(words[: numbers[:depth][-1] + 1 if numbers else 1])


def _most(modules: Sequence[str], depth: int = 1) -> str:
    """The part that more than half of them belong to, behind the phase of most."""
    ((part, times),) = Counter(part_of(module, depth) for module in modules).most_common(1)
    ((phase, _),) = Counter(module.partition(".")[0] for module in modules).most_common(1)
    if 2 * times <= len(modules):
        return ""
    return f"{phase} {part}" if phase in PHASES else part


def _fresh(name: str, taken: set[str]) -> str:
    """A name that no group has yet."""
    number = 2
    while name in taken:
        name, number = f"{name.partition(' (')[0]} ({number})", number + 1
    taken.add(name)
    return name


def _stretches(
    paths: Sequence[list[str]], parts: Sequence[str]
) -> list[tuple[int, int]]:
    """Where at least LEAST_CALLS that are in no group follow each other and belong to one part."""
    found, start = [], 0
    for at in range(1, len(parts) + 1):
        if at == len(parts) or paths[at] or paths[start] or parts[at] != parts[start]:
            if at - start >= LEAST_CALLS and not paths[start] and parts[start]:
                found.append((start, at))
            start = at
    return found


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
