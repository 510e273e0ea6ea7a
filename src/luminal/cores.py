"""Which CPUs this process takes: of those that it may use one of each core before the other
hardware threads, and none that another process of this package has taken."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CLAIMS = Path("/dev/shm/luminal.cpus")  # of all users; it stays empty
LOCK = struct.Struct("hhqqi0q")  # struct flock of 64-bit Linux: type, whence, start, bytes, process


def count() -> int:
    """Threads for a program: one for each core, no more than a container's quota of time."""
    allowed = _allowed()
    ranks = _ranks(allowed) if allowed else {}
    whole = sum(rank == 0 for rank in ranks.values()) or os.cpu_count() or 1
    share = quota()
    return whole if share is None else max(1, min(whole, int(share)))


def take(threads: int) -> list[int]:
    """A CPU for each thread, for this process until it ends. Empty where threads are better not
    held in place: too few CPUs are free, or a quota tells of other containers, unseen, on these."""
    allowed, share = _allowed(), quota()
    if not 1 < threads <= len(allowed) or (share is not None and share < len(allowed)):
        return []
    ranks = _ranks(allowed)
    return _claims.take(sorted(allowed, key=lambda cpu: (ranks[cpu], cpu)), threads)


def _allowed() -> list[int]:
    """The affinity mask; empty where the system has none."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _ranks(allowed: Sequence[int]) -> dict[int, int]:
    """How many of the CPUs before it are on the same core."""
    seen: dict[str, int] = {}
    ranks = {}
    for cpu in allowed:
        core = str(cpu)
        with contextlib.suppress(OSError):  # containers hide some of these files
            core = (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        ranks[cpu] = seen.get(core, 0)
        seen[core] = ranks[cpu] + 1
    return ranks


# ---- what a container may use


def quota() -> float | None:
    """CPUs' worth of time that the control groups of this process allow; None: no limit.

    `cpu.max` of version 2, `cpu.cfs_quota_us` over `cpu.cfs_period_us` of version 1, here and in
    all groups around (Linux, Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst).
    """
    found = []
    for folder in _groups():
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            found.append(_share((folder / "cpu.max").read_text()))
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            parts = [(folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")]
            found.append(_share(" ".join(parts)))
    return min((share for share in found if share is not None), default=None)


def _share(text: str) -> float | None:
    """Of "max 100000", "150000 100000" or "-1 100000"."""
    limit, period = text.split()
    return None if limit == "max" or int(limit) <= 0 else int(limit) / int(period)


def _groups() -> Iterator[Path]:
    """The folders of this process's groups and of those around; a container sees its own as the
    root, whatever its name outside."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = CGROUPS / controllers
            inner = root / name.lstrip("/")
            yield from dict.fromkeys((inner, *inner.parents[: len(Path(name).parts) - 1], root))


# ---- what other processes have


class Claims:
    """CPUs that this process has taken, as locks on bytes of a file: they end with the process, and
    a forked child has none. kin: a process whose CPUs are as good as free."""

    def __init__(self, path: Path, kin: int = 0) -> None:
        self._path, self.kin = path, kin
        self._file: int | None = None
        self._taken: list[int] = []

    def take(self, cpus: Sequence[int], count: int) -> list[int]:
        """So many of these CPUs, the first ones first; empty where too few are free."""
        found = [cpu for cpu in self._taken if cpu in cpus][:count]
        free = (cpu for cpu in cpus if cpu not in found)
        try:
            fresh = list(islice(filter(self._lock, free), count - len(found)))
        except (OSError, ImportError):  # locks cannot be had here
            return []
        if len(found) + len(fresh) < count:
            self._unlock(fresh)
            return []
        self._taken += fresh
        return found + fresh

    def _lock(self, cpu: int) -> bool:
        import fcntl

        if self._file is None:
            self._file = _opened(self._path)
        wanted = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, cpu, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETLK, wanted)
        except (BlockingIOError, PermissionError):  # another process has it
            holder = LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, wanted))[-1]
            return bool(self.kin and holder == self.kin)
        return True

    def _unlock(self, cpus: Sequence[int]) -> None:
        import fcntl

        for cpu in cpus:
            assert self._file is not None
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, cpu)

    def forget(self) -> None:
        """In a forked child."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._taken, self.kin = None, [], 0


def _opened(path: Path) -> int:
    """A file that every user may lock. Raises OSError."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        file = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):  # another user made it in between
            os.fchmod(file, 0o666)  # whatever the umask
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no plain file")
    return file


def share_with_parent() -> None:
    """What the parent has taken it does not use while it waits for this process."""
    _claims.kin = os.getppid()


_claims = Claims(CLAIMS)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _claims.forget())
