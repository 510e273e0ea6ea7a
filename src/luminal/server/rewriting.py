"""Models that make a text of a text (T5), for /v1/completions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from .. import forks
from ..models.llm import Piece, Wishes
from ..models.llm.text import StopTexts
from ..models.seq2seq import T5
from .faults import Fault
from .forms import Answer, TextForm
from .requests import Completion


class Rewriter:
    """A T5, loaded when first asked for and used by one thread at a time."""

    def __init__(self, directory: Path, threads: int | None = None, device: str = "auto") -> None:
        self._directory, self._threads, self._device = directory, threads, device
        self._t5: T5 | None = None
        self._lock = threading.RLock()
        forks.guard(self, "_lock", forks.OUTER)

    @property
    def name(self) -> str:
        return self._directory.name

    def complete(self, given: Completion) -> dict[str, Any]:
        """The body of an answer. Raises Fault, InputError, WeightsError."""
        wanting = {"stream": given.stream, "echo": given.echo, "logprobs": given.logprobs,
                   "min_tokens": given.min_tokens, "stop_token_ids": given.stop_token_ids,
                   "ignore_eos": given.ignore_eos}  # fmt: skip
        for name, wanted in wanting.items():
            if wanted:
                raise Fault(400, f"{name}: not with {self.name}", "invalid_value", name)
        with self._lock:
            if self._t5 is None:
                self._t5 = T5(self._directory, threads=self._threads, device=self._device)
            prompts = [self._t5.encode(p) if isinstance(p, str) else p for p in given.prompts()]
            limit = self._t5.context - 1 if given.limit is None else given.limit
            replies = [
                self._reply(self._t5, ids, given.wishes(limit, (), choice, None, (), False))
                for ids in prompts for choice in range(given.n)
            ]  # fmt: skip
        answer = Answer(TextForm(None, False), given.model, sum(map(len, prompts)))
        return answer.whole(replies)

    @staticmethod
    def _reply(t5: T5, ids: list[int], wishes: Wishes) -> list[Piece]:
        tokens, stops = list[int](), StopTexts(wishes.stop)
        for token in t5.tokens(ids, wishes.limit, wishes.sampling):
            tokens.append(token)
            whole = t5.decode(tokens)
            if any(stop in whole for stop in wishes.stop):
                break
        text = stops.push(t5.decode(tokens))
        ended = stops.found or len(tokens) < min(wishes.limit, t5.context - 1)
        made = [Piece("", token) for token in tokens]
        return [*made, Piece(text + stops.flush(), finish="stop" if ended else "length")]
