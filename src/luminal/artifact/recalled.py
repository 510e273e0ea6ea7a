"""A compiled program from the store of kept ones; or compiled now, and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..graph.passes import Program
from ..runtime.report import Report
from ..search.tune import Tuning
from ..store import Store
from . import file
from .identity import program_key
from .saved import Saved

Note = Callable[[str | None], None]


def recalled(
    program: Program, tuning: Tuning, report: Report, store: Store, make: Callable[[], Saved],
    anew: bool = False, elsewhere: Callable[[], None] | None = None, note: Note | None = None,
) -> Saved:  # fmt: skip
    """What an earlier compilation of this program has kept, unless it shall be made anew; else what
    `make` gives, which is kept. elsewhere: has another process compile it, where none is kept.
    note: called with the key that it is kept under."""

    def found(key: str | None) -> Saved | None:
        return store.find(key, partial(file.read, key=key))

    with report.stage("recall"):
        key = None if anew else program_key(program, tuning.state)
        known = found(key)
    if known is None and key is not None and elsewhere is not None:
        with report.stage("elsewhere"):
            elsewhere()
            known = found(key)
    if known is not None:
        if note is not None:
            note(key)
        return replace(known, report=replace(known.report, stages=report.stages))
    made = make()
    with report.stage("keep"):
        if anew:  # a search has changed the state
            key = program_key(program, tuning.state)
        if store.keep(key, partial(file.write, made, key=key)) and note is not None:
            note(key)
    return made
