"""Points of the space of a kernel's schedules, as text."""

from __future__ import annotations

import json

from ..scheduling.decisions import Choice, Choices


def point_text(choices: Choices) -> str:
    """A point in one line: "block a1 = 64, lane = a0"; "default" for the empty one."""
    return ", ".join(f"{name} = {choices[name]}" for name in sorted(choices)) or "default"


def dump_point(choices: Choices) -> str:
    """A point as the database keeps it."""
    return json.dumps(dict(choices), sort_keys=True)


def load_point(text: str) -> dict[str, Choice]:
    """The inverse of `dump_point`. Raises ValueError."""
    found = json.loads(text)
    plain = isinstance(found, dict) and all(type(v) in (int, str) for v in found.values())
    if not plain:
        raise ValueError(f"no point of a space: {text[:80]!r}")
    return found
