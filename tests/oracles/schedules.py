"""Schedules from their text form, which `explain()` prints."""

from __future__ import annotations

from luminal.errors import Illegal
from luminal.kernel.schedule import KINDS, Layout, Loop, Path, Schedule


def schedule_of(text: str) -> Schedule:
    """The inverse of `Schedule.text`."""
    paths, layouts, homes, tails, registers = {}, {}, {}, {}, 40
    for line in filter(None, map(str.strip, text.splitlines())):
        head, _, rest = line.partition(":")
        kind, _, name = head.partition(" ")
        if kind == "library" and not name:
            return Schedule({}, library=rest.strip())
        if kind == "registers" and not name:
            registers = int(rest)
        elif kind == "layout" and name:
            layouts[name] = layout_of(rest)
        elif kind == "home" and name:
            homes[name] = rest.strip()
        elif kind == "tail" and name:
            tails[name] = rest.strip()
        else:
            paths[head] = path_of(rest)
    return Schedule(paths, layouts, homes, tails, registers)


def path_of(text: str) -> Path:
    return tuple(map(loop_of, text.split()))


def loop_of(text: str) -> Loop:
    mark = text[-1] if text[-1] in KINDS else ""
    axis, _, step = text[: len(text) - len(mark)].partition("/")
    if not axis or not step.isdigit():
        raise Illegal(f"a loop is written axis/step and a mark, not {text!r}")
    return Loop(axis, int(step), KINDS[mark])


def layout_of(text: str) -> Layout:
    """ "1/32 0/1 1/1": blocks of 32 of dimension 1, then dimension 0, then single steps."""
    pairs = (item.partition("/") for item in text.split())
    return tuple((int(dim), int(step)) for dim, _, step in pairs)
