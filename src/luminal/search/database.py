"""The tuning database: which choices were best for a kernel on a kind of machine.

One SQLite file for each user, or one for a project where its path is given. Its rows only say which
choices the default schedule shall take otherwise: every schedule is written and checked anew, so
that no file can bring in a wrong kernel. A damaged file is removed, with a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..folders import user_folder
from ..kernel.kernel import Kernel
from ..scheduling.decisions import Choices
from ..sources import CHOOSING, version_of
from .space import dump_point, load_point

FORMAT = 2
NAME = f"tuning-{FORMAT}.sqlite"
BUSY_SECONDS = 10.0  # how long to wait for another writer
MOST_KERNELS = 20_000  # then the oldest go

SCHEMA = """
create table if not exists tuned (
    key text primary key, kernel text, choices text, seconds real, normal real, roofline real,
    tried integer, runners text, proof text, made real
);
create table if not exists trials (
    key text, choices text, status text, seconds real, primary key (key, choices)
);
create table if not exists plans (key text primary key, found text, proof text, made real);
create table if not exists rates (machine text primary key, found text, made real);
"""


@dataclass(frozen=True)
class Tuned:
    """What a search found. seconds and normal: of one call, tuned and by default. roofline: the
    least time that the machine's ceilings allow. runners: (choices, seconds) of the next best."""

    choices: Choices
    seconds: float
    normal: float
    roofline: float = 0.0
    tried: int = 0
    runners: Sequence[tuple[Choices, float]] = ()

    @property
    def gain(self) -> float:
        """How many times as fast as the default."""
        return self.normal / self.seconds if self.seconds else 1.0


@dataclass(frozen=True)
class Trial:
    """One candidate that was tried."""

    choices: Choices
    status: str
    seconds: float


