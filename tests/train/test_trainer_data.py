"""What a training takes from its data and its folder, and what it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from luminal import Graph, InputError, NotFinite, train
from luminal.train import checkpoints, log


def trainer(folder: Path | None = None, lr: float = 0.0, **options: Any) -> train.Trainer:
    """Its losses are the sums of the batches, as long as w is 1."""
    graph = Graph()
    x, w = graph.tensor(("rows",)), graph.parameter((), name="w").set(np.float32(1))
    compiled = {"device": "reference"}
    return train.Trainer(
        (x * w).sum(), [x], [w], train.SGD(lr), folder=folder, compile_options=compiled, **options
    )


def numbered(count: int) -> list[np.ndarray]:
    return [np.float32([number]) for number in range(count)]


def losses(records: list[train.Record]) -> list[float]:
    return [record.loss for record in records]


def test_no_more_batches_are_asked_for_than_there_are_steps() -> None:
    batches, t = iter(numbered(20)), trainer()
    assert losses(t.fit(batches, 3) + t.fit(batches, 6) + t.fit(batches, 6)) == list(range(6))
    assert next(batches) == 6


def test_a_fit_that_fails_does_not_wait_for_the_next_batch() -> None:
    released, ended = Event(), Event()

    def slow() -> Iterator[Any]:
        yield np.float32([1]), np.float32([2])
        released.wait(60)
        ended.set()

    start = time.monotonic()
    with pytest.raises(InputError, match="1 arrays"):
        trainer().fit(slow(), 5)
    assert time.monotonic() - start < 30 and not ended.is_set()
    released.set()
    assert ended.wait(60)


def test_an_iterator_is_read_up_to_the_place_of_a_checkpoint_once(tmp_path: Path) -> None:
    trainer(tmp_path).fit(numbered(20), 3)
    batches, t = iter(numbered(20)), trainer(tmp_path)
    assert losses(t.fit(batches, 2) + t.fit(batches, 5) + t.fit(batches, 7)) == [3, 4, 5, 6]
    assert losses(trainer(tmp_path).fit(iter(numbered(20)), 9)) == [7, 8]


def test_a_resume_on_other_batches_is_refused(tmp_path: Path) -> None:
    rows = np.arange(40, dtype=np.float32)
    same, other = (train.Batches(rows, size=size) for size in (8, 4))
    trainer(tmp_path).fit(same, 3)
    assert trainer(tmp_path).fit(other, 3) == []
    for wrong in (other, train.Batches(rows[:32], size=8)):
        with pytest.raises(InputError, match="on batches of 8 of 40 rows, not on batches of"):
            trainer(tmp_path).fit(wrong, 4)
    assert len(trainer(tmp_path).fit(same, 4)) == 1
    assert len(trainer(tmp_path).fit(numbered(9), 5)) == 1  # of which nothing is known
    arrays, progress = checkpoints.Checkpoints(tmp_path).newest() or ({}, {})
    del progress["data"]  # as in a checkpoint of before
    checkpoints.Checkpoints(tmp_path).save(5, arrays, progress)
    assert len(trainer(tmp_path).fit(other, 6)) == 1


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    names = {"step-000000002-good", "step-notes", "step-final", "step-12", "step-0000000009"}
    others = {f"{name}.safetensors" for name in names} | {".notes.safetensors.1.new"}
    for name in others:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".best.safetensors.1.new").write_bytes(b"half")
    trainer(tmp_path, save_every=1, keep=1).fit(numbered(9), 3)
    assert losses(trainer(tmp_path, keep=1).fit(numbered(9), 5)) == [3, 4]
    assert {p.name for p in tmp_path.iterdir()} == {
        *others, "log.csv", "step-000000005.safetensors"
    }  # fmt: skip


def test_checkpoints_of_many_steps_come_in_their_order(tmp_path: Path) -> None:
    folder = checkpoints.Checkpoints(tmp_path, keep=2)
    for step in (999_999_998, 999_999_999, 1_000_000_000):
        folder.save(step, {}, step)
    assert [path.stem for path in folder.files()] == ["step-999999999", "step-1000000000"]
    assert folder.newest() == ({}, 1_000_000_000)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for name in ("log.csv", "x.safetensors"):
        (tmp_path / name).mkdir()
    with pytest.raises(OSError):
        checkpoints.save(tmp_path / "x.safetensors", {})
    with pytest.raises(OSError), checkpoints.replacing(tmp_path / "log.csv") as own:
        own.write_text("half")
        raise OSError("no space left")
    with pytest.raises(OSError):
        log.Table(tmp_path, 0)
    assert {p.name for p in tmp_path.iterdir()} == {"log.csv", "x.safetensors"}


def test_a_step_that_is_not_finite_has_not_been() -> None:
    bad, t = np.float32([np.nan]), trainer(lr=0.1, find_nan=True)
    with pytest.raises(NotFinite, match="step 2: the loss is nan"):
        t.fit([np.float32([1]), bad], 2)
    assert t.step == 1 and t[t.parameters[0]] == np.float32(0.9)
    assert losses(t.fit(numbered(2), 2)) == [pytest.approx(0.9)]


def test_arrays_of_batches_may_be_tensors_of_bf16() -> None:
    rows = torch.arange(6, dtype=torch.bfloat16, requires_grad=True)
    batches = train.Batches(rows, size=2, shuffle=False)
    assert [x.tolist() for (x,) in batches] == [[0, 1], [2, 3], [4, 5]]
    assert losses(trainer().fit(batches, 3)) == [1, 5, 9]
