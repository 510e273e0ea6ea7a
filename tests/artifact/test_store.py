"""Folders of kept files: whose they are, who may write there, what is removed and what never."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from luminal.container import whole
from luminal.errors import ArtifactError
from luminal.folders import user_folder
from luminal.store import Store


def put(store: Store, key: str, data: bytes = b"data") -> bool:
    return store.keep(key, lambda path: put_whole(path, data), len(data))


def put_whole(path: Path, data: bytes) -> None:
    with whole(path) as file:
        file.write(data)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("[!.]*")}


def damaged(path: Path) -> NoReturn:
    raise ArtifactError("damaged")


def test_a_users_own_files_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.luminal").write_bytes(bytes(5000))
    (tmp_path / ".luminal-mine.part").write_bytes(b"")
    store = Store(tmp_path, most_bytes=3000)
    assert put(store, "first", bytes(2000)) and put(store, "second", bytes(2000))
    assert names(tmp_path) == {"mine.luminal", "second.luminal"}
    with pytest.warns(UserWarning, match="made anew"):
        assert store.find("mine", damaged) is None
    with pytest.warns(UserWarning, match="no store has written it"):
        assert not put(store, "mine")
    store.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"mine.luminal", ".luminal-mine.part"}
    assert (tmp_path / "mine.luminal").stat().st_size == 5000


def test_what_a_killed_writer_left_is_counted_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    left = tmp_path / f".luminal-{'0' * 16}.part"
    left.write_bytes(bytes(1 << 20))
    assert "1 files, 1.0 MiB" in store.describe()
    put(store, "a")
    assert left.exists()  # its writer may be at work
    os.utime(left, (0, 0))
    monkeypatch.setattr("luminal.store._written", {})  # as in a new process
    put(store, "a")
    assert not left.exists()
    left.write_bytes(b"")
    store.clear()
    assert not list(tmp_path.iterdir())


def test_only_the_user_may_read_and_write_what_is_kept(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(Store(tmp_path / "outer" / "inner"), "a")
    finally:
        os.umask(before)
    for path in (tmp_path / "outer").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "outer").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("what", ["", "a.luminal"])
def test_nothing_is_used_that_others_may_have_written(tmp_path: Path, what: str) -> None:
    store = Store(tmp_path)
    put(store, "a")
    found, mode = tmp_path / what, (tmp_path / what).stat().st_mode
    found.chmod(0o777)
    with pytest.warns(UserWarning, match="other users may write"):
        assert store.find("a", Path.read_bytes) is None
    found.chmod(mode)
    assert store.find("a", Path.read_bytes) == b"data"
    if os.geteuid() == 0:
        os.chown(found, 12345, 12345)
        with pytest.warns(UserWarning, match="belongs to another user"):
            assert store.find("a", Path.read_bytes) is None
        assert what or not put(store, "b")


def test_a_folder_that_can_only_be_read_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    store = Store(tmp_path)
    put(store, "a")

    def refused(*_: object) -> NoReturn:
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "utime", refused)
    assert store.find("a", Path.read_bytes) == b"data"
    assert not recwarn.list and names(tmp_path) == {"a.luminal"}


def test_what_cannot_be_read_now_may_be_whole(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, "a")

    def too_many(path: Path) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    with pytest.warns(UserWarning, match="too many open files"):
        assert store.find("a", too_many) is None
    assert store.find("a", Path.read_bytes) == b"data"
    with pytest.warns(UserWarning, match="made anew"):
        assert store.find("a", damaged) is None
    assert not names(tmp_path)


def test_a_file_under_another_key_is_not_believed(tmp_path: Path) -> None:
    store = Store(tmp_path, suffix=".machine")
    for key in "ab":
        assert store.remembered(key, key.encode) == key.encode()
    (tmp_path / "b.machine").write_bytes((tmp_path / "a.machine").read_bytes())
    with pytest.warns(UserWarning, match="another name"):
        assert store.remembered("b", lambda: b"new") == b"new"
    assert store.remembered("b", lambda: b"no") == b"new"


def test_the_list_of_files_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.store.MOST_LISTED", 4)
    store = Store(tmp_path, most_bytes=3000)
    for number in range(30):
        put(store, f"{number:02}", bytes(1000))
    assert len((tmp_path / ".luminal-kept").read_text().splitlines()) <= 12
    store.clear()
    assert not list(tmp_path.iterdir())


def test_a_damaged_list_of_files(tmp_path: Path) -> None:
    (tmp_path / ".luminal-kept").write_bytes(b"\x00.luminal\n\xff/.luminal\n\xfe\n")
    store = Store(tmp_path)
    put(store, "a", b"data")
    assert store.find("a", Path.read_bytes) == b"data" and "1 files" in store.describe()


def test_a_list_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept later is ours all the same."""
    store, listed, write = Store(tmp_path), tmp_path / ".luminal-kept", os.write
    assert put(store, "a") and put(store, "b")
    listed.write_bytes(listed.read_bytes()[:-4])
    assert put(store, "c") and put(store, "c") and put(store, "a")
    store.clear()
    assert names(tmp_path) == {"b.luminal"}
    monkeypatch.setattr(os, "write", lambda number, data: write(number, data[:3]))
    with pytest.warns(UserWarning, match="no room for its name"):
        assert not put(store, "d")
    monkeypatch.undo()
    assert put(store, "d") and put(store, "d") and names(tmp_path) == {"b.luminal", "d.luminal"}


