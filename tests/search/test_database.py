"""The tuning database: safe with several writers, never more than a hint, rebuilt where damaged."""

import multiprocessing
import sqlite3
from dataclasses import replace

import pytest
from search_cases import prepared

from luminal.errors import ArtifactError
from luminal.search import database as module
from luminal.search.database import Database, Trial, Tuned, key_of, user_path

FOUND = Tuned({"block m": 32, "order": "m n"}, 1.0, 1.5, 0.5, 7, [({}, 1.5)])


def test_what_is_kept_is_found(tmp_path):
    base = Database(tmp_path / "folder" / "t.sqlite")
    assert base.find("key") is None and not base.path.exists()
    base.keep("key", "gemm", FOUND)
    assert Database(base.path).find("key") == FOUND
    assert base.find("other") is None
    base.keep("key", "gemm", replace(FOUND, choices={}))
    assert base.find("key").choices == {}


def test_trials_and_rates(tmp_path):
    base = Database(tmp_path / "t.sqlite")
    trials = [Trial({"a": 1}, "ok", 2.0), Trial({"a": 2}, "wrong", 0.0)]
    base.add_trials("key", trials)
    base.add_trials("key", trials[:1])
    assert base.trials("key") == trials and base.trials("other") == []
    base.keep_rates("machine", {"fma": 3.0})
    assert base.rates("machine") == {"fma": 3.0} and base.rates("other") is None


def harmed(path, place):
    content = bytearray(path.read_bytes())
    content[place : place + 100] = bytes(100)
    path.write_bytes(content)
    return bytes(content)


def test_a_damaged_file_is_set_aside(tmp_path):
    path = tmp_path / "t.sqlite"
    base = Database(path)
    base.keep("key", "gemm", FOUND)
    content = harmed(path, 100)
    with pytest.warns(UserWarning, match="damaged") as told:
        assert base.find("key") is None
    assert len(told) == 1
    base.keep("key", "gemm", FOUND)
    assert base.find("key") == FOUND
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == content
    base.clear()
    assert base.find("key") is None and path.exists() and aside.exists()


def test_the_users_own_file_is_set_aside_whatever_is_in_it(tmp_path, monkeypatch):
    path = tmp_path / "t.sqlite"
    monkeypatch.setattr(module, "user_path", lambda: path)
    path.write_bytes(b"not a database at all" * 100)
    base = Database(path)
    with pytest.warns(UserWarning, match="damaged"):
        base.keep("key", "gemm", FOUND)
    assert base.find("key") == FOUND and "set aside: 1" in base.describe()
    base.clear()
    assert [p.name for p in tmp_path.iterdir()] == ["t.sqlite"]


@pytest.mark.parametrize("kind", ["weights", "database"])
def test_a_file_that_is_no_tuning_database_is_left_as_it_is(tmp_path, kind):
    path = tmp_path / "precious"
    if kind == "weights":
        path.write_bytes(b"GGUF" * 1000)
    else:  # of another program
        with sqlite3.connect(path) as connection:
            connection.execute("create table bookmarks (address text)")
        connection.close()
    content = path.read_bytes()
    base = Database(path)
    with pytest.warns(UserWarning, match="not a tuning database") as told:
        base.keep("key", "gemm", FOUND)
        base.add_trials("key", [Trial({}, "ok", 1.0)])
        assert base.find("key") is None
    assert len(told) == 1
    with pytest.raises(ArtifactError, match="left as it is"):
        Database(path).clear()
    assert path.read_bytes() == content and [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_a_folder_that_can_only_be_read(tmp_path, monkeypatch):
    base = Database(tmp_path / "t.sqlite")
    base.keep("key", "gemm", FOUND)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    assert base.find("key") == FOUND
    assert [p.name for p in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_passing_fault_is_no_damage(tmp_path, monkeypatch):
    base = Database(tmp_path / "t.sqlite")
    base.keep("key", "gemm", FOUND)
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.01)
    with sqlite3.connect(base.path) as other:
        other.execute("begin immediate")
        with pytest.warns(UserWarning, match="locked"):
            base.keep("more", "gemm", FOUND)
    other.close()
    assert Database(base.path).find("key") == FOUND and not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize(("place", "bit", "told"), [
    (18, 4, "readonly"),  # the version needed to write (sqlite.org/fileformat.html, 1.3.3)
    (4100, 128, "damaged"),  # more cells than the second page has (the same, 1.6)
])  # fmt: skip
def test_a_file_with_a_flipped_bit_is_set_aside(tmp_path, place, bit, told):
    path = tmp_path / "t.sqlite"
    for number in range(8):
        Database(path).keep(f"{number}", "gemm", FOUND)
    sqlite3.connect(path).execute("pragma wal_checkpoint(truncate)").connection.close()
    content = bytearray(path.read_bytes())
    content[place] |= bit
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=told):
        Database(path).keep("more", "gemm", FOUND)
    assert Database(path).find("more") == FOUND and list(tmp_path.glob("*.damaged-*"))


