"""Programs as files: kept between compilations, saved and loaded, damaged, bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.schedules import schedule_of

import luminal
from luminal import ArtifactError, Graph, ops
from luminal.artifact import file, identity
from luminal.artifact.codec import decode, encode
from luminal.graph.index import Index
from luminal.runtime.executable import Executable
from luminal.store import Store

ROWS = np.random.default_rng(0).standard_normal((7, 16), dtype=np.float32)


@pytest.fixture(autouse=True)
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are kept even where somebody edits the compiler while the tests run."""
    monkeypatch.setattr(identity, "version_of", lambda *_: "of the tests")


def attend(scale: float = 0.5) -> Graph:
    """A graph with a run-time size, a parameter, a constant and two outputs."""
    random = np.random.default_rng(1)
    cx = Graph()
    cx.dim("s", 1, 64)
    x = cx.tensor(("s", 16), name="x")
    weight = cx.parameter((16, 8), name="weight")
    weight.set(random.standard_normal((16, 8), dtype=np.float32))
    bias = cx.constant(random.standard_normal(8, dtype=np.float32), name="bias")
    y = ops.softmax(x.matmul(weight) * scale + bias, -1).output("y")
    (y.sum(0)).output("total")
    return cx


def kept(folder: Path) -> list[Path]:
    """The files of a store."""
    return list(folder.glob("[!.]*"))


def stages(rt: Executable) -> set[str]:
    """The stages that `explain()` tells of."""
    lines = rt.explain().split("regions:")[0].splitlines()[1:]
    return {line.split()[0] for line in lines}


def test_a_program_is_compiled_once_for_all_processes(tmp_path: Path) -> None:
    first = attend().compile(cache=tmp_path)
    again = attend().compile(cache=tmp_path)
    assert "lower" in stages(first) and "lower" not in stages(again)
    for mine, theirs in zip(again(ROWS), first(ROWS)):
        np.testing.assert_array_equal(mine, theirs)
    assert [k.name for k in again.kernels] == [k.name for k in first.kernels]


@pytest.mark.parametrize("options", [{"threads": 1}, {"seed": 3}, {"passes": []}])
def test_another_program_or_other_options_have_another_key(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    attend().compile(threads=2, cache=tmp_path)
    attend(2.0).compile(threads=2, cache=tmp_path)
    assert len(kept(tmp_path)) == 2
    attend().compile(**{"threads": 2, **options}, cache=tmp_path)
    assert len(kept(tmp_path)) == (2 if "passes" in options else 3)


def test_what_a_search_found_makes_another_program(tmp_path: Path) -> None:
    from luminal.search.database import Database

    database = tmp_path / "tuning.sqlite"
    attend().compile(cache=tmp_path / "kept", database=database)
    Database(database).keep_plan("any", [])
    assert "lower" in stages(attend().compile(cache=tmp_path / "kept", database=database))


def test_other_values_of_a_constant_are_the_same_program(tmp_path: Path) -> None:
    def shift(by: float) -> Graph:
        cx = Graph()
        (cx.tensor(3, name="x") + cx.constant(np.full(3, by, np.float32), name="by")).output()
        return cx

    shift(1.0).compile(cache=tmp_path)
    rt = shift(5.0).compile(cache=tmp_path)
    assert "lower" not in stages(rt)
    assert rt(np.zeros(3, np.float32)).tolist() == [5.0] * 3


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut off":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "magic":
        data[0] ^= 255
    elif how == "version":
        data[8] ^= 255
    elif how == "table":
        data[-200] ^= 1
    elif how == "blob":  # machine code, or an array
        data[len(data) // 3 // 64 * 64] ^= 255
    path.write_bytes(bytes(data))


FAULTS = ["cut off", "empty", "magic", "version", "table", "blob"]


@pytest.mark.parametrize("how", FAULTS)
def test_a_damaged_program_is_compiled_anew(tmp_path: Path, how: str) -> None:
    expected = attend().compile(cache=tmp_path)(ROWS)
    (path,) = kept(tmp_path)
    spoil(path, how)
    with warnings.catch_warnings() if how == "version" else pytest.warns(match="made anew"):
        warnings.simplefilter("error" if how == "version" else "always")
        rt = attend().compile(cache=tmp_path)
    np.testing.assert_array_equal(rt(ROWS)[0], expected[0])
    assert "lower" not in stages(attend().compile(cache=tmp_path))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(UserWarning):
        rt = attend().compile(cache=tmp_path / "file")
    assert rt(ROWS)[0].shape == (7, 8)


def test_a_store_is_bounded(tmp_path: Path) -> None:
    attend().compile(cache=tmp_path)
    (path,) = kept(tmp_path)
    saved, size = file.read(path), path.stat().st_size
    store = Store(tmp_path, most_bytes=3 * size + 100)
    for number in range(6):
        store.keep(f"{number}", partial(file.write, saved))
    assert store.find("5", file.read) is not None
    assert store.find("0", file.read) is None
    assert sum(p.stat().st_size for p in kept(tmp_path)) <= store.most_bytes
    store.clear()
    assert not kept(tmp_path)


@pytest.mark.filterwarnings("error")
def test_writers_at_the_same_time(tmp_path: Path) -> None:
    attend().compile(cache=tmp_path)
    (path,) = kept(tmp_path)
    saved, store, lost = file.read(path), Store(tmp_path), []

    def work() -> None:
        for _ in range(20):
            store.keep("same", partial(file.write, saved))
            if store.find("same", file.read) is None:
                lost.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lost
    assert {p.name for p in kept(tmp_path)} == {path.name, "same.luminal"}


def test_a_saved_program_runs_without_its_graph(tmp_path: Path) -> None:
    rt = attend().compile()
    expected = rt(ROWS)
    rt.save(tmp_path / "model.luminal")
    loaded = luminal.load(tmp_path / "model.luminal")
    assert loaded.inputs == ("x",) and loaded.outputs == ("y", "total")
    assert loaded.sizes == {"s": (1, 64)}
    for mine, theirs in zip(loaded(ROWS), expected):
        np.testing.assert_array_equal(mine, theirs)
    loaded["x"] = ROWS[:2]
    loaded.run()
    np.testing.assert_allclose(loaded["y"], expected[0][:2], rtol=1e-6)
    loaded["weight"] = np.zeros((16, 8), np.float32)
    loaded.run()
    assert not np.allclose(loaded["y"], expected[0][:2])
    with pytest.raises(luminal.DimError):
        loaded(np.zeros((65, 16), np.float32))
    with pytest.raises(luminal.InputError, match="weight"):
        loaded["nothing"] = ROWS
    loaded.save(tmp_path / "again.luminal")
    assert not luminal.load(tmp_path / "again.luminal")["weight"].any()


def test_states_are_saved_as_they_are(tmp_path: Path) -> None:
    cx = Graph()
    total = cx.tensor(3, name="total").set(np.zeros(3, np.float32))
    x = cx.tensor(3, name="x")
    cx.donate(total, total + x)
    (total + x).output("sum")
    rt = cx.compile()
    for _ in range(3):
        rt[x] = np.ones(3, np.float32)
        rt.run()
    rt.save(tmp_path / "sums")
    loaded = luminal.load(tmp_path / "sums")
    loaded["x"] = np.ones(3, np.float32)
    loaded.run()
    assert loaded["sum"].tolist() == [4.0] * 3


def test_a_state_that_was_set_among_the_parameters_is_saved(tmp_path: Path) -> None:
    cx = Graph()
    total, w, x = cx.parameter(3, name="total"), cx.parameter((3, 4)), cx.tensor(4, name="x")
    cx.donate(total, total + w @ x)
    (total * 2.0).output("double")
    rt, ones, start = cx.compile(), np.ones((3, 4), np.float32), np.full(3, 5.0, np.float32)
    with pytest.raises(luminal.InputError, match="dimension 0 is 4, not 3"):
        rt.set_parameters(lambda: [(total, start), (w, ones.T)])
    rt.set_parameters(lambda: [(total, start), (w, ones)])
    rt(np.ones(4, np.float32))
    assert rt[total].tolist() == [9.0] * 3
    rt.save(tmp_path / "sums")
    assert luminal.load(tmp_path / "sums")(np.ones(4, np.float32)).tolist() == [18.0] * 3


def test_a_new_process_needs_no_compiler(tmp_path: Path) -> None:
    rt = attend().compile()
    rt.save(tmp_path / "model.luminal")
    np.save(tmp_path / "x.npy", ROWS)
    text = (
        "import luminal, numpy as np, sys; rt = luminal.load('model.luminal');"
        "np.save('y.npy', rt(np.load('x.npy'))[0]); assert 'torch' not in sys.modules"
    )
    source = str(Path(luminal.__file__).parents[1])
    command = [sys.executable, "-c", text]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source}, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), rt(ROWS)[0])


