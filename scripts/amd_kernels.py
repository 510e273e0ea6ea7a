"""docs/amd_kernels.md from what `luminal bench gpu --compile --json FILE` wrote of AMD's GPUs.

    luminal bench gpu --compile --device hip:gfx942,hip:gfx1100 --json rows.json
    python scripts/amd_kernels.py COMMIT rows.json [more.json ...] > docs/amd_kernels.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = {"registers": "VGPRs", "accumulators": "AGPRs", "scalars": "SGPRs",
           "spilled": "spilled", "stack": "scratch", "shared": "LDS",
           "occupancy": "waves"}  # fmt: skip
LISTED = 6  # kernels of a model, of those that take most
HEAD = """# Kernels on AMD's GPUs that are not here

Written by `scripts/amd_kernels.py` from what `luminal bench gpu --compile` found; do not edit.
**No GPU has run these**, and no model says how long they take: the figures are LLVM's remarks
(clang 19, `-Rpass-analysis=kernel-resource-usage`). *VGPRs*, *AGPRs*: registers of a thread;
*SGPRs*: of a wave; *spilled*: bytes of a thread's registers in memory; *scratch*: bytes of a
thread in memory at all; *LDS*: bytes that a group shares; *waves*: that fit on a SIMD. The table of
models has the most of each, and of waves the fewest. No kernel here multiplies matrices by
instructions (mfma, wmma): products are multiply-adds. Sizes are those of
[the other table](gpu_kernels.md). Kernels are those of commit {commit}; what
has changed since is not in these figures.
"""


def main(commit: str, files: list[str]) -> None:
    rows = [row for file in files for row in json.loads(Path(file).read_text())]
    print(HEAD.replace("{commit}", commit))
    columns = " | ".join(COLUMNS.values())
    print(f"| model | phase | device | kernels | calls | spilling | {columns} |")
    print(f"|---|---|---|{'--:|' * (3 + len(COLUMNS))}")
    for row in rows:
        print(summary(row))
    for row in rows:
        if "fault" not in row:
            print(f"\n## {row['model']} {row['phase']}".rstrip() + f", {row['device']}\n")
            print(f"| kernel | calls | {columns} |")
            print(f"|---|{'--:|' * (1 + len(COLUMNS))}")
            for kernel in sorted(row["kernels"], key=taken)[:LISTED]:
                print(f"| {kernel['name']} | {kernel['calls']} | {cells([kernel])} |")


def summary(row: dict[str, Any]) -> str:
    head = f"| {row['model']} | {row['phase']} | {row['device']} |"
    if "fault" in row:
        return f"{head} {row['fault'].splitlines()[0]} |{'|' * (2 + len(COLUMNS))}"
    kernels = row["kernels"]
    counts = f"{len(kernels)} | {row['calls']} | {len(row['spilling'])}"
    return f"{head} {counts} | {cells(kernels)} |"


def taken(kernel: dict[str, Any]) -> tuple[int, int, str]:
    """First what spills most, then what has most registers."""
    return -kernel.get("spilled", 0), -kernel.get("registers", 0), kernel["name"]


def cells(kernels: list[dict[str, Any]]) -> str:
    known = ((min if c == "occupancy" else max)([k[c] for k in kernels if c in k], default="")
             for c in COLUMNS)  # fmt: skip
    return " | ".join(map(str, known))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
