"""Results as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .compare import OURS, Cell, Row
from .machine import Machine

DISTURBED = 0.1  # share of the processors' time that other processes may use
NAME, TIME, PEER = 45, 9, 20  # widths of columns


@dataclass(frozen=True)
class Rate:
    """How fast a time is beside the machine: by arithmetic or by memory, whichever binds.

    share: of the ceiling; above 1 where the data stays in caches, which outrun memory."""

    value: float
    unit: str
    share: float

    def __str__(self) -> str:
        return f"{self.value:7.1f} {self.unit:7} {100 * self.share:4.0f}%"


def rate(row: Row, seconds: float, machine: Machine) -> Rate:
    """What a time of a row means."""
    arithmetic, memory = row.flops / machine.flops, row.bytes / machine.bandwidth
    if arithmetic >= memory:
        return Rate(row.flops / seconds / 1e9, "GFLOP/s", arithmetic / seconds)
    return Rate(row.bytes / seconds / 1e9, "GB/s", memory / seconds)


def heading(machine: Machine, peers: Sequence[str]) -> str:
    """The machine, its ceilings, and the names of the columns."""
    found = machine.versions
    named = dict.fromkeys(("torch", *peers))
    taking = ", ".join(f"{name} {found[name]}" for name in named if name in found)
    peaks = ", ".join(f"{n} {v:.0f} Gop/s" for n, v in machine.ceilings.items() if n != "read")
    columns = "".join(f" {'vs ' + name:>{PEER}}" for name in peers)
    lines = (
        f"{machine.cpu}, {machine.threads} threads, {machine.precision}",
        f"measured ceilings: {peaks}, read {machine.bandwidth / 1e9:.1f} GB/s",
        taking,
        "ratio = time of the peer / ours, median (quartiles) of paired rounds; above 1 ours leads",
        "",
        f"{'case':{NAME}}{'ours ms':>{TIME}}  {'rate':>15} {'peak':>5}{columns}",
    )
    return "\n".join(lines)


def line(row: Row, machine: Machine, peers: Sequence[str]) -> str:
    """A row as text."""
    cells = "".join(f" {peer_text(row.peers.get(name, Cell())):>{PEER}}" for name in peers)
    if row.ours.time is None:
        return f"{row.name:{NAME}} {row.ours.fault or 'not measured'}"
    milliseconds = row.ours.time.median * 1e3
    note = f"  ! {row.disturbed:.0%} busy elsewhere" if is_disturbed(row) else ""
    return f"{row.name:{NAME}}{milliseconds:{TIME}.3f}  {rate_text(row, machine)}{cells}{note}"


def is_disturbed(row: Row) -> bool:
    """Whether other processes took so much that the figures of the row mean little."""
    return row.disturbed is not None and row.disturbed > DISTURBED


def rate_text(row: Row, machine: Machine) -> str:
    return str(rate(row, row.ours.time.median, machine)) if row.ours.time else ""


def peer_text(cell: Cell) -> str:
    """A peer's ratio; "wrong", "fails" or "-" where there is none."""
    if cell.ratio is not None:
        return f"{cell.ratio.median:.2f} ({cell.ratio.low:.2f}-{cell.ratio.high:.2f})"
    if cell.fault is None:
        return "-"
    return "wrong" if cell.fault.startswith("wrong") else "fails"


def closing(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Geometric means of the ratios of undisturbed rows, and every fault in full."""
    lines, quiet = [], [row for row in rows if not is_disturbed(row)]
    for name in peers:
        ratios = [row.peers[name].ratio for row in quiet if name in row.peers]
        values = [ratio.median for ratio in ratios if ratio is not None]
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            ahead = sum(value > 1 for value in values)
            lines.append(f"vs {name}: {mean:.2f} (geometric mean), ahead in {ahead}/{len(values)}")
    if disturbed := sum(map(is_disturbed, rows)):
        lines.append(
            f"! {disturbed} of {len(rows)} rows are in no mean: other processes used over "
            f"{DISTURBED:.0%} of the processors meanwhile"
        )
    for row in rows:
        for name, cell in ((OURS, row.ours), *row.peers.items()):
            if cell.fault:
                lines.append(f"{row.name}: {name}: {cell.fault}")
    return "\n".join(lines)


def as_data(rows: Sequence[Row], machine: Machine) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    listed = []
    for row in rows:
        entry = asdict(row)
        if row.ours.time is not None:
            entry["rate"] = asdict(rate(row, row.ours.time.median, machine))
        listed.append(entry)
    return {"machine": asdict(machine), "rows": listed}


def write_json(file: Path, rows: Sequence[Row], machine: Machine) -> None:
    """A file with `as_data`; times in seconds."""
    file.write_text(json.dumps(as_data(rows, machine), indent=1) + "\n")
