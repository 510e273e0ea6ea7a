"""What is known of a model's kernels on a GPU that is not here: what its compiler says of them, and
what they do, against what the GPU's data sheet allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from ..backend import devices
from ..backend.contract import Accelerator
from ..backend.loops import loop_program
from ..errors import LuminalError, Unsupported
from ..runtime.executable import Executable
from ..runtime.plan import Launch
from .gpu_models import MODELS, Shaped, Sizes

Row: TypeAlias = dict[str, Any]
COLUMNS = ("calls", "registers", "spilled", "shared", "MB", "Mflop", "limit us", "model us",
           "share")  # fmt: skip


def measure(names: Sequence[str], only: str = "") -> Iterator[Row]:
    """A row for each phase of each model with a word in its name, on each device. Raises
    DeviceError, Unsupported for a device of which nothing is known."""
    for name in names:
        device = devices.find(name)
        if not isinstance(device, Accelerator):
            raise Unsupported(f"{name!r} is no GPU")
        for model in MODELS:
            if only in model.name:
                yield from _model(name, device, model)


def _model(name: str, device: Accelerator, model: Shaped) -> Iterator[Row]:
    head = {"device": name, "model": model.name}
    try:
        rt = _compiled(name, model, False)
        kernels = _resources(rt, device)
        further = _compiled(name, model, True) if model.layered else None
        for phase, sizes in model.phases.items():
            more = _launches(further, sizes)[0] if further else 0
            layer = {"layer": more - _launches(rt, sizes)[0]} if further else {}
            yield head | {"phase": phase, **layer} | _phase(rt, device, kernels, sizes)
    except LuminalError as error:
        yield head | {"phase": "", "fault": f"{type(error).__name__}: {error}"}


def _compiled(name: str, model: Shaped, more: bool) -> Executable:
    graph = model.record(more)
    return graph.compile(name, precision=model.precision, cache=False, database=False)


def _launches(rt: Executable, sizes: Sizes) -> tuple[int, list[Launch]]:
    """Of a run, and those of several calls."""
    plan = rt.report.plan
    assert plan is not None
    running = [n for n, c in enumerate(plan.calls) if not c.constant and c.runs(sizes)]
    joined = plan.launched(running, sizes)
    return len(running) - sum(len(launch.calls) - 1 for launch in joined), joined


def _resources(rt: Executable, device: Accelerator) -> list[dict[str, int]]:
    """Of each kernel, in their order."""
    found = device.resources(list(rt.sources().values()))
    return found or [{} for _ in rt.report.kernels]


def _phase(
    rt: Executable, device: Accelerator, resources: list[dict[str, int]], sizes: Sizes
) -> Row:
    """All kernels of a run, and what they come to."""
    plan = rt.report.plan
    assert plan is not None
    calls = Counter(call.kernel for call in plan.running() if call.runs(sizes))
    rows = [_kernel(rt, device, number, count, resources[number], sizes)
            for number, count in calls.items()]  # fmt: skip
    rows.sort(key=lambda row: -row["calls"] * row.get("model us", 0))
    total = {c: sum(row["calls"] * row.get(c, 0) for row in rows) for c in ("limit us", "model us")}
    launches, joined = _launches(rt, sizes)
    apart = total["model us"]  # with a launch for each call
    total["model us"] -= 1e6 * sum(each.apart - each.seconds for each in joined)
    texts = [plan.joints[number].name for number in dict.fromkeys(each.joint for each in joined)]
    return {"kernels": rows, "launches": launches, "calls": sum(calls.values()), **total,
            "apart us": apart, "joined": texts,
            "share": total["limit us"] / max(1e-9, total["model us"]),
            "spilling": [row["name"] for row in rows if row.get("spilled")]}  # fmt: skip


def _kernel(
    rt: Executable, device: Accelerator, number: int, calls: int, resources: dict[str, int],
    sizes: Sizes,
) -> Row:  # fmt: skip
    made = rt.report.kernels[number]
    program = loop_program(made.kernel, made.schedule, device.target(1))
    row: Row = {"name": made.name, "calls": calls, **resources}
    found = device.modelled(made.kernel, program, sizes, resources.get("registers", 0))
    if found is None:
        return row
    return row | {"MB": found.bytes / 1e6, "Mflop": found.flops / 1e6, "share": found.share,
                  "limit us": 1e6 * found.limit, "model us": 1e6 * found.seconds,
                  "why": found.reason}  # fmt: skip


def faults(rows: Sequence[Row]) -> list[str]:
    """What did not compile."""
    return [f"{row['device']} {row['model']}: {row['fault']}" for row in rows if "fault" in row]


def summary(rows: Sequence[Row]) -> str:
    """A line for each model and device, as Markdown."""
    lines = [
        "| model | phase | device | kernels | calls | launches | a layer | spilling | registers "
        "| limit us | each a launch us | model us | share |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for row in rows:
        head = f"| {row['model']} | {row['phase']} | {row['device']} |"
        if "fault" in row:
            lines.append(f"{head} {row['fault'].splitlines()[0]} |||||||||||")
            continue
        most = max((k.get("registers", 0) for k in row["kernels"]), default=0)
        lines.append(
            f"{head} {len(row['kernels'])} | {row['calls']} | {row['launches']} | "
            f"{row.get('layer', '')} | {len(row['spilling'])} | {most} | {row['limit us']:.0f} | "
            f"{row['apart us']:.0f} | {row['model us']:.0f} | {row['share']:.0%} |"
        )
    return "\n".join(lines)


def listing(row: Row, most: int = 12) -> str:
    """The kernels of a row that take longest, as Markdown."""
    lines = [f"| kernel | {' | '.join(COLUMNS)} | why not all |",
             f"|---|{'--:|' * len(COLUMNS)}---|"]  # fmt: skip
    for kernel in row["kernels"][:most]:
        cells = (_cell(column, kernel.get(column)) for column in COLUMNS)
        lines.append(f"| {kernel['name']} | {' | '.join(cells)} | {kernel.get('why', '')} |")
    left = len(row["kernels"]) - most
    if row["joined"]:
        lines += ["", f"Launches of several: {', '.join(row['joined'])}."]
    return "\n".join(lines + [f"\n{left} more take less."] * (left > 0))


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0%}" if column == "share" else f"{value:.5g}"
