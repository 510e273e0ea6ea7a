"""docs/figures/*.svg, the tables of README.md, docs/index.md and docs/figures.md, of results.json.

    python scripts/figures.py

A result: {name, ours_ms, peers: {peer: [median, lower quartile, upper quartile]}}; a ratio is the
peer's time over ours. scripts/take_figures.py takes new ones.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
LEFT, WIDE, ROW, TOP = 270, 440, 16, 26
LOW, HIGH = 0.5, 8.0
TICKS = (0.5, 1, 2, 4, 8)
COLOURS = ("#4878a8", "#d08040", "#5a9a5a", "#a05a9a", "#c0b040", "#b05050")
NEARLY = 1.05  # below it we say so

KINDS = {"operations": "operations", "models": "models", "torch_compile": "torch.compile",
         "language": "language models", "others": "operations, one core"}  # fmt: skip
SHOWN = {"torch_compile": "{}, `torch.compile`", "models": "{}",
         "language": "Llama 3.2 1B's shape, {}"}  # fmt: skip
FIRST = {"language": "Q8_0"}  # rows of a table that the README shows
PEERS = {  # what it is, and what it is better for
    "eager": ("PyTorch, eager", "anything, at once; every device"),
    "inductor": ("PyTorch's own compiler", "GPUs; training at scale"),
    "torch": ("PyTorch's kernels (oneDNN, MKL)", "large plain products: as fast"),
    "openvino": ("Intel's inference runtime", "its own chips, NPUs; convolution nets: as fast"),
    "onnxruntime": ("Microsoft's runtime", "every system and device"),
    "jax": ("JAX, compiled by XLA", "TPUs and GPUs; programs over many machines"),
    "tinygrad": ("few primitives, search over schedules", "GPUs, also without a vendor's driver"),
    "llama.cpp": ("language models by hand", "GPUs, phones, 2- and 3-bit weights"),
}


def groups() -> list[dict[str, Any]]:
    return json.loads((DOCS / "figures" / "results.json").read_text())


def chart(group: dict[str, Any]) -> str:
    """An SVG: a bar for each ratio on a logarithmic axis, from 1."""
    bars = [(row, peer, spread) for row in group["rows"] for peer, spread in row["peers"].items()]
    names = list(dict.fromkeys(peer for _, peer, _ in bars))
    height = TOP + ROW * len(bars) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 60} {height}" '
        'font-family="sans-serif" font-size="11" fill="#777">'
    ]
    for tick in TICKS:
        x = _x(tick)
        lines.append(
            f'<path d="M{x:.0f} {TOP - 4}V{height - 22}" stroke="#8884"/>'
            f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>'
        )
    for number, peer in enumerate(names):
        x = LEFT + 110 * number
        lines.append(f'<rect x="{x}" y="4" width="10" height="10" fill="{COLOURS[number]}"/>'
                     f'<text x="{x + 14}" y="13">{escape(peer)}</text>')  # fmt: skip
    before = None
    for number, (row, peer, spread) in enumerate(bars):
        y = TOP + ROW * number
        label = row["name"] if row is not before else ""
        before = row
        lines.append(_bar(label, y, spread, COLOURS[names.index(peer)]))
    return "\n".join([*lines, "</svg>", ""])


def _bar(label: str, y: int, spread: list[float], colour: str) -> str:
    one, middle = _x(1), _x(spread[0])
    left, wide = min(one, middle), max(1.0, abs(middle - one))
    text = f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{escape(label)}</text>'
    bar = (f'<rect x="{left:.1f}" y="{y + 1}" width="{wide:.1f}" height="{ROW - 4}" '
           f'fill="{colour}"/>')  # fmt: skip
    line = ""
    if len(spread) == 3:
        a, b = _x(spread[1]), _x(spread[2])
        line = f'<path d="M{a:.1f} {y + ROW / 2 - 1:.1f}H{b:.1f}" stroke="#222"/>'
    end = max(middle, one, _x(spread[-1])) + 5
    return f'{text}{bar}{line}<text x="{end:.0f}" y="{y + 10}">{spread[0]:g}</text>'


def _x(ratio: float) -> float:
    inside = min(max(ratio, LOW), HIGH)
    return LEFT + WIDE * math.log(inside / LOW) / math.log(HIGH / LOW)


def compared() -> str:
    """A row for each peer: what it is, ratios by kind of work, what it is better for."""
    lines = ["| | what it is | measured: theirs / ours | take it for |", "|---|---|---|---|"]
    for peer, (what, better) in PEERS.items():
        said = []
        for group in groups():
            found = [r["peers"][peer][0] for r in group["rows"] if peer in r["peers"]]
            if found:
                mean = statistics.geometric_mean(found)
                spread = f" ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else ""
                said.append(f"{KINDS[group['key']]}, {len(found)}: {mean:.2f}{spread}")
        if said:
            lines.append(f"| **{peer}** | {what} | {'; '.join(said)} | {better} |")
    return "\n".join(lines)


def pictures() -> str:
    return "\n\n".join(
        f"## {g['title']}\n\n{'; '.join(filter(None, (g['machine'], g['note'], g['versions'])))}.\n"
        f"`{g['command']}`\n\n![{g['title']}](figures/{g['key']}.svg)"
        for g in groups()
    )


def machines() -> str:
    """Where what was measured."""
    found: dict[str, list[str]] = {}
    for group in groups():
        found.setdefault(group["machine"], []).append(KINDS[group["key"]])
    return "; ".join(f"{', '.join(kinds)}: *{machine}*" for machine, kinds in found.items()) + "."


def fast() -> str:
    """What the first page shows: whole models, and language models."""
    lines = ["| work | ours | peer / ours |", "|---|---|---|"]
    for group in groups():
        for row in group["rows"]:
            if group["key"] not in SHOWN or not row["name"].startswith(FIRST.get(group["key"], "")):
                continue
            ratios = ", ".join(f"{peer} {spread[0]:.2f}" for peer, spread in row["peers"].items())
            took = f"{row['ours_ms']:g} ms" if "ours_ms" in row else ""
            lines.append(f"| {SHOWN[group['key']].format(row['name'])} | {took} | {ratios} |")
    return "\n".join(lines)


def lost() -> str:
    lines = ["| work | beside | ratio (quartiles) |", "|---|---|---|"]
    for group in groups():
        for row in group["rows"]:
            for peer, spread in row["peers"].items():
                if spread[0] < NEARLY:
                    quartiles = f" ({spread[1]:.2f} to {spread[2]:.2f})" if len(spread) == 3 else ""
                    lines.append(f"| {row['name']} | {peer} | {spread[0]:.2f}{quartiles} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """A page with what belongs between its marks."""
    parts = {"compared": compared, "figures": pictures, "lost": lost, "machines": machines,
             "fast": fast}  # fmt: skip
    for name, make in parts.items():
        found = f"<!-- {name} -->\n{make()}\n<!-- /{name} -->"
        text = re.sub(rf"<!-- {name} -->\n.*?<!-- /{name} -->", lambda _, f=found: f, text,
                      flags=re.S)  # fmt: skip
    return text


def files() -> dict[Path, str]:
    """All that is written."""
    made = {DOCS / "figures" / f"{group['key']}.svg": chart(group) for group in groups()}
    pages = [DOCS / "index.md", DOCS / "figures.md", DOCS.parent / "README.md"]
    return made | {page: filled(page.read_text()) for page in pages}


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
