"""Targets, memory, objects, ceilings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from luminal.backend import cpu
from luminal.backend.cpu import ceilings
from luminal.backend.cpu.asked import asked, asked_elsewhere, processor
from luminal.backend.cpu.elementary import two_over_pi
from luminal.backend.cpu.target import host_machine, machine
from luminal.errors import CompileError, DeviceError
from luminal.graph.dtype import f32, f64

TEXT = """
define void @twice(ptr %args, i64 %tid, i64 %nt) {
  %p = load ptr, ptr %args
  %x = load i64, ptr %p
  %y = add i64 %x, %x
  store i64 %y, ptr %p
  ret void
}
"""


def test_named_targets() -> None:
    assert [cpu.named(n).lanes(f32) for n in ("sse", "avx2", "avx512", "neon")] == [4, 8, 16, 4]
    assert cpu.named("avx2").lanes(f64) == 4
    assert cpu.named("avx512").registers == 32 and cpu.named("sse").registers == 16
    with pytest.raises(DeviceError, match=r"no instruction set 'mmx'; there are sse, avx2"):
        cpu.named("mmx")


def test_the_host() -> None:
    target = cpu.host(3)
    assert target.threads == 3 and target.name == "host"
    assert 8 << 10 <= target.l1 <= 1 << 20 and target.l1 < target.l2
    assert machine(target) is host_machine() and host_machine().is_host
    alone, two, many = (cpu.host(n) for n in (1, 2, 64))
    assert alone.bandwidth < two.bandwidth < many.bandwidth < 32 * two.bandwidth
    assert len({cpu.fingerprint(t) for t in (alone, two, many)}) == 1
    assert not machine(cpu.named("neon")).is_host or not host_machine().is_x86
    with pytest.raises(DeviceError, match="at least 1"):
        cpu.host(0)


def test_describe_names_what_matters() -> None:
    text = cpu.describe()
    assert "instruction set" in text and "KiB" in text and "LLVM" in text


@pytest.mark.parametrize("count", (0, 1, 5, 1000, 3 << 20))
@pytest.mark.parametrize("dtype", (np.uint8, np.float32, np.float64))
def test_memory_is_aligned(count: int, dtype: type) -> None:
    array = cpu.empty((count, 2), dtype)
    assert array.shape == (count, 2) and array.dtype == dtype and array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0
    array[...] = 1
    assert array.sum() == 2 * count


def test_an_object_is_kept_and_loaded_again() -> None:
    first = cpu.build([TEXT], cpu.host(1))[0]
    second = cpu.load(first.code, cpu.host(1))
    value = np.array([21], np.int64)
    slots = np.array([value.ctypes.data], np.uint64)
    from luminal.backend.table import Entry

    entry = Entry(second.address("twice"), slots.ctypes.data)
    cpu.crew(1).run(cpu.table([entry]))
    assert value[0] == 42
    assert set(first.seconds) >= {"parse", "code"}
    with pytest.raises(CompileError, match="assembly"):
        second.assembly()
    with pytest.raises(CompileError, match="no function 'thrice'"):
        second.address("thrice")


def test_text_that_llvm_refuses() -> None:
    with pytest.raises(CompileError, match="refused"):
        cpu.build(["define void @f() { nonsense }"], cpu.host(1))


def test_foreign_code_is_not_run() -> None:
    name = "neon" if host_machine().is_x86 else "avx2"
    code = cpu.build([TEXT], cpu.named(name))[0]
    with pytest.raises(DeviceError, match="cannot run on this machine"):
        code.address("twice")


def test_digits_of_two_over_pi() -> None:
    digits = two_over_pi(24, 50)
    assert digits[:4] == (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1)  # Payne and Hanek
    assert len(digits) == 50
    value = sum(d / 2.0 ** (24 * (i + 1)) for i, d in enumerate(digits[:4]))
    assert value == 2 / np.pi


def test_ceilings_are_plausible() -> None:
    found = ceilings.measure(1, seconds=0.01)
    assert {"fma", "read"} <= set(found)
    assert all(0.1 < value < 1e5 for value in found.values())


def test_llvm_is_asked_for_the_host_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert tuple(json.loads(asked_elsewhere())[:2]) == asked()
    asks = "from luminal.backend.cpu.target import host; host(); import sys; "
    tells = "print('llvmlite.binding' in sys.modules)"
    home = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", asks + tells], env=home, capture_output=True)
    assert told.stdout.strip() == b"False", told.stderr


@pytest.mark.parametrize("executable", [None, "/nowhere", "echo"])
def test_without_such_a_process_llvm_is_asked_here(
    executable: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is none, or it answers something else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", executable)
    assert processor() == (*asked(), False)
