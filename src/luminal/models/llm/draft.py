"""Guesses of the next tokens by a smaller model with the same tokens (speculative decoding,
Leviathan and others, 2022). The large model runs them at once; those that it would have chosen
itself are kept, so that replies are what they are without."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ...errors import InputError, Unsupported
from .batch import BatchProgram
from .config import DecoderConfig
from .loading import Loaded, load
from .pages import Pages
from .program import DecoderProgram
from .scheduler import Part
from .scheduler import Sequence as Held
from .text import Tokenizer

USUAL = 4  # tokens that a draft model guesses unless told otherwise
Asked = tuple[Hashable, Sequence[int], int]  # a sequence, its tokens, how many guesses


class Guesser(Protocol):
    """What may follow a sequence that grows."""

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most so many tokens."""


class Draft:
    """A small model's likeliest tokens. vocabulary: of the model that checks them."""

    def __init__(self, program: DecoderProgram, vocabulary: int) -> None:
        self.program, self.vocabulary = program, vocabulary

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
            guess.append(int(program.feed(fed)[-1, : self.vocabulary].argmax()))
            fed = guess[-1:]
        return guess


class Drafts:
    """The same for many sequences at once, each with pages of its own in the small model's cache.
    vocabulary: of the model that checks them. Raises Unsupported."""

    def __init__(self, program: BatchProgram, vocabulary: int) -> None:
        check_guesses(program.config)
        self.program, self.vocabulary = program, vocabulary
        self._pages, self._held = Pages(program.pages), dict[Hashable, Held]()

    def guess(self, asked: Sequence[Asked]) -> list[list[int]]:
        """What the small model says next of each sequence; what it holds of others is forgotten.

        One run computes what it has not seen yet, a chunk of all together at most: where that does
        not suffice there is no guess yet, so that a long prompt holds nobody up."""
        for gone in self._held.keys() - {key for key, _, _ in asked}:
            self._pages.release(self._held.pop(gone).pages)
        wanted = {self._sequence(key, tokens): self._end(tokens, count)
                  for key, tokens, count in asked}  # fmt: skip
        left = [sequence for sequence, end in wanted.items() if len(sequence.tokens) < end]
        while parts := self._parts(left):
            self._run(parts)
            left = [part.sequence for part in parts if part.sequence.cached + 1 == len(
                part.sequence.tokens) < wanted[part.sequence]]  # fmt: skip
        return [self._held[key].tokens[len(tokens) :] for key, tokens, _ in asked]

    def _sequence(self, key: Hashable, tokens: Sequence[int]) -> Held:
        """With these tokens, as far as they are held in its pages."""
        found, given = self._held.setdefault(key, Held([])), list(tokens)
        found.cached = common(found.tokens[: found.cached], given[:-1])
        found.tokens = given
        return found

    def _end(self, tokens: Sequence[int], count: int) -> int:
        """How long a sequence is with its guess: as far as the context reaches; it knows neither
        pictures nor words of its elder's alone."""
        known = max(tokens) < self.program.config.vocabulary
        return min(len(tokens) + count, self.program.context) if known else 0

    def _parts(self, sequences: Sequence[Held]) -> list[Part]:
        """Of those that find pages."""
        room, parts = self.program.chunk, list[Part]()
        for sequence in sequences:
            count = min(room, len(sequence.tokens) - sequence.cached)
            size = -(-(sequence.cached + count) // self.program.page)
            if count and size - len(sequence.pages) <= self._pages.available:
                while len(sequence.pages) < size:
                    sequence.pages.append(self._pages.take())
                parts.append(Part(sequence, sequence.cached, count, tuple(sequence.pages), 0))
                room -= count
        return parts

    def _run(self, parts: Sequence[Part]) -> None:
        told = [part.sequence for part in parts if part.last]
        logits = self.program.run(parts)
        for part in parts:
            part.sequence.cached += part.count
        for sequence, row in zip(told, logits):
            sequence.tokens.append(int(row[: self.vocabulary].argmax()))


def drafted(path_or_id: str | Path, large: Loaded, device: str) -> Loaded:
    """The small model, for contexts as long as its own and the large one's allow. Raises
    WeightsError, Unsupported, InputError."""
    if large.config.pictures:
        raise Unsupported("a draft model sees no pictures")
    found = load(path_or_id, device=device)
    small, own = found.text, large.text
    if isinstance(small, Tokenizer) and isinstance(own, Tokenizer):
        same = small.raw.get_vocab() == own.raw.get_vocab()
    else:
        same = found.config.vocabulary == large.config.vocabulary
    if not same:
        raise InputError(f"{path_or_id}: the draft model has other tokens than the model")
    return replace(found, context=min(found.context, large.context))


def check_guesses(config: DecoderConfig) -> None:
    """Raises Unsupported where a guess that is refused cannot be taken back."""
    if config.carries:
        raise Unsupported(
            f"speculate: layers of {config.family} carry states, from which the tokens of a wrong "
            "guess cannot be taken again"
        )


def drafts_of(found: Loaded, large: Loaded, batch: int, chunk: int, **options: Any) -> Drafts:
    """Beside a program for so many sequences. options: of `Graph.compile`."""
    program = BatchProgram.of(
        found, batch, chunk, precision=found.precision, kv=found.kv, **options
    )  # fmt: skip
    return Drafts(program, large.config.vocabulary)


def common(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    shorter = min(len(held), len(wanted))
    if held[:shorter] == wanted[:shorter]:  # nearly always
        return shorter
    return next(n for n in range(shorter) if held[n] != wanted[n])
