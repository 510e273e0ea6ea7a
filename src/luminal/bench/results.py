"""The figures of a run as a JSON file: written after each case, read to go on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..container import write_over
from ..errors import InputError
from .case import Mark
from .compare import Cell, Row
from .machine import Machine
from .paired import Spread
from .table import rate


@dataclass
class Part:
    """Rows that were measured in one way."""

    machine: Machine
    rows: list[Row] = field(default_factory=list)

    def is_like(self, machine: Machine) -> bool:
        """Whether rows of the other machine stand beside these."""
        mine, other = self.machine, machine
        return (mine.threads, mine.precision) == (other.threads, other.precision)

    def find(self, name: str, peers: Collection[str]) -> Row | None:
        """The row of a case, if ours was timed and each of these peers was tried."""
        whole = (r for r in self.rows if r.ours.time and {*peers} <= r.peers.keys())
        return next((row for row in whole if row.name == name), None)

    def add(self, row: Row) -> None:
        """A row takes the place of the one of its name."""
        self.rows = [*(r for r in self.rows if r.name != row.name), row]


@dataclass
class Results:
    """The parts of a run. file: where they are written; None: nowhere."""

    file: Path | None
    parts: list[Part] = field(default_factory=list)

    @staticmethod
    def kept(file: Path | None, again: bool = False) -> Results:
        """Those of a file that is there; again: they are not wanted. Raises InputError."""
        if file is None or again or not file.exists():
            return Results(file)
        try:
            return Results(file, [_part(entry) for entry in json.loads(file.read_text())])
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is no file of results: {error!r}; see --again") from error

    def part(self, machine: Machine) -> Part:
        """The part that this machine's rows belong to, with its ceilings as they are now. Raises
        InputError where the file is of another processor."""
        for part in self.parts:
            if part.machine.cpu != machine.cpu:
                raise InputError(f"{self.file} is of another processor, {part.machine.cpu}")
            if part.is_like(machine):
                part.machine = machine
                return part
        self.parts.append(Part(machine))
        return self.parts[-1]

    def write(self) -> None:
        """All of it; times in seconds."""
        if self.file is not None:
            found = [as_data(part.rows, part.machine) for part in self.parts]
            write_over(self.file, (json.dumps(found, indent=1) + "\n").encode())


def as_data(rows: Sequence[Row], machine: Machine) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    listed = []
    for row in rows:
        entry = asdict(row)
        if found := rate(row):
            entry["rate"] = asdict(found)
        for mark, told in zip(row.marks, entry["marks"]):
            told |= {"wanted": row.wanted(mark), "reached": row.reached(mark)}
        listed.append(entry)
    return {"machine": asdict(machine), "rows": listed}


def _part(entry: Mapping[str, Any]) -> Part:
    """The inverse of `as_data`."""
    return Part(Machine(**entry["machine"]), [_row(row) for row in entry["rows"]])


def _row(entry: Mapping[str, Any]) -> Row:
    plain = {name: entry[name] for name in ("name", "kind", "flops", "bytes", "disturbed")}
    marks = (Mark(m["rival"], m["ratio"], m["precision"], m["threads"]) for m in entry["marks"])
    peers, ceilings = (
        {name: _cell(cell) for name, cell in entry[kind].items()} for kind in ("peers", "ceilings")
    )
    ours = _cell(entry["ours"])
    return Row(**plain, ours=ours, peers=peers, ceilings=ceilings, marks=tuple(marks))


def _cell(entry: Mapping[str, Any]) -> Cell:
    spreads = {name: entry[name] and Spread(**entry[name]) for name in ("time", "ratio")}
    return Cell(**{**entry, **spreads})
