"""The text of a reply as it comes, parted into what is shown and calls of functions."""

from __future__ import annotations

from ...models.llm.text import overlap
from .parsers import BARE, OPENINGS, Broken, Object, Opening, Schemas


class CallReader:
    """bare: a reply that begins as JSON may be a call. What opens no call, or a broken one, is
    text."""

    def __init__(self, schemas: Schemas, bare: bool) -> None:
        self._schemas, self._bare = schemas, bare
        self._held = ""  # what may be a call
        self._behind = False  # a call; the space after it is not shown

    def push(self, piece: str) -> tuple[str, list[Object]]:
        """(text that is certainly no call, calls that are complete)."""
        self._held += piece
        return self._take(ended=False)

    def finish(self) -> tuple[str, list[Object]]:
        """The same of what was held back, once the reply has ended."""
        return self._take(ended=True)

    def _take(self, ended: bool) -> tuple[str, list[Object]]:
        shown, calls = "", []
        while self._held:
            place, opening = self._next(ended)
            shown += self._cut(place)
            if opening is None:
                break
            found = self._read(opening, ended)
            if found is not None:
                more, end = found
                calls += more
                self._held, self._behind, self._bare = self._held[end:], True, False
            elif not ended:
                break
            else:
                self._bare = False
                shown += self._cut(len(opening.marker))
        return shown, calls

    def _cut(self, place: int) -> str:
        """The held text before the place, to be shown."""
        text, self._held = self._held[:place], self._held[place:]
        if self._behind:
            text = text.lstrip()
        if text:
            self._behind = self._bare = False
        return text

    def _next(self, ended: bool) -> tuple[int, Opening | None]:
        """Where a call begins; or, without an opening, may begin."""
        if self._bare:
            begin = self._held.lstrip()[:1]
            if begin in ("{", "[") or not (begin or ended):
                return 0, BARE if begin else None
        found = [(self._held.find(o.marker), n) for n, o in enumerate(OPENINGS)]
        places = [(place, n) for place, n in found if place >= 0]
        if places:
            place, number = min(places)
            return place, OPENINGS[number]
        keep = 0 if ended else max(overlap(self._held, o.marker) for o in OPENINGS)
        return len(self._held) - keep, None

    def _read(self, opening: Opening, ended: bool) -> tuple[list[Object], int] | None:
        """None for what is broken, or not complete yet."""
        if not ended and (opening.end is None or opening.end not in self._held):
            return None
        try:
            return opening.read(self._held, len(opening.marker), ended, self._schemas)
        except Broken:
            return None