@pytest.mark.parametrize("how", FAULTS)
def test_a_damaged_file_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "model.luminal"
    cx = Graph()
    (cx.tensor(3, name="x") * 2).output()
    cx.compile().save(path)
    spoil(path, how)
    with pytest.raises(ArtifactError, match=r"model\.luminal"):
        luminal.load(path)


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_of_another_version_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    """Its machine code is not run: here there is none. One whose classes were others is named."""
    path = tmp_path / "model.luminal"
    cx = Graph()
    (cx.tensor(3, name="x") * 2).output()
    cx.compile().save(path)
    known = file.read(path)
    with monkeypatch.context() as older:
        older.setattr(file, "code_of", lambda *names: "older")
        rows = known.recording if readable else known.recording[:-1]
        file.write(replace(known, codes=(b"",) * len(known.codes), recording=rows), path)
    if readable:
        assert [*luminal.load(path)(np.float32([1, 2, 3]))] == [2, 4, 6]
        return
    with pytest.raises(ArtifactError, match=r"model\.luminal: written by another version"):
        luminal.load(path)


def test_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.luminal"
    attend().compile().save(path)
    file.write(replace(file.read(path), needs=("x87-unknown", "avx9")), path)
    with pytest.raises(ArtifactError, match=r"x87-unknown, avx9.*compile it here"):
        luminal.load(path)


def test_the_reference_device_has_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(luminal.Unsupported):
        attend().compile(device="reference").save(tmp_path / "model")


def test_plain_data_comes_back_as_it_was() -> None:
    s = Index.of("s")
    index = (s * 3 + 1) // 4 + (s % 5).minimum(3) * s - (s - 7).maximum(0)
    value = (index, [1, 1.0, True, None, -0.0, float("inf"), "1"], {"a": (index,)})
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value and back[0] is index
    assert [type(v) for v in back[1]] == [type(v) for v in value[1]]
    assert str(back[1][4]) == "-0.0"
    schedule = schedule_of("acc: n/32@ n/1#\nlayout b: 0/32 1/1 0/1\nregisters: 7")
    assert decode(json.loads(json.dumps(encode(schedule)))) == schedule


def test_only_plain_data_is_written_and_read() -> None:
    with pytest.raises(luminal.CompileError, match="module"):
        encode([np])
    for rows in ([["os.system", 0]], [["kernel.Constant", 0]], [["tuple", 5]]):
        with pytest.raises((ValueError, LookupError)):
            decode(rows)
