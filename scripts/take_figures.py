"""Takes what benchmarks/compared.py has measured into docs/figures/results.json, and draws it.

    python scripts/take_figures.py build/compared --machine "two cores of an AMD EPYC (Zen 5)"

A table without a file in the folder stays as it was. Rows that other programs disturbed, and those
of peers that failed, are named and left out; --disturbed takes the former.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "figures" / "results.json"
BUSY = 0.10  # share of the processors' time that went to others, from which a row is disturbed
CEILINGS = ("plain", "plain read", "copy")  # that stand beside peers where a mark names them
TITLES = {"minilm": "MiniLM", "bert-base": "BERT-base", "gpt2-prefill": "GPT-2 prefill 128",
          "gpt2-decode": "GPT-2 decode", "vit-s": "ViT-S", "resnet50": "ResNet-50",
          "mobilenet-v3": "MobileNetV3", "unet": "UNet"}  # fmt: skip
PACKAGES = {"llama.cpp": "llama_cpp", "eager": "torch", "inductor": "torch"}

Row = dict[str, Any]


def spread(found: dict[str, float]) -> list[float]:
    return [round(found[name], 2) for name in ("median", "low", "high")]


def of_bench(file: Path, key: str, disturbed: bool) -> Iterator[Row]:
    """Rows of `luminal bench` and of benchmarks/torch_backend.py: the first part is in f32."""
    for row in json.loads(file.read_text())[0]["rows"]:
        name, time = TITLES.get(row["name"], row["name"]), row["ours"]["time"]
        busy = row["disturbed"] or 0.0
        if time is None or (busy > BUSY and not disturbed):
            print(f"left out: {name}: {row['ours']['fault'] or f'{busy:.0%} busy elsewhere'}")
            continue
        named = {mark["rival"] for mark in row["marks"]}
        cells = row["peers"] | {n: c for n, c in row["ceilings"].items()
                                if n in CEILINGS and n in named}  # fmt: skip
        for peer, cell in cells.items():
            if cell["ratio"] is None:
                print(f"left out: {name} beside {peer}: {cell['fault']}")
        eager = {"torch": "eager"} if key == "torch_compile" else {}
        peers = {eager.get(p, p): spread(c["ratio"]) for p, c in cells.items() if c["ratio"]}
        entry: Row = {"name": name, "ours_ms": float(f"{1e3 * time['median']:.3g}")}
        entry["peers"] = peers
        if key == "torch_compile":
            setups = {"ours": row["ours"], **row["peers"]}
            entry["first_call_s"] = {n: round(c["setup"], 1) for n, c in setups.items()
                                     if n != "torch" and c["time"]}  # fmt: skip
        if peers:
            yield entry


def of_language(file: Path, disturbed: bool) -> Iterator[Row]:
    for kind, found in json.loads(file.read_text()).items():
        busy = found["busy_elsewhere"] or 0.0
        if busy > BUSY and not disturbed:
            print(f"left out: {kind}: {busy:.0%} busy elsewhere")
            continue
        rates = {"steps": (f"a token after {found['prompt']}", found["decode_tokens_per_s"]),
                 "prefill": (f"a prompt of {found['prompt']}", found["prefill_tokens_per_s"])}
        for way, (words, rate) in rates.items():
            tokens = found["prompt"] if way == "prefill" else 1
            peers = {peer: spread(ways[way]) for peer, ways in found["ratios"].items()}
            if peers:
                yield {"name": f"{kind}: {words}", "ours_ms": float(f"{1e3 * tokens / rate:.3g}"),
                       "peers": peers}  # fmt: skip


def taken(folder: Path, group: dict[str, Any], machine: str, disturbed: bool) -> None:
    """The group's rows are those of the folder, if it has any."""
    key, file = group["key"], folder / f"{group['key']}.json"
    if not file.exists():
        return
    rows: list[Row]
    if key == "others":
        rows = [row for row in json.loads(file.read_text()) if row["peers"]]
    else:
        rows = list(of_language(file, disturbed) if key == "language"
                    else of_bench(file, key, disturbed))  # fmt: skip
    if not rows:
        print(f"{key}: no row to take")
        return
    told = json.loads((folder / "told.json").read_text())
    peers = dict.fromkeys(PACKAGES.get(peer, peer) for row in rows for peer in row["peers"])
    versions = [f"{name} {told['versions'][name]}" for name in peers if name in told["versions"]]
    where = machine if key != "others" else machine.replace("two cores", "one core")
    group |= {"machine": where, "versions": ", ".join(versions), "rows": rows,
              "command": told["commands"][key]}  # fmt: skip


def text(groups: Sequence[dict[str, Any]]) -> str:
    """JSON with a row on a line."""
    parts = []
    for group in groups:
        head = json.dumps({k: v for k, v in group.items() if k != "rows"}, indent=1)[:-2]
        rows = ",\n  ".join(json.dumps(row) for row in group["rows"])
        parts.append(f'{head},\n "rows": [\n  {rows}\n ]\n}}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True, help="as readers shall be told it")
    parser.add_argument("--disturbed", action="store_true")
    given = parser.parse_args()
    groups = json.loads(RESULTS.read_text())
    for group in groups:
        taken(given.folder, group, given.machine, given.disturbed)
    RESULTS.write_text(text(groups))
    runpy.run_path(str(RESULTS.parents[2] / "scripts" / "figures.py"), run_name="__main__")


if __name__ == "__main__":
    main()
