"""What the default schedule decides, by name: the space in which a search looks.

The default asks `decisions.of(name, default, options)` wherever another choice would be as right:
the lane axis, a tile, a block, an order. Untouched, each answer is the default itself, so that the
default is a point of the space; whoever searches reads `made` and hands in other answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import Illegal

Choice: TypeAlias = int | str  # what the database can keep
Choices: TypeAlias = Mapping[str, Choice]


@dataclass(frozen=True)
class Decision:
    """One tunable. options: what may be chosen, most promising first; the default is among them.
    taken: what was chosen."""

    name: str
    default: Choice
    options: tuple[Choice, ...]
    taken: Choice

    @property
    def others(self) -> tuple[Choice, ...]:
        """The options that were not taken."""
        return tuple(option for option in self.options if option != self.taken)


class Decisions:
    """The answers for one run of the default schedule. made: every decision that was asked for."""

    def __init__(self, chosen: Choices | None = None) -> None:
        self.chosen = dict(chosen or {})
        self.made: dict[str, Decision] = {}
        self._changed: dict[str, Choice] = {}

    def of(self, name: str, default: Choice, options: Iterable[Choice]) -> Choice:
        """The answer to a decision. Raises Illegal where one was chosen that is no option."""
        known = tuple(dict.fromkeys([*options, default]))
        taken = self.chosen.get(name, default)
        if taken not in known:
            raise Illegal(f"{name}: {taken!r} is not among {known}")
        self.made[name] = Decision(name, default, known, taken)
        if taken != default:  # what is asked again may meanwhile be the default
            self._changed[name] = taken
        return taken

    def number(self, name: str, default: int, options: Iterable[int]) -> int:
        """As `of`, for numbers."""
        return int(self.of(name, default, options))

    @property
    def point(self) -> dict[str, Choice]:
        """The choices that differ from the default's own; what was not asked for is left out."""
        return dict(self._changed)