@pytest.mark.parametrize("known", [True, False])
def test_a_full_folder_is_looked_at_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    looks: list[int] = []
    shrink = Store._shrink
    monkeypatch.setattr(Store, "_shrink", lambda *given: (looks.append(0), shrink(*given)))
    most, size = 64_000, 500  # 8 files are a share
    for number in range(400):
        store, path = Store(tmp_path, most), tmp_path / f"{number:03}.luminal"
        assert store.keep(path.stem, lambda path: put_whole(path, bytes(size)), size * known)
        os.utime(path, (number, number))
        assert sum(file.stat().st_size for file in tmp_path.glob("*.luminal")) <= most
        assert looks and path.exists()
    assert len(looks) <= 2 * 400 // 8 + 1
    kept = sorted(names(tmp_path))
    assert len(kept) > 100 and kept[0] == f"{400 - len(kept):03}.luminal"  # the youngest


@pytest.mark.parametrize("size, kept", [(1 << 20, True), (1 << 30, False)])
def test_small_files_are_kept_on_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kept: bool
) -> None:
    monkeypatch.setattr("luminal.store.SPARE", 0.1)
    usage = SimpleNamespace(total=100 << 30, used=98 << 30, free=2 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    store, told = Store(tmp_path, most_bytes=8 << 30), []
    monkeypatch.setattr(warnings, "warn", lambda text, **_: told.append(text))
    assert store.keep("a", lambda path: put_whole(path, b"data"), size) == kept
    assert ["no room on the disk" in text for text in told] == [True] * (not kept)


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("LOCALAPPDATA", value)
        with pytest.warns(UserWarning, match="home"):
            assert user_folder() is None
        with pytest.warns(UserWarning, match="home"):
            assert Store.of_machine().remembered("a", lambda: b"made") == b"made"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mode in (0o600, 0o666):
        with whole(path, mode) as file:
            file.write(b"new")
        assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 & ~mode == 0
    with pytest.raises(ZeroDivisionError), whole(path) as file:
        file.write(b"other")
        _ = 1 // 0
    assert [p.name for p in tmp_path.iterdir()] == ["file"] and path.read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Devices too: /dev/null of who may."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no file"), whole(tmp_path / "pipe") as file:
        file.write(b"new")
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 1


def test_a_home_that_is_no_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be another folder in every working directory."""
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("LOCALAPPDATA", "")
    with pytest.warns(UserWarning, match="no absolute path"):
        assert user_folder() is None
