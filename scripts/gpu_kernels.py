"""docs/gpu_kernels.md from what `luminal bench gpu --compile --json FILE` wrote.

    luminal bench gpu --compile --device cuda:sm_90a,cuda:sm_80 --json rows.json
    python scripts/gpu_kernels.py rows.json [older.json@COMMIT ...] [older.md@COMMIT] > new.md

A file of an earlier commit is named with it; of an earlier page the lines without new figures stay.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from luminal.bench.gpu_kernels import Row, listing, summary

LISTED = "cuda:sm_90a"
HEAD = """# Kernels on GPUs that are not here

Written by `scripts/gpu_kernels.py` from what `luminal bench gpu --compile` found; do not edit.
**No GPU has run these very kernels** (what two have said since: [GPUs](howto/gpu.md)): registers,
spills and shared memory are NVRTC's; *limit* is the least
time that the GPU's data sheet allows for as many operations and bytes (`backend/cuda/limits.py`:
H100 SXM 3,350 GB/s, 989 TFLOP/s in bf16, 62 in f32), *model* is a count of what the warps of the
kernel do (`backend/cuda/model.py`: traffic of both caches and memory, instructions, tensor cores,
waits of too few warps, 2 us for a launch), and the last column says which of these takes longest.
*a layer*: launches that one more layer adds, where several kernels may be one launch (*each a
launch*: the model's time if none were); a run is one graph launch. Tables of kernels show each by
itself. Llama's figures are those of two of its layers, the embedding and the head, at a prompt of
512 tokens and at position 512; ResNet-50 and the UNet are one image, the training step two layers
of GPT-2, 8 x 128 tokens. Taking quantised weights apart counts as operations at the tensor cores'
rate or in f32, so that limits with such weights are no bounds (a share may pass 100%). Kernels
are those of {commits}; what has changed since is not in these figures.
"""


def main(files: list[str]) -> None:
    words = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True)
    rows, of = list[Row](), dict[str, dict[str, None]]()
    pages = [file.partition("@") for file in files if ".md" in file]
    for file in (file for file in files if ".md" not in file):
        name, _, commit = file.partition("@")
        read = json.loads(Path(name).read_text())
        rows += read
        models = of.setdefault(commit or found.stdout.strip() or "unknown", {})
        models |= dict.fromkeys(row["model"] for row in read)
    commits = (f"commit {commit} ({', '.join(models)})" for commit, models in of.items())
    print(HEAD.replace("{commits}", " and\n".join(commits)))
    print(summary(rows))
    for page, _, commit in pages:
        print(f"\nNot compiled again, so as they were at commit {commit}:\n")
        print("\n".join(_kept(Path(page).read_text(), rows)))
    for row in rows:
        if row["device"] == LISTED and "fault" not in row:
            print(f"\n## {row['model']} {row['phase']}".rstrip())
            if row["spilling"]:
                print(f"\nSpills: {', '.join(row['spilling'])}.")
            print(f"\n{listing(row)}")


def _kept(page: str, rows: list[Row]) -> list[str]:
    """The table of a page, without the lines of which there are new ones."""
    head, rule, *lines = (x for x in page.split("\n## ")[0].splitlines() if x.startswith("|"))
    new = {(row["model"], row["phase"], row["device"]) for row in rows}
    cells = ((line, [cell.strip() for cell in line.split("|")]) for line in lines)
    return [head, rule, *(line for line, (_, *key) in cells if tuple(key[:3]) not in new)]


if __name__ == "__main__":
    main(sys.argv[1:])
