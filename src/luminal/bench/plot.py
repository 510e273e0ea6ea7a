"""Results as a picture: one HTML file that needs nothing else, or PNG where matplotlib is there."""

from __future__ import annotations

import html
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import Unsupported
from .compare import Row
from .machine import Machine
from .paired import Spread
from .table import peer_text, rate_text

COLOURS = ("#4878a8", "#d08040", "#5a9a5a", "#a05a9a")
LEFT, WIDTH, BAR, GAP = 290, 560, 11, 9  # pixels
LOWEST, HIGHEST = 0.25, 8.0  # ratios at the ends of the axis
TICKS = (0.25, 0.5, 1, 2, 4, 8)

STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; margin-top: 2em; }
td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
.fault { color: #b02020; }
svg text { font: 12px system-ui, sans-serif; fill: #222; }
"""


def write_plot(file: Path, rows: Sequence[Row], machine: Machine, peers: Sequence[str]) -> None:
    """A picture in the format of the file's ending."""
    check_ending(file)
    if file.suffix == ".png":
        _write_png(file, rows, machine, peers)
    else:
        file.write_text(page(rows, machine, peers))


def check_ending(file: Path) -> None:
    """Raises Unsupported where there is no way to write such a file here."""
    if file.suffix not in (".html", ".png"):
        raise Unsupported(f"{file}: a plot is .html or .png")
    if file.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise Unsupported(f"{file}: PNG needs matplotlib, which is not installed; .html does not")


def page(rows: Sequence[Row], machine: Machine, peers: Sequence[str]) -> str:
    """The whole HTML document."""
    title = _escape(f"{machine.cpu}, {machine.threads} threads, {machine.precision}")
    return "\n".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            f"<title>luminal bench</title><style>{STYLE}</style></head><body>",
            f"<h1>luminal bench</h1><p>{title}; {_escape(_list(machine.versions))}</p>",
            "<p>Time of the peer over ours, in paired rounds (bar: median, line: quartiles). "
            "Right of 1 ours is faster.</p>",
            chart(rows, peers),
            table(rows, peers),
            "</body></html>\n",
        )
    )


def chart(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Bars of every ratio, on a logarithmic axis, as SVG."""
    step = BAR * max(1, len(peers)) + GAP
    height = 50 + step * len(rows)
    parts = [f"<svg width='{LEFT + WIDTH + 60}' height='{height}' role='img'>"]
    parts += [_tick(value, height) for value in TICKS]
    for number, name in enumerate(peers):
        x = LEFT + 130 * number
        parts.append(f"<rect x='{x}' y='2' width='10' height='10' fill='{_colour(number)}'/>")
        parts.append(f"<text x='{x + 14}' y='11'>vs {_escape(name)}</text>")
    for number, row in enumerate(rows):
        parts += _bars(row, peers, 40 + step * number)
    return "\n".join([*parts, "</svg>"])


def _tick(value: float, height: int) -> str:
    x, strong = _place(value), "#444" if value == 1 else "#ddd"
    return (
        f"<line x1='{x:.1f}' x2='{x:.1f}' y1='34' y2='{height - 8}' stroke='{strong}'/>"
        f"<text x='{x:.1f}' y='30' text-anchor='middle'>{value:g}</text>"
    )


def _bars(row: Row, peers: Sequence[str], top: int) -> list[str]:
    middle = top + BAR * len(peers) / 2 + 4
    parts = [f"<text x='{LEFT - 8}' y='{middle:.1f}' text-anchor='end'>{_escape(row.name)}</text>"]
    for number, name in enumerate(peers):
        cell = row.peers.get(name)
        if cell is not None and cell.ratio is not None:
            parts.append(_bar(cell.ratio, top + BAR * number, _colour(number), name))
    if row.ours.fault:
        fault = _escape(row.ours.fault)
        parts.append(f"<text x='{LEFT + 6}' y='{middle:.1f}' class='fault'>{fault}</text>")
    return parts


def _bar(ratio: Spread, top: int, colour: str, name: str) -> str:
    start, end = sorted((_place(1.0), _place(ratio.median)))
    low, high, middle = _place(ratio.low), _place(ratio.high), top + (BAR - 2) / 2
    return (
        f"<rect x='{start:.1f}' y='{top}' width='{max(1.0, end - start):.1f}' height='{BAR - 2}' "
        f"fill='{colour}'><title>{_escape(name)}: {ratio.median:.2f} "
        f"({ratio.low:.2f} - {ratio.high:.2f})</title></rect>"
        f"<line x1='{low:.1f}' x2='{high:.1f}' y1='{middle}' y2='{middle}' stroke='#111'/>"
    )


def _place(ratio: float) -> float:
    """Pixels of a ratio on the axis; beyond its ends at the ends."""
    share = math.log(ratio / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + WIDTH * min(1.0, max(0.0, share))


def table(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """All figures as an HTML table."""
    names = ["case", "ours ms", "rate", *(f"vs {name}" for name in peers), "compile s"]
    lines = ["<table><tr>", *(f"<th>{_escape(name)}</th>" for name in names), "</tr>"]
    for row in rows:
        lines.append(f"<tr><td>{_escape(row.name)}</td>{_figures(row, peers)}</tr>")
    return "\n".join([*lines, "</table>"])


def _figures(row: Row, peers: Sequence[str]) -> str:
    if row.ours.time is None:
        fault = _escape(row.ours.fault or "not measured")
        return f"<td colspan='{3 + len(peers)}' class='fault'>{fault}</td>"
    texts = [f"{row.ours.time.median * 1e3:.3f}", rate_text(row)]
    texts += [peer_text(row.peers[name]) if name in row.peers else "-" for name in peers]
    return "".join(f"<td>{_escape(text)}</td>" for text in (*texts, f"{row.ours.setup:.2f}"))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def _list(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _write_png(file: Path, rows: Sequence[Row], machine: Machine, peers: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(10, 1 + 0.16 * len(rows) * max(1, len(peers))))
    axes = figure.add_subplot()
    for number, name in enumerate(peers):
        found = [
            (y, cell.ratio)
            for y, row in enumerate(rows)
            if (cell := row.peers.get(name)) is not None and cell.ratio is not None
        ]
        places = [y + 0.8 * number / len(peers) for y, _ in found]
        ratios = [ratio.median for _, ratio in found]
        errors = [[r.median - r.low for _, r in found], [r.high - r.median for _, r in found]]
        axes.errorbar(ratios, places, xerr=errors, fmt="o", ms=4, label=f"vs {name}")
    axes.axvline(1.0, color="#444")
    axes.set(xscale="log", xlabel="time of the peer / ours", title=machine.cpu)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
