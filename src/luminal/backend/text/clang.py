"""What clang says of HIP text: neither ROCm's headers nor its libraries are needed."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ...cores import count
from ...errors import CompileError

NAMES = ("clang", "clang-22", "clang-21", "clang-20", "clang-19", "amdclang")
FLAGS = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-S", "-o", "-",
         "-Rpass-analysis=kernel-resource-usage", "-")  # fmt: skip
REMARKS = {  # LLVM's words for what a kernel takes
    "registers": r" VGPRs: (\d+)", "accumulators": r"AGPRs: (\d+)", "scalars": r"SGPRs: (\d+)",
    "spilled": r"VGPRs Spill: (\d+)", "scalars spilled": r"SGPRs Spill: (\d+)",
    "stack": r"ScratchSize \[bytes/lane\]: (\d+)", "shared": r"LDS Size \[bytes/block\]: (\d+)",
    "occupancy": r"Occupancy \[waves/SIMD\]: (\d+)",
}  # fmt: skip


@functools.cache
def found() -> str | None:
    """A clang with a target for AMD's GPUs."""
    for path in filter(None, map(shutil.which, NAMES)):
        told = subprocess.run([path, "--print-targets"], capture_output=True, text=True)
        if "amdgcn" in told.stdout:
            return path
    return None


def compiled(text: str, arch: str) -> tuple[str, dict[str, int]]:
    """Assembly of a text for an architecture such as "gfx942", and what its kernel takes.
    Raises CompileError."""
    path = found()
    if path is None:
        raise CompileError("HIP text is compiled by clang 17 or later: install clang-19")
    command = [path, *FLAGS, f"--offload-arch={arch}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"clang refused the text of a kernel: {done.stderr}")
    taken = {word: re.search(pattern, done.stderr) for word, pattern in REMARKS.items()}
    numbers = {word: int(match[1]) for word, match in taken.items() if match}
    return done.stdout, numbers | {"spilled": 4 * numbers.get("spilled", 0)}


def resources(texts: Sequence[str], arch: str) -> list[dict[str, int]]:
    """What each kernel takes, by LLVM's remarks; "spilled", "stack" and "shared" are bytes. Nothing
    where no clang is here."""
    if found() is None:
        return []
    with ThreadPoolExecutor(count()) as pool:
        return [taken for _, taken in pool.map(lambda text: compiled(text, arch), texts)]