def test_damage_in_the_middle(tmp_path):
    path = tmp_path / "t.sqlite"
    base = Database(path)
    for number in range(200):
        base.keep(f"key{number}", "gemm", FOUND)
    sqlite3.connect(path).execute("pragma wal_checkpoint(truncate)")
    content = bytearray(path.read_bytes())
    content[4096:-4096] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.warns(UserWarning):
        found = [base.find(f"key{number}") for number in range(200)]
    assert all(entry is None or entry == FOUND for entry in found)
    base.keep("key", "gemm", FOUND)
    assert base.find("key") == FOUND


@pytest.mark.parametrize("column", ["key", "part", "found", "kind"])
def test_changed_rows_are_not_believed(tmp_path, column):
    base = Database(tmp_path / "t.sqlite")
    base.keep("key", "gemm", FOUND)
    base.keep_plan("key", [1])
    base.add_trials("key", [Trial({}, "ok", 1.0)])
    base.keep_rates("key", {"fma": 1.0})
    with sqlite3.connect(base.path) as connection:
        connection.execute(f"update rows set {column} = {column} || ' '")
    for key in ("key", "key "):
        assert base.find(key) is None and base.plan(key) is None
        assert base.trials(key) == [] and base.rates(key) is None
    assert "0 kernels tuned, 0 candidates" in base.describe()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    base = Database(tmp_path / "file" / "t.sqlite")
    with pytest.warns(UserWarning, match="not used"):
        base.keep("key", "gemm", FOUND)
    base.keep("key", "gemm", FOUND)  # says so once
    assert base.find("key") is None


def write(path, name):
    module.BUSY_SECONDS = 300.0
    base = Database(path)
    for number in range(20):
        base.keep(f"{name}{number}", "gemm", FOUND)
        base.add_trials(f"{name}{number}", [Trial({}, "ok", 1.0)])


def test_several_writers(tmp_path):
    path = tmp_path / "t.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write, args=(path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(300)
        assert writer.exitcode == 0
    base = Database(path)
    assert all(base.find(f"{name}{n}") == FOUND for name in "abc" for n in range(20))
    assert "60 kernels tuned" in base.describe()


def test_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_KERNELS", 3)
    base = Database(tmp_path / "t.sqlite")
    for number in range(5):
        base.keep(f"key{number}", "gemm", FOUND)
        base.add_trials(f"key{number}", [Trial({}, "ok", 1.0)])
    assert [base.find(f"key{n}") is not None for n in range(5)] == [False] * 2 + [True] * 3
    base.keep("key4", "gemm", FOUND)
    assert base.trials("key1") == [] and base.trials("key4") != []


def test_keys_tell_apart_what_matters():
    kernel = prepared("gemm")
    key = key_of(kernel, "machine", 2)
    assert key == key_of(replace(kernel, name="other"), "machine", 2)
    others = [
        key_of(prepared("softmax"), "machine", 2),
        key_of(kernel, "other machine", 2),
        key_of(kernel, "machine", 1),
        key_of(replace(kernel, hints={"s": 3}), "machine", 2),
    ]
    assert len({key, *others}) == 5


def test_the_place_of_the_users_file():
    assert user_path().name.endswith(".sqlite") and user_path().parent.name == "luminal"


def test_no_database_at_all():
    base = Database(None)
    base.keep("key", "gemm", FOUND)
    base.add_trials("key", [Trial({}, "ok", 1.0)])
    base.keep_rates("machine", {"fma": 1.0})
    assert base.find("key") is None and base.trials("key") == [] and not base.exists
