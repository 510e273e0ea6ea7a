"""Results as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .compare import OURS, Cell, Row
from .machine import Machine

DISTURBED = 0.1  # share of the processors' time that other processes may use
NAME, TIME, PEER = 45, 9, 20  # widths of columns


@dataclass(frozen=True)
class Rate:
    """How fast a time is beside the machine: by arithmetic or by reading, whichever binds. share:
    of that ceiling, as it was in the same rounds."""

    value: float
    unit: str
    share: float

    def __str__(self) -> str:
        return f"{self.value:7.1f} {self.unit:7} {100 * self.share:4.0f}%"


def rate(row: Row) -> Rate | None:
    """What our time of a row means; None where there is none."""
    share = row.ratio("peak")
    if row.ours.time is None or share is None:
        return None
    reading = row.bound == "read"
    amount, unit = (row.bytes, "GB/s") if reading else (row.flops, "GFLOP/s")
    return Rate(amount / row.ours.time.median / 1e9, unit, share)


def heading(machine: Machine, peers: Sequence[str]) -> str:
    """The machine, its ceilings, and the names of the columns."""
    found = machine.versions
    named = dict.fromkeys(("torch", *peers))
    taking = ", ".join(f"{name} {found[name]}" for name in named if name in found)
    rates = dict(machine.ceilings)
    read, cache = (rates.pop(name, 0.0) for name in ("read", "cache"))
    peaks = ", ".join(f"{name} {rate:.0f} Gop/s" for name, rate in rates.items())
    columns = "".join(f" {'vs ' + name:>{PEER}}" for name in peers)
    lines = (
        f"{machine.cpu}, {machine.threads} threads, {machine.precision}",
        f"ceilings: {peaks}, read {read:.1f} GB/s, cache {cache:.1f} GB/s (again beside each case)",
        taking,
        "ratio = time of the peer / ours, median (quartiles) of paired rounds; above 1 ours leads",
        "",
        f"{'case':{NAME}}{'ours ms':>{TIME}}  {'rate':>15} {'peak':>5}{columns}",
    )
    return "\n".join(lines)


def line(row: Row, peers: Sequence[str]) -> str:
    """A row as text."""
    cells = "".join(f" {peer_text(row.peers.get(name, Cell())):>{PEER}}" for name in peers)
    if row.ours.time is None:
        return f"{row.name:{NAME}} {row.ours.fault or 'not measured'}"
    milliseconds = row.ours.time.median * 1e3
    note = f"  ! {row.disturbed:.0%} busy elsewhere" if is_disturbed(row) else ""
    text = f"{row.name:{NAME}}{milliseconds:{TIME}.3f}  {rate_text(row):>21}{cells}"
    return text + mark_text(row) + note


def mark_text(row: Row) -> str:
    """Whether the marks are reached."""
    verdicts = {None: "not measured", True: "reached", False: "below"}
    texts = (f"{row.wanted(m):.2f} x {m.rival}: {verdicts[row.reached(m)]}" for m in row.marks)
    return "".join(f"  {text}" for text in texts)


def is_disturbed(row: Row) -> bool:
    """Whether other processes took so much that the figures of the row mean little."""
    return row.disturbed is not None and row.disturbed > DISTURBED


def rate_text(row: Row) -> str:
    found = rate(row)
    return "" if found is None else str(found)


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
    verdicts = [found for row in rows for m in row.marks if (found := row.reached(m)) is not None]
    if verdicts:
        lines.append(f"marks reached: {sum(verdicts)} of {len(verdicts)}")
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
