"""Guesses of the next tokens by a smaller model of the same vocabulary (speculative decoding,
Leviathan and others, 2022). The large model runs them at once; those that it would have chosen
itself are kept, so that replies are what they are without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...errors import InputError, Unsupported
from .config import DecoderConfig
from .program import DecoderProgram


class Guesser(Protocol):
    """What may follow a sequence that grows."""

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most so many tokens."""


class Draft:
    """A small model's likeliest tokens. vocabulary: of the model that checks them."""

    def __init__(self, program: DecoderProgram, vocabulary: int) -> None:
        if program.config.vocabulary != vocabulary:
            raise InputError(
                f"the draft model has {program.config.vocabulary} tokens, the model {vocabulary}"
            )
        self.program = program

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """What the small model says next, as far as its context reaches. What it has computed of
        these tokens stays: of a refused guess only the tokens after the first wrong one go."""
        program, given = self.program, list(tokens)
        count = min(count, program.context - len(given))
        if count < 1 or max(given) >= program.config.vocabulary:  # it sees no pictures
            return []
        program.keep(common(program.tokens, given[:-1]))
        fed, guess = given[len(program.tokens) :], list[int]()
        while len(guess) < count:
            guess.append(int(program.feed(fed)[-1].argmax()))
            fed = guess[-1:]
        return guess


def check_guesses(config: DecoderConfig) -> None:
    """Raises Unsupported where a guess that is refused cannot be taken back."""
    if config.carries:
        raise Unsupported(
            f"speculate: layers of {config.family} carry states, from which the tokens of a wrong "
            "guess cannot be taken again"
        )


def common(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    shorter = min(len(held), len(wanted))
    if held[:shorter] == wanted[:shorter]:  # nearly always
        return shorter
    return next(n for n in range(shorter) if held[n] != wanted[n])