@dataclass
class Database:
    """Rows by key. Where the file cannot be used it is empty, and says so once. No path: nothing is
    found, nothing is kept."""

    path: Path | None
    _broken: bool = False

    @property
    def exists(self) -> bool:
        """There is a file to look into."""
        return self.path is not None and not self._broken and self.path.exists()

    # ---- what was found

    def find(self, key: str) -> Tuned | None:
        """The best known choices of a kernel."""
        rows = self._read("select * from tuned where key = ?", key)
        for _, _, choices, seconds, normal, roofline, tried, runners, proof, _ in rows:
            if proof != _proof(key, choices):
                continue
            try:
                others = [(load_point(json.dumps(c)), float(s)) for c, s in json.loads(runners)]
                return Tuned(load_point(choices), seconds, normal, roofline, tried, others)
            except (ValueError, TypeError):
                continue
        return None

    def keep(self, key: str, kernel: str, found: Tuned) -> None:
        """Remember the result of a search."""
        choices = dump_point(found.choices)
        runners = json.dumps([[dict(c), s] for c, s in found.runners])
        row = (
            key, kernel, choices, found.seconds, found.normal, found.roofline, found.tried, runners,
            _proof(key, choices), time.time(),
        )  # fmt: skip
        with self._writing() as connection:
            connection.execute(f"insert or replace into tuned values ({_marks(row)})", row)
            self._shrink(connection)

    def trials(self, key: str) -> list[Trial]:
        """What earlier searches have tried."""
        rows = self._read("select choices, status, seconds from trials where key = ?", key)
        found = []
        for choices, status, seconds in rows:
            try:
                found.append(Trial(load_point(choices), str(status), float(seconds)))
            except (ValueError, TypeError):
                continue
        return found

    def add_trials(self, key: str, trials: Sequence[Trial]) -> None:
        """Remember what was tried, so that a search can go on later."""
        rows = [(key, dump_point(t.choices), t.status, t.seconds) for t in trials]
        with self._writing() as connection:
            connection.executemany("insert or replace into trials values (?, ?, ?, ?)", rows)

    def plan(self, key: str) -> list[Any] | None:
        """What `keep_plan` has kept for a region."""
        for text, proof in self._read("select found, proof from plans where key = ?", key):
            if proof == _proof(key, text):
                found = json.loads(text)
                return found if isinstance(found, list) else None
        return None

    def keep_plan(self, key: str, found: Sequence[Any]) -> None:
        """Remember the plan of a region."""
        text = json.dumps(found)
        row = (key, text, _proof(key, text), time.time())
        with self._writing() as connection:
            connection.execute(f"insert or replace into plans values ({_marks(row)})", row)
            self._shrink(connection)

    def rates(self, machine: str) -> dict[str, float] | None:
        """The ceilings of a machine, as they were measured."""
        for (text,) in self._read("select found from rates where machine = ?", machine):
            try:
                return {str(name): float(value) for name, value in json.loads(text).items()}
            except (ValueError, AttributeError, TypeError):
                continue
        return None

    def keep_rates(self, machine: str, found: Mapping[str, float]) -> None:
        with self._writing() as connection:
            row = (machine, json.dumps(dict(found)), time.time())
            connection.execute("insert or replace into rates values (?, ?, ?)", row)

    # ---- upkeep

    def clear(self) -> None:
        """Forget everything."""
        for suffix in ("", "-wal", "-shm") if self.path else ():
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def describe(self) -> str:
        """The file in a few lines, for people."""
        if self.path is None or not self.exists:
            return f"{self.path}: no searches yet"
        (kernels, gain), *_ = self._read(
            "select count(*), avg(normal / seconds) from tuned where seconds > 0"
        ) or [(0, None)]
        (tried,), *_ = self._read("select count(*) from trials") or [(0,)]
        size = self.path.stat().st_size / 1024
        lines = [f"{self.path}: {size:.0f} KiB, {kernels} kernels tuned, {tried} candidates tried"]
        if gain:
            lines.append(f"average gain over the default schedule: {gain:.2f} x")
        best = self._read(
            "select kernel, normal / seconds from tuned where seconds > 0 order by 2 desc limit 5"
        )
        return "\n".join(lines + [f"  {ratio:5.2f} x  {name}" for name, ratio in best])

    def _shrink(self, connection: sqlite3.Connection) -> None:
        for table in ("tuned", "plans"):
            connection.execute(
                f"delete from {table} where key in (select key from {table} order by made desc "
                "limit -1 offset ?)",
                (MOST_KERNELS,),
            )
        connection.execute("delete from trials where key not in (select key from tuned)")

    def state(self) -> str:
        """Another text whenever a search has found something."""
        tables = ("tuned", "plans")
        return repr([self._read(f"select count(*), max(made) from {table}") for table in tables])

    # ---- the file

    def _read(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if self.path is None or not self.exists:
            return []
        try:
            with _opened(self.path) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:  # locked, not readable
            self._give_up(error)
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
        return []

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Where the file cannot be written it goes to memory, and is lost."""
        connection = self._writable() or _created(":memory:")
        try:
            with connection:
                yield connection
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
        finally:
            connection.close()

    def _writable(self) -> sqlite3.Connection | None:
        if self._broken or self.path is None:
            return None
        for attempt in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return _created(str(self.path))
            except (sqlite3.OperationalError, OSError) as error:
                self._give_up(error)
                return None
            except sqlite3.DatabaseError as error:
                if attempt:
                    raise
                self._put_aside(error)
        return None

    def _give_up(self, error: Exception) -> None:
        if not self._broken:
            warnings.warn(f"{self.path}: the tuning database is not used: {error}", stacklevel=4)
        self._broken = True

    def _put_aside(self, error: Exception) -> None:
        """Start anew: everything in the file can be found again."""
        warnings.warn(f"{self.path}: a damaged tuning database was removed: {error}", stacklevel=4)
        self.clear()


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(str(path), timeout=BUSY_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def _created(path: str) -> sqlite3.Connection:
    """A connection to a file with all tables; write-ahead, so that readers never wait."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        connection.executescript(SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _marks(row: Sequence[object]) -> str:
    return ", ".join("?" * len(row))


def _proof(key: str, choices: str) -> str:
    """Ties the choices to their key: a flipped bit is no other schedule."""
    return hashlib.sha256(f"{key} {choices}".encode()).hexdigest()[:16]


# ---- keys


def user_path() -> Path | None:
    """The file of this user, in the platform's place for caches."""
    folder = user_folder()
    return None if folder is None else folder / NAME


def key_of(kernel: Kernel, machine: str, threads: int) -> str:
    """Structure, sizes and dtypes of the kernel; the machine; the compiler; the threads."""
    plain = replace(kernel, name="")
    text = f"{plain!r}\n{machine}\n{threads}\n{compiler_version()}"
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def compiler_version() -> str:
    """Of everything that turns choices into machine code; nobody else's where that has changed
    since it was imported."""
    return f"{FORMAT} {version_of(*CHOOSING) or os.urandom(16).hex()}"
