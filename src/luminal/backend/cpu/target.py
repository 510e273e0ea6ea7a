"""What this machine is: instruction set from the host's feature flags, caches from the system.

The name of the CPU is never used: virtual machines report wrong ones.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ... import forks
from ...cores import count
from ...errors import DeviceError
from ...kernel.target import Target
from ...lowering.library import GEMM
from . import blas
from .asked import processor
from .instructions import available
from .llvm import llvm

_LOCK = threading.RLock()
forks.guard(sys.modules[__name__], "_LOCK", forks.INNER)

_processor = functools.cache(processor)
STREAMING = 4  # threads of which each adds to what memory delivers


@dataclass(frozen=True)
class Machine:
    """What code generation needs: LLVM's triple, feature level and features."""

    triple: str
    level: str
    features: str  # "+avx2,+fma,-avx512f"
    flags: frozenset[str]  # those that are on

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def is_host(self) -> bool:
        """Code for it can run in this process."""
        host = host_machine()
        return self.triple == host.triple and self.flags <= host.flags

    def has(self, flag: str) -> bool:
        return flag in self.flags


V2 = ("cx16", "popcnt", "sahf", "sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "cmov", "cx8")
V3 = (*V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
AMX = (*V4, "avx512vnni", "avx512bf16", "amx-tile", "amx-bf16", "amx-int8")
NEON = ("neon", "fp-armv8")
NAMED = {
    # name: triple, LLVM level, features, bytes of a vector, registers
    "sse": ("x86_64-unknown-linux-gnu", "x86-64-v2", V2, 16, 16),
    "avx2": ("x86_64-unknown-linux-gnu", "x86-64-v3", V3, 32, 16),
    "avx512": ("x86_64-unknown-linux-gnu", "x86-64-v4", V4, 64, 32),
    "vnni": ("x86_64-unknown-linux-gnu", "x86-64-v4", (*V4, "avx512vnni", "avx512bf16"), 64, 32),
    "amx": ("x86_64-unknown-linux-gnu", "x86-64-v4", AMX, 64, 32),
    "avxvnni": ("x86_64-unknown-linux-gnu", "x86-64-v3", (*V3, "avxvnni"), 32, 16),
    "neon": ("aarch64-unknown-linux-gnu", "generic", NEON, 16, 32),
    "dotprod": ("aarch64-unknown-linux-gnu", "generic", (*NEON, "dotprod"), 16, 32),
    "i8mm": ("aarch64-unknown-linux-gnu", "generic", (*NEON, "dotprod", "i8mm"), 16, 32),
}


def machine(target: Target) -> Machine:
    """How to generate code for a target of this module."""
    return host_machine() if target.name == "host" else _named_machine(target.name)


def named(name: str, threads: int = 1) -> Target:
    """An instruction set by name, whatever this machine is: see NAMED."""
    if name not in NAMED:
        raise DeviceError(f"no instruction set {name!r}; there are {', '.join(NAMED)}")
    _, _, flags, vector_bytes, registers = NAMED[name]
    return Target(
        name,
        vector_bytes=vector_bytes,
        registers=registers,
        l2_rate=24 if vector_bytes == 64 else 16,  # Zen 3: tiles that want 21 ran at three quarters
        threads=threads,
        instructions=available(frozenset(flags)),
        maskable=1 if "avx512bw" in flags else 4,
    )


def host(threads: int = 1) -> Target:
    """This machine."""
    if threads < 1:
        raise DeviceError(f"threads must be at least 1, not {threads}")
    bandwidth = Target.bandwidth * min(threads, STREAMING)
    return replace(_host(), threads=threads, bandwidth=bandwidth)


def fingerprint(target: Target) -> str:
    """What generated code and its speed depend on, as text: never the name of the CPU."""
    wanted = machine(target)
    plain = replace(target, threads=1, hint=0, bandwidth=Target.bandwidth)
    return f"{wanted.triple} {wanted.level} {wanted.features} {plain!r}"


def needs(target: Target) -> tuple[str, ...]:
    """The system and the instruction set features that code for a target may use."""
    wanted = machine(target)
    return (wanted.triple, *sorted(wanted.flags))


def lacking(needs: Sequence[str]) -> tuple[str, ...]:
    """What this machine does not have of it."""
    host = host_machine()
    return tuple(need for need in needs if need != host.triple and need not in host.flags)


def describe() -> str:
    """The machine in a few lines, for people."""
    target = host(count())
    withheld = "+amx-tile" in _processor()[1] and not host_machine().has("amx-tile")
    names = [i.name for i in target.instructions]
    library = blas.found()
    return "\n".join(
        (
            f"instruction set  {_level(host_machine())}: {8 * target.vector_bytes}-bit vectors, "
            f"{target.registers} registers",
            f"products         {', '.join(names) or 'fma only'}"
            + (" (AMX cannot be used)" if withheld else ""),
            f"libraries        {library.name if library else 'none'}",
            f"caches           L1 {target.l1 >> 10} KiB, L2 {target.l2 >> 10} KiB a core",
            f"cores            {target.threads}",
            f"LLVM             {'.'.join(map(str, llvm().llvm_version_info))}",
        )
    )


def host_machine() -> Machine:
    """The host, by its feature flags."""
    with _LOCK:  # which takes a while, the first time: who comes second waits
        return _host_machine()


@functools.cache
def _host_machine() -> Machine:
    triple, features, usable = _processor()
    flags = frozenset(name[1:] for name in features.split(",") if name.startswith("+"))
    if "amx-tile" in flags and not usable:
        flags = frozenset(flag for flag in flags if not flag.startswith("amx"))
        features = features.replace("+amx", "-amx")
    arm = triple.startswith(("aarch64", "arm64"))
    if not arm and not flags.issuperset(V2):
        raise DeviceError(f"the CPU backend needs SSE 4.2 or NEON; this machine is {triple}")
    unset = Machine(triple, "generic", features, flags)
    return unset if arm else replace(unset, level=NAMED[_level(unset)][1])


def _level(machine: Machine) -> str:
    """The widest of the named instruction sets that a machine has."""
    if not machine.is_x86:
        return "neon"
    for name in ("avx512", "avx2"):
        if machine.flags.issuperset(NAMED[name][2]):
            return name
    return "sse"


@functools.cache
def _named_machine(name: str) -> Machine:
    triple, level, flags, _, _ = NAMED[name]
    own = _processor()[0]
    if own.split("-")[0] == triple.split("-")[0]:
        triple = own  # the same processor: keep this system's conventions
    return Machine(triple, level, ",".join(f"+{flag}" for flag in flags), frozenset(flags))


@functools.cache
def _host() -> Target:
    machine = host_machine()
    base = named(_level(machine))
    caches = _caches()
    # Zen 4 executes 512-bit vectors in two halves; Zen 5 (vp2intersect) has full units
    halves = machine.has("clzero") and machine.has("avx512f")
    halves = halves and not machine.has("avx512vp2intersect")
    ports = 1 if halves else 2
    return replace(
        base,
        name="host",
        fma_ports=ports,
        load_ports=ports,
        l1=caches.get((1, "Data"), (base.l1, 8))[0],
        l1_ways=caches.get((1, "Data"), (0, base.l1_ways))[1],
        l2=caches.get((2, "Unified"), (base.l2, 8))[0],
        l2_ways=caches.get((2, "Unified"), (0, base.l2_ways))[1],
        l3=caches.get((3, "Unified"), (base.l3, 8))[0],
        page=os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096,
        instructions=available(machine.flags),
        libraries=(GEMM,) if blas.found() else (),
    )


def _caches() -> dict[tuple[int, str], tuple[int, int]]:
    """(level, kind) -> (bytes, ways), from Linux's description of the first CPU; {} elsewhere."""
    found = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size, ways = (
                (folder / name).read_text().strip()
                for name in ("level", "type", "size", "ways_of_associativity")
            )
            found[int(level), kind] = (int(size.rstrip("K")) << 10, int(ways))
        except (OSError, ValueError):  # containers hide some of these files
            continue
    return found
