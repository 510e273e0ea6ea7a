"""Models that make a text of a text (T5), for /v1/completions."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from starlette.types import Receive

from ..models.llm import Piece, Wishes
from ..models.llm.text import StopTexts
from ..models.seq2seq import T5, Asked
from .asking import unless_gone
from .faults import Fault
from .forms import Answer, TextForm
from .lazy import Lazy
from .requests import Completion

BATCH = 8  # texts made side by side


class Job:
    """A text that somebody waits for, in tokens, until they are gone. wishes: what it should be.
    """

    def __init__(self, t5: T5, ids: list[int], wishes: Wishes, gone: threading.Event) -> None:
        def more(made: list[int]) -> bool:
            text = t5.decode(made) if wishes.stop else ""
            return not (gone.is_set() or any(stop in text for stop in wishes.stop))

        self.asked = Asked(ids, wishes.limit, wishes.sampling, more)
        self.wishes = wishes
        self.made: list[int] | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.made is not None or self.error is not None


class Rewriter:
    """A T5. Of the requests that wait for it, one runs what all of them want, as many texts side
    by side as there may be. name: for clients (None: the directory's)."""

    def __init__(
        self, directory: Path, threads: int | None = None, device: str = "auto",
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.name = name or directory.name
        load = partial(T5, directory, batch=BATCH, threads=threads, device=device)
        self.model = Lazy(self.name, load, [directory])
        self._waiting: deque[Job] = deque()

    async def answer(self, receive: Receive, given: Completion) -> dict[str, Any]:
        """The body of an answer; who leaves keeps nobody waiting. Raises as `complete`, Gone."""
        gone = threading.Event()
        try:
            work = asyncio.to_thread(self.complete, given, gone)
            made: dict[str, Any] = await unless_gone(receive, work)
            return made
        finally:
            gone.set()

    def complete(self, given: Completion, gone: threading.Event | None = None) -> dict[str, Any]:
        """The body of an answer. gone: set when nobody waits for it any more. Raises Fault,
        InputError, WeightsError."""
        wanting = {"stream": given.stream, "echo": given.echo, "logprobs": given.logprobs,
                   "min_tokens": given.min_tokens, "stop_token_ids": given.stop_token_ids,
                   "ignore_eos": given.ignore_eos}  # fmt: skip
        for name, wanted in wanting.items():
            if wanted:
                raise Fault(400, f"{name}: not with {self.name}", "invalid_value", name)
        t5 = self.model.get()
        prompts = [t5.encode(p) if isinstance(p, str) else p for p in given.prompts()]
        limit = t5.context - 1 if given.limit is None else given.limit
        gone = gone or threading.Event()
        jobs = [Job(t5, ids, given.wishes(limit, (), choice, None, (), False), gone)
                for ids in prompts for choice in range(given.n)]  # fmt: skip
        for job in jobs:
            t5.check(job.asked)
        self._run(t5, jobs)
        answer = Answer(TextForm(None, False), self.name, sum(map(len, prompts)))
        return answer.whole([_reply(t5, job) for job in jobs])

    def _run(self, t5: T5, jobs: list[Job]) -> None:
        """Until these are done, by whoever has the lock."""
        self._waiting += jobs
        while not all(job.done for job in jobs):
            with self.model.lock:
                taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                try:
                    for job, made in zip(taken, t5.complete_all([job.asked for job in taken])):
                        job.made = made
                except Exception as error:  # whoever waits for them must hear of it
                    for job in taken:
                        job.error = error


def _reply(t5: T5, job: Job) -> list[Piece]:
    if job.made is None:
        assert job.error is not None
        raise job.error
    stops, tokens = StopTexts(job.wishes.stop), job.made
    text = stops.push(t5.decode(tokens))
    ended = stops.found or len(tokens) < min(job.wishes.limit, t5.context - 1)
    made = [Piece("", token) for token in tokens]
    return [*made, Piece(text + stops.flush(), finish="stop" if ended else "length")]
