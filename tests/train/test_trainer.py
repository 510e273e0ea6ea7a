"""The training loop: data of every kind, exact resumes, also of a process that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from luminal import Graph, InputError, NotFinite, nn, ops, train
from luminal.errors import OutOfMemory, WeightsError
from luminal.train import checkpoints
from luminal.train.data import Prefetch
from luminal.train.log import read

from .killed import ROWS, TARGETS, data, trainer


def losses(records: list[train.Record]) -> list[float]:
    return [record.loss for record in records]


def test_a_resumed_training_has_the_losses_of_one_that_went_through(tmp_path: Path) -> None:
    whole = losses(trainer().fit(data(), 23))
    trainer(tmp_path, save_every=4).fit(data(), 9)
    assert len(read(tmp_path / "log.csv")) == 9
    (tmp_path / ".step-000000008.safetensors.1.new").write_bytes(b"half")
    (tmp_path / "step-000000009.safetensors").unlink()  # as if killed before it was there
    second = trainer(tmp_path, save_every=4, keep=2)
    assert losses(second.fit(data(), 23)) == whole[8:]
    assert losses(read(tmp_path / "log.csv")) == whole
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["log.csv", "step-000000020.safetensors", "step-000000023.safetensors"]
    assert trainer(tmp_path).fit(data(), 23) == []


def test_data_of_every_kind_is_the_same_data() -> None:
    whole = losses(trainer().fit(data(shuffle=False), 10))
    rows = torch.utils.data.TensorDataset(torch.tensor(ROWS), torch.tensor(TARGETS))
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    batches = list(data(shuffle=False))
    for source in (loader, batches, lambda: iter(batches)):
        assert losses(trainer().fit(source, 10)) == whole
    assert losses(trainer().fit(iter(batches), 10)) == whole[:5]  # it is over then
    named = trainer()
    named.inputs = {"rows": named.inputs[0], "targets": named.inputs[1]}
    dicts = [{"rows": x, "targets": y, "more": y} for x, y in batches]
    assert losses(named.fit(dicts, 10)) == whole


class Columns:
    """What is used of a `datasets.Dataset` with_format("numpy")."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows: list[int]) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in self.columns.items()}

    def iter(self, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(self), batch_size):
            yield self[list(range(start, start + batch_size))]


def _dataset(columns: dict[str, np.ndarray]) -> Any:
    datasets, pyarrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    table = pyarrow.table({name: column.tolist() for name, column in columns.items()})
    return datasets.Dataset(table, fingerprint="rows").with_format("numpy")


@pytest.mark.parametrize("made", [Columns, _dataset], ids=["columns", "datasets"])
def test_a_dataset_of_hugging_face_is_the_same_data(made: Any, tmp_path: Path) -> None:
    """In order by its own batches; shuffled, and resumed within an epoch, by ours."""
    table = made({"rows": ROWS, "targets": TARGETS})

    def named(folder: Path | None = None) -> train.Trainer:
        one = trainer(folder)
        one.inputs = {"rows": one.inputs[0], "targets": one.inputs[1]}
        return one

    whole = losses(trainer().fit(data(shuffle=False), 10))
    assert losses(named().fit(lambda: table.iter(8), 10)) == whole
    whole = losses(trainer().fit(data(), 13))
    named(tmp_path).fit(train.Batches(table, size=8), 7)
    assert losses(named(tmp_path).fit(train.Batches(table, size=8), 13)) == whole[7:]


def test_every_epoch_has_its_own_order_and_all_rows() -> None:
    batches = train.Batches(np.arange(10), size=3, drop_last=False)
    first, again, second = (np.concatenate([x for (x,) in batches.epoch(n)]) for n in (0, 0, 1))
    assert sorted(first) == list(range(10)) == sorted(second)
    assert list(first) == list(again) != list(second)
    assert [list(x) for (x,) in batches.epoch(0, 2)] == [list(first[6:9]), list(first[9:])]


