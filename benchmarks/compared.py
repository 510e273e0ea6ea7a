"""All tables of docs/figures.md, measured anew: a file for each in a folder, then its drawing.

    python benchmarks/compared.py build/compared [--only models,others] [--rounds 5] [--short]
    python scripts/take_figures.py build/compared --machine "two cores of ..."

A table whose file is there is kept: what was cut off goes on. Peers that are not installed are
left out. --short: a row or two of each, to see that everything runs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LUMINAL = [sys.executable, "-P", "-c", "from luminal.cli import main; main()"]
PEERS = ("torch", "onnxruntime", "openvino", "llama_cpp", "jax", "tinygrad")
ONE_CORE = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def commands(rounds: int, kinds: str, short: bool) -> dict[str, list[str]]:
    """Of each table, without the file that it writes."""
    turns = ["--rounds", str(rounds)]
    marked = ["--peers", "marked", *turns]
    sizes = ["--prompt", "128", "--tokens", "32"]
    other = [sys.executable, str(HERE / "others.py"), *turns]
    other += ["--only", "softmax"] if short else []
    some = {"operations": "softmax", "models": "MiniLM", "torch_compile": "unet"}
    only = {name: ["--only", word] if short else [] for name, word in some.items()}
    shape = ["--shape", "tiny", "--kinds", "Q8_0"] if short else ["--kinds", kinds]
    return {
        "operations": [*LUMINAL, "bench", "ops", *marked, *only["operations"]],
        "models": [*LUMINAL, "bench", "models", *marked, *only["models"]],
        "torch_compile": [sys.executable, str(HERE / "torch_backend.py"), *turns,
                          *only["torch_compile"]],
        "language": [sys.executable, str(HERE / "language.py"), *shape, *sizes, *turns],
        "others": [*ONE_CORE, *other],
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Of the peers that are installed."""
    found = {}
    for name in PEERS:
        try:
            version = str(importlib.import_module(name).__version__)
            found[name] = re.split(r"[-+]", version)[0]  # without a build
        except ImportError:
            print(f"without {name}: it is not installed")
        except AttributeError:
            found[name] = importlib.metadata.version(name)
    return found


def as_typed(command: list[str]) -> str:
    """A command as one types it, without paths of this machine."""
    words = ["luminal", *command[len(LUMINAL) :]] if command[: len(LUMINAL)] == LUMINAL else command
    short = {sys.executable: "python", **{str(file): f"benchmarks/{file.name}" for file in
             HERE.glob("*.py")}}  # fmt: skip
    return shlex.join(short.get(word, word) for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="tables, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default="Q8_0,Q4_K", help="of the language model's weights")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    if given.rounds < 3:
        parser.error("a spread needs at least 3 rounds")
    made = commands(given.rounds, given.kinds, given.short)
    wanted = given.only.split(",") if given.only else list(made)
    if unknown := [name for name in wanted if name not in made]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(made)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    told = {"versions": versions(), "commands": {name: as_typed(made[name]) for name in made}}
    (given.folder / "told.json").write_text(json.dumps(told, indent=1) + "\n")
    failed = []
    for name in wanted:
        file, start = given.folder / f"{name}.json", time.monotonic()
        if file.exists():
            print(f"{name}: kept", flush=True)
            continue
        unfinished = file.with_suffix(".part")
        done = subprocess.run([*made[name], "--json", str(unfinished)])
        if unfinished.exists():  # rows of ours that failed are named above, and not drawn
            unfinished.rename(file)
        failed += [name] if done.returncode else []
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
