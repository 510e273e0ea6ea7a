"""Small pictures of arrays for notebooks, as SVG: a curve of a vector, a map of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

WIDTH, HEIGHT, CELLS = 320, 120, 64  # pixels; rows and columns of a map at most
STYLE = "font:11px sans-serif;fill:currentColor"


def array_html(title: str, array: np.ndarray) -> str:
    """The title, what the values are like, and a picture of them: of one dimension a curve, of more
    a map of the last two, the first of the others."""
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    facts = "no finite value"
    if finite.size:
        facts = f"{finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}"
    if finite.size < values.size:
        facts += f", {values.size - finite.size} not finite"
    while values.ndim > 2:
        values = values[0]
    picture = heat(values) if values.ndim == 2 else curve(values.reshape(-1))
    return f"<div><code>{escape(title)}</code> {facts}<br>{picture if finite.size else ''}</div>"


def curve(values: Sequence[float] | np.ndarray, label: str = "") -> str:
    """A line through the values; what is not finite is left out."""
    known = np.asarray(values, np.float64)
    places = np.flatnonzero(np.isfinite(known))
    if not places.size:
        return ""
    places = places[np.linspace(0, places.size - 1, min(places.size, 2 * WIDTH)).astype(int)]
    low, high = known[places].min(), known[places].max()
    x = 4 + (WIDTH - 8) * places / max(1, known.size - 1)
    y = HEIGHT - 16 - (HEIGHT - 32) * (known[places] - low) / ((high - low) or 1.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    return _svg(
        f'<polyline points="{points}" fill="none" stroke="#4878a8" stroke-width="1.5"/>'
        f'<text x="4" y="11" style="{STYLE}">{high:.4g}</text>'
        f'<text x="4" y="{HEIGHT - 3}" style="{STYLE}">{low:.4g} {escape(label)}</text>'
    )


def heat(values: np.ndarray) -> str:
    """A square for each element (of the nearest, where there are too many), blue to white to red
    around 0; grey where it is not finite."""
    rows, columns = (_spread(size) for size in values.shape)
    part = values[np.ix_(rows, columns)]
    most = np.abs(part[np.isfinite(part)]).max(initial=0.0) or 1.0
    side = min(WIDTH / max(1, columns.size), HEIGHT / max(1, rows.size))
    cells = "".join(
        f'<rect x="{side * c:.1f}" y="{side * r:.1f}" width="{side:.1f}" height="{side:.1f}" '
        f'fill="{_colour(part[r, c] / most)}"/>'
        for r in range(rows.size)
        for c in range(columns.size)
    )
    return _svg(cells)


def _spread(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(size, CELLS)).astype(int))


def _colour(share: float) -> str:
    if not np.isfinite(share):
        return "#888"
    faded = round(255 * (1 - abs(share)))
    return f"rgb(255,{faded},{faded})" if share > 0 else f"rgb({faded},{faded},255)"


def _svg(inside: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
            f"{inside}</svg>")  # fmt: skip
