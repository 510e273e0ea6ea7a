"""Which CPUs a process takes: the masks, quotas and neighbours are made up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from luminal import cores
from luminal.children import PACKAGE, python


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight CPUs, two to a core: 0 and 4, 1 and 5 ...; no quota, nobody else."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for cpu in range(8):
        topology = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    (tmp_path / "groups").mkdir()
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(cores, "CPUS", tmp_path / "cpu")
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(cores, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(cores, "_claims", cores.Claims(tmp_path / "claims"))
    return tmp_path


def limit(machine: Path, own: str, files: dict[str, str]) -> None:
    (machine / "own").write_text(own)
    for name, text in files.items():
        path = machine / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_a_thread_for_each_core(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.count() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5, 6})
    assert cores.count() == 3
    assert cores.take(4) == [0, 1, 6, 5]
    monkeypatch.setattr(cores, "CPUS", machine / "hidden")
    assert cores.count() == 4


@pytest.mark.parametrize(
    ("own", "files", "share"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/outside\n", {"cpu.max": "50000 100000"}, 0.5),
        ("4:cpu,cpuacct:/x\n", {"cpu,cpuacct/x/cpu.cfs_quota_us": "300000",
                                "cpu,cpuacct/x/cpu.cfs_period_us": "100000"}, 3.0),
        ("1:cpu:/docker/1\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
         None),
        ("1:cpuset:/\n0::/../..\n", {"cpu.max": "odd"}, None),
    ],
)  # fmt: skip
def test_quotas(machine: Path, own: str, files: dict[str, str], share: float | None) -> None:
    limit(machine, own, files)
    assert cores.quota() == share
    assert cores.count() == (4 if share is None else max(1, int(share)))
    assert bool(cores.take(4)) == (share is None)


NEIGHBOUR = """
import sys
from pathlib import Path
sys.path.insert(0, {package!r})
from luminal.cores import Claims
claims = Claims(Path({path!r}))
print(claims.take([0, 1, 2, 3, 4, 5, 6, 7], 3), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be held here")
def test_two_processes_take_different_cores(machine: Path) -> None:
    text = NEIGHBOUR.format(package=str(PACKAGE), path=str(machine / "claims"))
    with subprocess.Popen(python(text), stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "[0, 1, 2]\n"
        assert cores.take(6) == []  # two of them would share a core
        assert cores.take(2) == [3, 4]
        assert cores.take(5) == [3, 4, 5, 6, 7] and cores.take(2) == [3, 4]
        cores._claims.kin = other.pid
        assert cores.take(8) == [3, 4, 5, 6, 7, 0, 1, 2]
        cores._claims.forget()
        assert cores.take(5) == [3, 4, 5, 6, 7]
        other.communicate()
    assert cores.take(8) == [3, 4, 5, 6, 7, 0, 1, 2]


def test_without_locks_nothing_is_taken(machine: Path) -> None:
    os.mkfifo(machine / "claims")
    assert cores.take(2) == []
