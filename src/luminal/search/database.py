"""The tuning database: which choices were best for a kernel on a kind of machine.

One SQLite file for each user, or one for a project where its path is given. Its rows only say which
choices the default schedule shall take otherwise: every schedule is written and checked anew, so
that no file can bring in a wrong kernel. A row that is not what was written is not there; a file
that SQLite finds damaged is set aside under another name; one that is no tuning database is left.
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
from typing import Any, TypeAlias

from ..backend.devices import Device
from ..errors import ArtifactError
from ..folders import make_private, user_folder
from ..kernel.kernel import Kernel
from ..kernel.target import Target
from ..scheduling.decisions import Choices
from ..sources import CHOOSING, version_of
from .points import dump_point, load_point

FORMAT = 3
NAME = f"tuning-{FORMAT}.sqlite"
DAMAGED = ".damaged-"  # in the names of files that were set aside
BUSY_SECONDS = 10.0  # how long to wait for another writer
MOST_KERNELS = 20_000  # then the oldest go
KIND = 0x4C756D69, 0x54756E00 + FORMAT  # application_id and user_version: one flipped bit hits one
PASSING = {  # no damage: of SQLite's result codes (https://sqlite.org/rescode.html), the low byte
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_AUTH,
}  # fmt: skip
FAULTS = sqlite3.Error, UnicodeDecodeError  # the second: of a message that quotes a damaged file

# kind: "tuned", "trial", "plan" or "rates". part: of several rows of a key. found: JSON.
SCHEMA = """
create table if not exists rows (
    kind text, key text, part text, found text, proof text, made real, primary key (kind, key, part)
) without rowid
"""

Statement: TypeAlias = tuple[str, Sequence[object]]


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
        return self.path is not None and not self._broken and _size(self.path) > 0

    # ---- what was found

    def find(self, key: str) -> Tuned | None:
        """The best known choices of a kernel."""
        for _, found in self._rows("tuned", key):
            _, choices, seconds, normal, roofline, tried, runners = found
            others = [(dict(each), taken) for each, taken in runners]
            return Tuned(choices, seconds, normal, roofline, tried, others)
        return None

    def keep(self, key: str, kernel: str, found: Tuned) -> None:
        """Remember the result of a search."""
        numbers = found.seconds, found.normal, found.roofline, found.tried
        runners = [[dict(choices), seconds] for choices, seconds in found.runners]
        row = _row("tuned", key, [kernel, dict(found.choices), *numbers, runners])
        self._write([row, *_shrunk("tuned")])

    def trials(self, key: str) -> list[Trial]:
        """What earlier searches have tried."""
        return [Trial(load_point(text), *found) for text, found in self._rows("trial", key)]

    def add_trials(self, key: str, trials: Sequence[Trial]) -> None:
        """Remember what was tried, so that a search can go on later."""
        self._write(
            [_row("trial", key, [t.status, t.seconds], dump_point(t.choices)) for t in trials]
        )

    def plan(self, key: str) -> list[Any] | None:
        """What `keep_plan` has kept for a region."""
        return next((found for _, found in self._rows("plan", key)), None)

    def keep_plan(self, key: str, found: Sequence[Any]) -> None:
        """Remember the plan of a region."""
        self._write([_row("plan", key, list(found)), *_shrunk("plan")])

    def rates(self, machine: str) -> dict[str, float] | None:
        """The ceilings of a machine, as they were measured."""
        return next((found for _, found in self._rows("rates", machine)), None)

    def keep_rates(self, machine: str, found: Mapping[str, float]) -> None:
        self._write([_row("rates", machine, dict(found))])

    # ---- upkeep

    def clear(self) -> None:
        """Forget everything. Raises ArtifactError where the file is no tuning database, or cannot
        be written."""
        if self.path is None or not self.path.exists():
            return
        if _size(self.path) and not _ours(self.path) and not self._own:
            raise ArtifactError(f"{self.path}: not a tuning database of luminal: left as it is")
        if self._own:
            for path in self._set_aside():
                path.unlink(missing_ok=True)
        self._write([("delete from rows", ())])
        if self._broken:
            raise ArtifactError(f"{self.path}: cannot be emptied")

    def describe(self) -> str:
        """The file in a few lines, for people."""
        if self.path is None or not self.exists:
            return f"{self.path}: no searches yet"
        tuned = [found for _, found in self._rows("tuned")]
        tried = sum(1 for _ in self._rows("trial"))
        head = f"{self.path}: {_size(self.path) / 1024:.0f} KiB, {len(tuned)} kernels tuned"
        lines = [f"{head}, {tried} candidates tried"]
        if self._set_aside():
            lines.append(f"damaged ones that were set aside: {len(self._set_aside())}")
        gains = sorted((normal / taken, name) for name, _, taken, normal, *_ in tuned if taken)
        if gains:
            average = sum(gain for gain, _ in gains) / len(gains)
            lines.append(f"average gain over the default schedule: {average:.2f} x")
        return "\n".join(lines + [f"  {gain:5.2f} x  {name}" for gain, name in gains[:-6:-1]])

    def state(self) -> str:
        """Another text whenever a search has found something."""
        query = "select count(*), max(made) from rows where kind = ?"
        return repr([self._read(query, kind) for kind in ("tuned", "plan")])

    # ---- rows

    def _rows(self, kind: str, key: str | None = None) -> Iterator[tuple[str, Any]]:
        """(part, what was found) of all rows of a key, or of a kind, that are as they were
        written."""
        query, values = "select key, part, found, proof from rows where kind = ?", [kind]
        if key is not None:
            query, values = f"{query} and key = ?", [kind, key]
        for own, part, text, proof in self._read(query, *values):
            wanted = key in (None, own)  # a damaged page may be found under another's key
            if wanted and proof == _proof(kind, own, part, text):
                yield part, json.loads(text)

    def _read(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if self.path is None or not self.exists or not self._usable(self.path):
            return []
        try:
            with _opened(self.path) as connection:
                return connection.execute(query, values).fetchall()
        except FAULTS as error:
            self._fault(error)
        return []

    def _write(self, statements: Sequence[Statement]) -> None:
        """One transaction; a second attempt on a new file where the first finds damage."""
        for _ in range(2):
            if self.path is None or self._broken:
                return
            try:
                (make_private if self._own else _make)(self.path.parent)
                if not self._usable(self.path):
                    continue
                with _created(self.path) as connection, connection:
                    for statement, values in statements:
                        connection.execute(statement, values)
                return
            except OSError as error:
                self._give_up(error)
            except FAULTS as error:
                self._fault(error)

    # ---- the file

    @property
    def _own(self) -> bool:
        """It lies where nobody but us puts a file."""
        return self.path == user_path()

    def _usable(self, path: Path) -> bool:
        """The file is ours, or there is none yet; no other program's is touched."""
        if not _size(path) or _ours(path):
            return True
        if self._own:
            self._put_aside("not a tuning database")
        else:
            self._give_up("not a tuning database of luminal: left as it is")
        return False

    def _fault(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        marked = code == sqlite3.SQLITE_READONLY and self.path and _writable(self.path)
        if code in PASSING and not marked:  # a version in the file forbids writing, not the system
            self._give_up(error)
        else:
            self._put_aside(error)

    def _give_up(self, why: object) -> None:
        if not self._broken:
            warnings.warn(f"{self.path}: the tuning database is not used: {why}", stacklevel=5)
        self._broken = True

    def _put_aside(self, why: object) -> None:
        """Start anew: everything in the file can be found again."""
        aside = f"{self.path}{DAMAGED}{time.time_ns():x}"
        try:
            for suffix in ("", "-wal", "-shm"):
                if Path(f"{self.path}{suffix}").exists():
                    os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")
        except OSError as error:
            self._give_up(f"{why}; {error}")
            return
        warnings.warn(f"a damaged tuning database is now {aside}: {why}", stacklevel=5)

    def _set_aside(self) -> list[Path]:
        assert self.path is not None
        return sorted(self.path.parent.glob(f"{self.path.name}{DAMAGED}*"))


def _size(path: Path) -> int:
    """Bytes; 0 where there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _ours(path: Path) -> bool:
    """A tuning database, damaged or not (https://sqlite.org/fileformat.html, 1.3)."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return False
    numbers = int.from_bytes(head[68:72], "big"), int.from_bytes(head[60:64], "big")
    return any(number == wanted for number, wanted in zip(numbers, KIND))


@contextmanager
def _opened(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    where = path.absolute().as_uri()
    if not write and not _writable(path):
        where += "?immutable=1"  # readers too write beside the file, else
    connection = sqlite3.connect(where, timeout=BUSY_SECONDS, uri=True)
    try:
        connection.execute("pragma cell_size_check = on")  # finds damage that hides rows
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection
    finally:
        connection.close()


@contextmanager
def _created(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file with its table; write-ahead, so that readers never wait."""
    with _opened(path, write=True) as connection:
        if not _size(path):  # all of it in one transaction: nobody meets a file without its marks
            connection.execute("begin immediate")
            connection.execute(f"pragma application_id = {KIND[0]}")
            connection.execute(f"pragma user_version = {KIND[1]}")
            connection.execute(SCHEMA)
            connection.commit()
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        yield connection


def _row(kind: str, key: str, found: Any, part: str = "") -> Statement:
    text = json.dumps(found)
    values = kind, key, part, text, _proof(kind, key, part, text), time.time()
    return "insert or replace into rows values (?, ?, ?, ?, ?, ?)", values


def _shrunk(kind: str) -> list[Statement]:
    """The youngest of a kind stay, and what was tried for those."""
    old = "select key from rows where kind = ? order by made desc limit -1 offset ?"
    kept = "select key from rows where kind = 'tuned'"
    return [
        (f"delete from rows where kind = ? and key in ({old})", (kind, kind, MOST_KERNELS)),
        (f"delete from rows where kind = 'trial' and key not in ({kept})", ()),
    ]


def _proof(*texts: str) -> str:
    """Ties what was found to its key: a flipped bit is no other schedule."""
    return hashlib.sha256("\n".join(map(repr, texts)).encode()).hexdigest()[:32]


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


def databases(wanted: str | Path | bool | None) -> list[Database]:
    """Those that are read, in order; the first is written. wanted: as for `Graph.compile`."""
    if wanted is False:
        return [Database(None)]
    own = [] if wanted is None or wanted is True else [Database(Path(wanted))]
    return [*own, Database(user_path())]


def state_of(
    backend: Device, target: Target, seed: int, wanted: str | Path | bool | None
) -> tuple[str, ...]:
    """What may change the choices for a program."""
    states = (database.state() for database in databases(wanted))
    return backend.fingerprint(target), repr(target), str(seed), *states