def test_validation_keeps_the_best_and_stops(tmp_path: Path) -> None:
    t = trainer(tmp_path)
    records = t.fit(data(), 60, validation=data(shuffle=False), validate_every=5)
    found = [r.validation for r in records if r.validation is not None]
    assert len(found) == 12 and min(found) == t.best < found[0]
    weights = t["weight"]
    expected = np.mean((ROWS @ weights.T + t["bias"] - TARGETS) ** 2)
    np.testing.assert_allclose(t.validate(data(shuffle=False)), expected, rtol=1e-5)
    assert "weight" in checkpoints.Safetensors(tmp_path / "best.safetensors")
    worse = [(x, y + 1e3 * n) for n, (x, y) in enumerate(data(shuffle=False))]
    grows = iter(range(1, 100))
    stopped = trainer().fit(
        data(), 60, lambda: worse[next(grows) :][:1], validate_every=1, patience=2
    )
    assert len(stopped) == 3


def test_the_validation_loss_is_a_mean_over_rows() -> None:
    graph = Graph()
    x, w = graph.tensor(("rows",)), graph.parameter(()).set(np.float32(1))
    loss, compiled = (x * w).mean(), {"device": "reference"}
    t = train.Trainer(loss, [x], [w], train.SGD(), validation_loss=loss, compile_options=compiled)
    rows = np.float32([1, 2, 6])
    assert t.validate(train.Batches(rows, size=2, shuffle=False, drop_last=False)) == 3.0


