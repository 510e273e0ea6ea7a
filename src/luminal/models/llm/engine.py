"""Many replies at once: a thread that batches them, and what to ask it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from ...errors import InputError, LuminalError
from .batch import BatchProgram
from .draft import USUAL, Drafts, check_guesses, drafted, drafts_of
from .loading import load
from .lookup import Lookup
from .pictures import Seen, check_tokens
from .prefixes import Prefixes
from .reply import Piece, Reply, Wishes
from .scheduler import Part, Scheduler, Sequence
from .text import Tokenizer

Listener = Callable[[Piece | LuminalError], None]


class Busy(LuminalError, RuntimeError):
    """The queue is full, or the engine is closing: ask again later."""


class Ticket:
    """A reply that was asked for. The listener hears of every piece; the last one has a `finish`,
    or an error comes instead."""

    def __init__(self, reply: Reply, listener: Listener) -> None:
        self.reply, self.listener = reply, listener
        wanted = 0 if reply.scored else None
        self.sequence = Sequence(reply.tokens, wanted=wanted, adapter=reply.adapter)
        self.lookup = Lookup()


@dataclass(frozen=True)
class Load:
    """What the engine does now, and what it has done. computed: tokens that were run; reused: that
    were found in the cache; generated: tokens of replies."""

    running: int
    waiting: int
    pages: int
    pages_held: int
    runs: int
    computed: int
    reused: int
    generated: int
    preempted: int


class Engine:
    """Replies to many prompts at once, each as if it were alone.

    queue: how many may wait for a place (None: any number). tokenizer: None for prompts and replies
    in tokens. speculate: how many tokens of a reply may be guessed and checked in one run, where
    the run has room for them. prefixes: pages that are filled now, and kept when it closes. drafts:
    who guesses; None: what came before.
    """

    def __init__(
        self, program: BatchProgram, tokenizer: Tokenizer | None, queue: int | None = None,
        speculate: int = 0, prefixes: Prefixes | None = None, drafts: Drafts | None = None,
    ) -> None:  # fmt: skip
        if speculate:
            check_guesses(program.config)
        self._drafts = drafts
        self.program, self.tokenizer, self.queue = program, tokenizer, queue
        self.speculate = speculate
        self.config, self.context = program.config, program.context
        self._scheduler = Scheduler(
            program.pages, program.page, program.chunk, program.batch, program.context,
            reuse=not program.config.carries,
        )
        if (seen := program.pictures) is not None and self.config.together:
            self._scheduler.unbroken = seen.unbroken
        self._scheduler.switch = program.switch
        self._prefixes = prefixes
        if prefixes is not None:
            prefixes.read(self._scheduler.pages)
        self._tickets: dict[Sequence, Ticket] = {}
        self._change = threading.Condition()
        self._closing, self._process = False, os.getpid()
        self._runs = self._computed = self._generated = 0
        self._thread = threading.Thread(target=self._work, name="luminal-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls, path_or_id: str | Path | None = None, quant: str | None = None,
        precision: str | None = None, context: int | None = None, batch: int = 32,
        chunk: int = 128, cache: int | None = None,
        queue: int | None = None, kv: str | None = None, speculate: int = 0,
        lora: str | Path | None = None, prefixes: bool = False,
        adapters: Ordered[str | Path] = (), draft: str | Path | None = None, texts: bool = False,
        mmproj: str | Path | None = None,
        **options: Any,
    ) -> Engine:  # fmt: skip
        """As `LLM`; batch: replies made at once; chunk: tokens computed at once; cache: tokens that
        the paged cache holds for all together (by default four contexts). prefixes: whether
        full pages are kept on disk at the end, and found again. adapters: like lora,
        but side by side: each reply has the one that its wishes name. draft: a smaller model that
        guesses for `speculate` (4 if none are asked for). texts: whether there must be a
        tokenizer. options: of `Graph.compile`. Raises as
        `LLM`."""
        device = options.get("device", "auto")
        found = load(path_or_id, quant, context, cache, kv, precision, lora, adapters, device,
                     mmproj)  # fmt: skip
        if texts and isinstance(found.text, LuminalError):
            raise found.text
        small = drafts = None
        if draft is not None:
            check_guesses(found.config)
            small, speculate = drafted(draft, found, device), speculate or USUAL
            check_guesses(small.config)
        program = BatchProgram.of(
            found, batch, chunk, cache, precision=found.precision, kv=found.kv, **options
        )  # fmt: skip
        program.pictures = found.pictures
        if small is not None:
            drafts = drafts_of(small, found, batch, chunk, **options)
        text = found.text if isinstance(found.text, Tokenizer) else None
        kept = None
        kept_too = not found.config.pictures and not found.config.carries
        if prefixes and found.identity is not None and kept_too:
            kept = Prefixes(program, f"{found.identity} {found.kv} {found.precision}")
        return cls(program, text, queue, speculate, kept, drafts)

    @property
    def is_forked(self) -> bool:
        """The engine's thread is in the process that this one was forked from."""
        return self._process != os.getpid()

    def _here(self) -> threading.Condition:
        if self.is_forked:
            raise LuminalError(
                "this engine runs in the process that was forked: load one in this process"
            )
        return self._change

    # ---- asking

    def submit(self, asked: Ordered[tuple[Ordered[int], Wishes, Listener]]) -> list[Ticket]:
        """Ask for replies to prompts in tokens: all of them or none. Listeners are called on the
        engine's thread and must return soon. Raises InputError, or Busy."""
        seen = [self.check(ids, wishes) for ids, wishes, _ in asked]
        tickets = [
            Ticket(Reply(list(ids), wishes, self.tokenizer, self.context, own), listener)
            for (ids, wishes, listener), own in zip(asked, seen)
        ]
        with self._here():
            if self._closing:
                raise Busy("no more requests are taken: the engine is closing")
            self._check_queue(len(tickets))
            for ticket in tickets:
                self._tickets[ticket.sequence] = ticket
                self._scheduler.add(ticket.sequence)
            self._change.notify_all()
        return tickets

    def check(self, ids: Ordered[int], wishes: Wishes) -> list[Seen]:
        """A prompt's pictures. Raises InputError for one that cannot be replied to."""
        if not ids:
            raise InputError("the prompt is empty")
        if len(ids) > self.context:
            raise InputError(f"the prompt has {len(ids)} tokens, the context {self.context}")
        seen = check_tokens(ids, self.config.vocabulary, self.program.pictures)
        if wishes.limit < 0:
            raise InputError(f"a reply of {wishes.limit} tokens")
        wishes.sampling.check(self.config.vocabulary)
        count = 0 if self.program.beside is None else self.program.beside.count
        if not 0 <= wishes.adapter <= count:
            raise InputError(f"adapter {wishes.adapter}: this engine has {count}")
        return seen

    def _check_queue(self, more: int) -> None:
        """The places that are free count too: what they take does not wait."""
        waiting = len(self._scheduler.waiting)
        places = self.program.batch - len(self._scheduler.running)
        if self.queue is not None and waiting + more > self.queue + places:
            raise Busy(f"the queue is full: {waiting} requests wait, {self.queue} may")

    def cancel(self, ticket: Ticket) -> None:
        """Nobody wants this reply any more: its place and its pages are free. Nothing happens if it
        has ended."""
        with self._here():
            if self._tickets.pop(ticket.sequence, None) is not None:
                self._scheduler.remove(ticket.sequence)

    def complete(self, prompts: Ordered[Ordered[int]], wishes: Wishes) -> list[list[Piece]]:
        """The pieces of the replies to several prompts. Raises InputError, or Busy."""
        heard: list[SimpleQueue[Piece | LuminalError]] = [SimpleQueue() for _ in prompts]
        tickets = self.submit([(ids, wishes, box.put) for ids, box in zip(prompts, heard)])
        try:
            return [_until_finish(box) for box in heard]
        finally:
            for ticket in tickets:
                self.cancel(ticket)

    def load_now(self) -> Load:
        """How busy the engine is."""
        with self._here():
            scheduler = self._scheduler
            return Load(
                len(scheduler.running), len(scheduler.waiting), scheduler.pages.count,
                scheduler.pages.held, self._runs, self._computed, scheduler.reused,
                self._generated, scheduler.preempted,
            )  # fmt: skip

    def close(self, wait: float | None = None) -> None:
        """Take no more requests, finish those there are for at most `wait` seconds (None: however
        long it takes), and give up the rest."""
        with self._here():
            self._closing = True
            self._change.notify_all()
        self._thread.join(wait)
        self._fail(list(self._tickets.values()), LuminalError("the engine was closed"))
        self._thread.join()
        if self._prefixes is not None:
            self._prefixes.write(self._scheduler.pages)
            self._prefixes = None

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._tickets or self._closing)
                if not self._tickets:
                    return
                parts = self._scheduler.plan()
            try:
                logits = self.program.run(parts)
            except Exception as error:  # the others must not wait for ever
                self._fail(self._asked(parts), error)
                continue
            self._advance(parts, logits)

    def _asked(self, parts: list[Part]) -> list[Ticket]:
        """Those of the parts that nobody cancelled while they ran."""
        with self._change:
            found = (self._tickets.get(part.sequence) for part in parts)
            return [ticket for ticket in found if ticket is not None]

    def _advance(self, parts: list[Part], logits: np.ndarray) -> None:
        """Note what was computed, and choose the next token where a sequence was run to its end."""
        told = [part for part in parts if part.wanted]
        starts = np.cumsum([part.wanted for part in told])[:-1]
        with self._change:
            here = [part for part in parts if part.sequence in self._tickets]
            self._scheduler.ran(here)
            self._runs += 1
            self._computed += sum(part.count for part in parts)
            tickets = [self._tickets.get(part.sequence) for part in told]
        growing = [each for each, part in zip(tickets, told) if each and part.last]
        for ticket, part, rows in zip(tickets, told, np.split(logits, starts)):
            if ticket is not None:
                try:
                    self._reply(ticket, rows, part)
                except Exception as error:  # one reply's failure is no other's
                    self._fail([ticket], error)
        if self.speculate:
            self._guess(growing)

    def _reply(self, ticket: Ticket, logits: np.ndarray, part: Part) -> None:
        """More of a prompt; where that is all of it, the next token, and those after it as long as
        the guess is what the reply chooses."""
        reply, guess = ticket.reply, part.sequence.guess[: part.guessed]
        after = (1 + len(guess)) * part.last
        reply.score(logits[: len(logits) - after])
        if not after:
            return
        pieces: list[Piece] = []
        for expected, row in zip([*guess, None], logits[-after:]):
            pieces += reply.push(row)
            if reply.finish is not None or reply.tokens[-1] != expected:
                break
        self._generated += sum(piece.token is not None for piece in pieces)
        if reply.finish is not None:
            self.cancel(ticket)
        elif guess:
            with self._change:
                if ticket.sequence in self._tickets:
                    self._scheduler.accepted(part)
        ticket.sequence.guess = []
        if ticket.sequence.reused:  # is told once
            pieces[0] = replace(pieces[0], reused=ticket.sequence.reused)
            ticket.sequence.reused = 0
        for piece in pieces:
            ticket.listener(piece)

    def _guess(self, tickets: list[Ticket]) -> None:
        """What the next run may check besides, of replies that go on."""
        with self._change:
            going = [each for each in tickets if each.sequence in self._tickets]
        counts = [max(0, min(self.speculate, each.reply.left - 1)) for each in going]
        replies = [each.reply.tokens for each in going]
        try:
            if self._drafts is not None:
                found = self._drafts.guess([*zip(going, replies, counts)])
            else:
                found = [each.lookup.guess(tokens, count) if count else []
                         for each, tokens, count in zip(going, replies, counts)]  # fmt: skip
        except Exception as error:  # the others must not wait for ever
            self._fail(going, error)
            return
        for each, guess in zip(going, found):
            each.sequence.guess = guess

    def _fail(self, tickets: list[Ticket], error: Exception) -> None:
        known = error if isinstance(error, LuminalError) else LuminalError(repr(error))
        for ticket in tickets:
            self.cancel(ticket)
            with contextlib.suppress(Exception):  # nobody listens there any more
                ticket.listener(known)


def _until_finish(box: SimpleQueue[Piece | LuminalError]) -> list[Piece]:
    pieces: list[Piece] = []
    while not pieces or pieces[-1].finish is None:
        heard = box.get()
        if isinstance(heard, LuminalError):
            raise heard
        pieces.append(heard)
    return pieces
