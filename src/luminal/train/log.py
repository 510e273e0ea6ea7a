"""How a training went: a table in memory and on disk, TensorBoard's events, a picture."""

from __future__ import annotations

import csv
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import InputError
from .checkpoints import replacing


@dataclass(frozen=True)
class Record:
    """After a step: the loss, seconds of the step, items (tokens, or rows) a second, and the loss
    on validation data where that was taken.

    >>> train.Record(step=1, epoch=0, loss=0.5, seconds=0.1, rate=640.0).loss
    0.5
    """

    step: int
    epoch: int
    loss: float
    seconds: float
    rate: float
    validation: float | None = None


COLUMNS = [field.name for field in fields(Record)]


def read(path: Path) -> list[Record]:
    """The records of a table."""
    with path.open(newline="") as file:
        return [_record(row) for row in csv.DictReader(file) if None not in row.values()]


def _record(row: dict[str, str]) -> Record:
    validation = float(row["validation"]) if row["validation"] else None
    loss, seconds, rate = (float(row[name]) for name in ("loss", "seconds", "rate"))
    return Record(int(row["step"]), int(row["epoch"]), loss, seconds, rate, validation)


class Table:
    """log.csv of a folder, one line a record; what came after a step is dropped on a resume."""

    def __init__(self, folder: Path, step: int, tensorboard: bool = False) -> None:
        self.path = folder / "log.csv"
        kept = [r for r in read(self.path) if r.step <= step] if self.path.exists() else []
        with replacing(self.path) as own, own.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *map(astuple, kept)])
        self.kept = kept
        self._file = self.path.open("a", newline="")
        self._writer = csv.writer(self._file)
        self._board = _board(folder, step) if tensorboard else None

    def add(self, record: Record) -> None:
        self._writer.writerow(astuple(record))
        self._file.flush()
        if self._board is not None:
            _tell(self._board, record)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _board(folder: Path, step: int) -> Any:
    """A writer of events, of which TensorBoard drops what earlier files say after this step."""
    try:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise InputError("TensorBoard's log needs `pip install tensorboard`") from error
    board = EventFileWriter(str(folder))
    _write(board, step + 1, session_log=SessionLog(status=SessionLog.START))
    return board


def _tell(board: Any, record: Record) -> None:
    from tensorboard.compat.proto.summary_pb2 import Summary

    known = {name: getattr(record, name) for name in ("loss", "rate", "validation")}
    values = [Summary.Value(tag=n, simple_value=v) for n, v in known.items() if v is not None]
    _write(board, record.step, summary=Summary(value=values))


def _write(board: Any, step: int, **content: Any) -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    board.add_event(Event(step=step, wall_time=time.time(), **content))


def picture(records: list[Record], path: str | Path) -> None:
    """The losses over the steps. Raises InputError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("a picture of the losses needs `pip install matplotlib`") from error
    figure = Figure(figsize=(7, 4))
    axes = figure.add_subplot(xlabel="step", ylabel="loss")
    axes.plot([r.step for r in records], [r.loss for r in records], label="training")
    checked = [r for r in records if r.validation is not None]
    if checked:
        axes.plot([r.step for r in checked], [r.validation for r in checked], label="validation")
    axes.legend()
    figure.savefig(path)