def test_what_is_refused(tmp_path: Path) -> None:
    t = trainer(tmp_path, validation_loss=None)
    with pytest.raises(InputError, match="validation_loss"):
        t.fit(data(), 3, validation=data())
    with pytest.raises(InputError, match="2 arrays"):
        t.fit([ROWS[:8]], 3)
    with pytest.raises(InputError, match="no batch of 50"):
        train.Batches(ROWS, size=50)
    with pytest.raises(InputError, match="one length"):
        train.Batches(ROWS, ROWS[:3], size=2)
    for numbers in ({"validate_every": 0}, {"patience": 0}):
        with pytest.raises(InputError, match="is 0: it must be at least 1"):
            t.fit(data(), 3, **numbers)
    for name in ("save_every", "log_every", "keep"):
        with pytest.raises(InputError, match="is 0: it must be at least 1"):
            trainer(**{name: 0})
        with pytest.raises(InputError, match=r"is 1\.5: it must be a whole number"):
            trainer(**{name: 1.5})
    for numbers in ({"validate_every": 1.5}, {"patience": 1.5}, {"steps": 1.5}):
        with pytest.raises(InputError, match=r"is 1\.5: it must be a whole number"):
            t.fit(data(), **{"steps": 3, **numbers})
    for numbers, said in (({"size": 0}, "size is 0"), ({"size": 1.5}, "size is 1.5"),
                          ({"size": 8, "seed": -1}, "seed is -1")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            train.Batches(ROWS, **numbers)
    for empty in (np.float32(3), type("Table", (dict,), {"column_names": ["x"]})()):
        with pytest.raises(InputError, match="0 rows"):
            train.Batches(empty, size=1)

    def broken():
        yield ROWS[:8], TARGETS[:8]
        raise KeyError("the data")

    with pytest.raises(KeyError, match="the data"):
        trainer().fit(broken(), 5)


def test_the_first_tensor_that_is_not_finite_is_named() -> None:
    graph = Graph()
    x = graph.tensor((3,), name="x")
    w = graph.parameter((3,), name="w").set(np.ones(3, np.float32))
    loss = (ops.log(x * w) * 2.0).sum()
    t = train.Trainer(
        loss, [x], [w], train.SGD(0.0), find_nan=True, compile_options={"device": "reference"}
    )
    good, bad = np.ones(3, np.float32), np.float32([1, -1, 1])
    with pytest.raises(NotFinite, match=r"step 3: the loss is nan; .*log2.*test_trainer"):
        t.fit([(good,), (good,), (bad,)], 5)
    assert t.step == 2
    with pytest.raises(NotFinite, match="input 'x'"):
        t.fit([(np.float32([1, np.nan, 1]),)], 9, resume=False)


def test_of_loops_the_result_that_is_not_finite_is_named() -> None:
    graph = Graph()
    x = graph.tensor((3,), name="x")
    w = graph.parameter((), name="w").set(np.float32(1.0))
    _, rows = ops.scan(lambda total, row: (total + ops.log(row * w),) * 2, w * 0.0, x)
    t = train.Trainer(rows.sum(), [x], [w], train.SGD(0.0), find_nan=True)
    with pytest.raises(NotFinite, match=r"step 1: the loss is nan; .*result.*test_trainer"):
        t.fit([(np.float32([1, -1, 1]),)], 5)


def test_a_prefetching_thread_ends_with_its_reader() -> None:
    made: list[int] = []

    def endless():
        while True:
            made.append(0)
            yield len(made)

    with Prefetch(endless()) as items:
        assert [next(items), next(items)] == [1, 2]
    assert len(made) <= 6


def test_a_batch_that_comes_as_its_reader_gives_up_waiting_is_not_lost(monkeypatch) -> None:
    prefetch, early = Prefetch(iter([1])), iter([True])
    with prefetch as items:
        prefetch._thread.join()
        get = prefetch._queue.get

        def late(timeout: float) -> Any:
            if next(early, False):
                raise Empty
            return get(timeout=timeout)

        monkeypatch.setattr(prefetch._queue, "get", late)
        assert list(items) == [1]


def test_tensorboard_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    t = trainer(tmp_path, tensorboard=True)
    t.fit(data(), 3)
    t.plot(tmp_path / "losses.png")
    assert (tmp_path / "losses.png").stat().st_size > 1000
    (events,) = tmp_path.glob("events.out*")
    assert events.stat().st_size > 100


def test_tensorboard_shows_steps_that_were_made_again_once(tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trainer(tmp_path, tensorboard=True, save_every=5).fit(data(), 7)
    (tmp_path / "step-000000007.safetensors").unlink()  # as if killed before it was there
    time.sleep(1)  # files are in the order of the seconds in their names
    trainer(tmp_path, tensorboard=True).fit(data(), 9)
    shown = loader.EventAccumulator(str(tmp_path))
    shown.Reload()
    kept = [(record.step, record.loss) for record in read(tmp_path / "log.csv")]
    found = [(event.step, event.value) for event in shown.Scalars("loss")]
    assert [step for step, _ in found] == [step for step, _ in kept] == list(range(1, 10))
    np.testing.assert_allclose([loss for _, loss in found], [loss for _, loss in kept], rtol=1e-6)


# ---- kill -9


def survive(folder: Path, kills: int, seed: int) -> None:
    """Training in processes that are killed at random moments, most while a file is written."""
    random, steps = Random(seed), 60
    whole = losses(trainer().fit(data(), steps))
    command = [sys.executable, str(Path(__file__).with_name("killed.py")), str(folder), str(steps)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(kills):
        before = {p.name for p in folder.glob("step-*")}
        process = subprocess.Popen(command, env=environment)
        while process.poll() is None and before >= {p.name for p in folder.glob("step-*")}:
            time.sleep(0.001)
        time.sleep(random.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = checkpoints.Checkpoints(folder).newest()
        assert kept is not None
    assert subprocess.run(command, env=environment, timeout=300).returncode == 0
    assert losses(read(folder / "log.csv")) == whole


def test_nothing_is_lost_when_a_training_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, kills=2, seed=0)


@pytest.mark.slow
def test_nothing_is_lost_when_a_training_is_killed_often(tmp_path: Path) -> None:
    survive(tmp_path, kills=30, seed=1)


def test_a_run_that_finds_no_memory_says_so() -> None:
    graph = Graph()
    x, w = graph.tensor(("n", 3)), graph.parameter((3, 1 << 20)).set(np.ones((3, 1 << 20), "f4"))
    loss = ops.exp(x @ w).cumsum(0).sum()
    trainer = train.Trainer(loss, [x], [w], train.SGD(0.1), compile_options={"threads": 1})
    with pytest.raises(OutOfMemory, match=r"needs [\d,]+ MB in one piece.*smaller batches"):
        trainer.fit([(np.zeros((1 << 22, 3), "f4"),)], 1)  # more than there are addresses


def test_more_than_the_system_can_count_is_no_memory_either() -> None:
    graph = Graph()
    (graph.tensor((8,), name="x").expand(1 << 60, 8) * 1.0).output()
    rt = graph.compile(cache=False, threads=1)
    with pytest.raises(OutOfMemory, match="in one piece"):
        rt(np.zeros(8, "f4"))


def test_validation_reads_the_running_statistics_of_the_training(tmp_path: Path) -> None:
    graph = Graph()
    x, norm = graph.tensor((8, 6)), nn.BatchNorm1d(graph, 6)
    norm.train()
    loss = norm(x).square().mean()
    norm.eval()
    trained = train.Trainer(
        loss, [x], norm.parameters(), train.SGD(0.0), folder=tmp_path,
        validation_loss=norm(x).square().mean(), compile_options={"device": "reference"},
    )  # fmt: skip
    rows = 5.0 + 3.0 * ROWS
    batches = train.Batches(rows, size=8)
    trained.fit(batches, 30, validation=batches, validate_every=30)
    mean, variance = trained[norm.running_mean], trained[norm.running_var]
    wanted = np.mean((rows - mean) ** 2 / (variance + norm.eps))
    np.testing.assert_allclose(trained.validate(batches), wanted, rtol=1e-5)
    kept = load_file(tmp_path / "best.safetensors")
    np.testing.assert_array_equal(kept["running_mean"], mean)


def plain(folder: Path | None = None, size: int = 3, kind: str = "f32", **options: Any) -> Any:
    """Without inputs."""
    graph = Graph()
    w = graph.parameter((size,), kind, options.pop("name", "w"))
    w.set(np.ones(size, w.dtype.numpy))
    compiled = {"device": "reference"}
    loss = (w * w).sum()
    return w, train.Trainer(
        loss, [], [w], train.SGD(0.1), folder=folder, compile_options=compiled, **options
    )


@pytest.mark.parametrize("other", [{"name": "v"}, {"size": 4}, {"kind": "f16"}, {"kind": "f64"}],
                         ids=str)  # fmt: skip
def test_a_checkpoint_of_another_training_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    plain(tmp_path)[1].fit([()], 2)
    w, t = plain(tmp_path, **other)
    with pytest.raises(InputError, match=r"holds another training: '[vw]' is a state of"):
        t.fit([()], 5)
    t.fit([()], 0, resume=False)
    np.testing.assert_array_equal(t[w], np.ones(w.shape))


def test_a_resumed_training_may_accumulate_less(tmp_path: Path) -> None:
    plain(tmp_path, accumulate=8)[1].fit([()], 4)
    w, t = plain(tmp_path, accumulate=2)
    t.fit([()], 5)
    np.testing.assert_allclose(t[w], np.full(3, 0.8), rtol=1e-6)  # 1 - 0.1 * the mean of five 2s


def test_a_checkpoint_has_one_entry_of_a_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two entries 'trainer'"):
        plain(name="trainer")
    with pytest.raises(InputError, match="no entry can be called '__metadata__'"):
        plain(name="__metadata__")
    with pytest.raises(WeightsError, match="can be called '__metadata__'"):
        checkpoints.save(tmp_path / "x.safetensors", {"__metadata__": np.ones(2)})
    assert not [*tmp_path.iterdir()]


def test_a_training_begun_anew_takes_the_place_of_the_former(tmp_path: Path) -> None:
    plain(tmp_path, save_every=2)[1].fit([()], 9)
    w, t = plain(tmp_path, keep=2, save_every=2)
    t.fit([()], 5, resume=False)
    steps = [int(path.stem[5:]) for path in checkpoints.Checkpoints(tmp_path).files()]
    v, resumed = plain(tmp_path)
    assert steps == [4, 5] and resumed.fit([()], 5) == [] and resumed.step == 5
    np.testing.assert_array_equal(resumed[v], t[w])


def test_batches_may_be_made_in_one_memory_and_of_bf16() -> None:
    graph = Graph()
    x, w = graph.tensor((3,)), graph.parameter((3,), name="w").set(np.ones(3, np.float32))
    rows, narrow = np.zeros(3, np.float32), torch.zeros(3, dtype=torch.bfloat16)

    def filled(memory: Any) -> Iterator[Any]:
        for number in range(8):
            memory[:] = number
            yield memory

    t = train.Trainer((x * w).sum(), [x], [w], train.SGD(0.0))
    for step, memory in ((8, rows), (16, narrow)):
        assert losses(t.fit(lambda memory=memory: filled(memory), step)) == [
            3.0 * number for number in range(8)
        ]


def test_a_training_that_ended_early_stays_ended(tmp_path: Path) -> None:
    worse = iter(range(1, 100))

    def validation() -> list[Any]:
        return [(ROWS[:8], TARGETS[:8] + 1e3 * next(worse))]

    numbers = {"validation": validation, "validate_every": 1, "patience": 2}
    assert len(trainer(tmp_path).fit(data(), 60, **numbers)) == 3
    assert trainer(tmp_path).fit(data(), 60, **numbers) == []
