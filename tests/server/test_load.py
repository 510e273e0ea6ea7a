"""Many clients at once: nobody's reply is lost or mixed up, whoever leaves or errs beside them."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, RateLimitError

from luminal.models.llm import Wishes

from .conftest import CONTEXT, NAME, Running

Start = Callable[..., AbstractContextManager[Running]]
BAD: list[dict[str, Any]] = [{"content": b"{"}, {"json": {"model": NAME, "prompt": -1}},
                             {"json": {"model": NAME, "prompt": [3] * (CONTEXT + 1)}}]  # fmt: skip


class Crowd:
    """Clients that ask at the same time, each for one of some prompts whose replies are known."""

    def __init__(self, running: Running, seed: int, prompts: int = 12) -> None:
        self.running, self.rng, self.counts = running, random.Random(seed), Counter[str]()
        self.cases: list[tuple[list[int], int, str]] = []
        tokenizer = running.engine.tokenizer
        assert tokenizer is not None
        shared = [self.rng.randrange(6, 320) for _ in range(40)]  # some begin alike
        for n in range(prompts):
            own = [self.rng.randrange(6, 320) for _ in range(self.rng.choice([1, 5, 30, 70]))]
            ids, count = (shared + own if n % 3 == 0 else own), self.rng.randint(2, 45)
            (pieces,) = running.engine.complete([ids], Wishes(count))  # alone
            self.cases.append((ids, count, "".join(piece.text for piece in pieces)))

    async def meet(self, clients: int, requests: int) -> None:
        """So many clients, each with so many requests one after the other."""
        seeds = [self.rng.random() for _ in range(clients)]
        await asyncio.gather(*[self._client(requests, seed) for seed in seeds])

    async def _client(self, requests: int, seed: float) -> None:
        """Each has connections of its own: a pool for all is searched at every request."""
        rng, url = random.Random(seed), f"{self.running.url}/v1"
        async with httpx.AsyncClient(timeout=300, verify=False) as http:
            openai = AsyncOpenAI(base_url=url, api_key="-", max_retries=0, http_client=http)
            for _ in range(requests):
                if rng.random() < 0.1:
                    answer = await http.post(f"{url}/completions", **rng.choice(BAD))
                    assert answer.status_code == 400
                    self.counts["bad"] += 1
                else:
                    await self._ask(openai, rng)

    async def _ask(self, openai: AsyncOpenAI, rng: random.Random) -> None:
        acts = [self._whole, self._stream, self._whole, self._stream, self._leave]
        ids, count, text = rng.choice(self.cases)
        ask = {"model": NAME, "prompt": ids, "max_tokens": count, "temperature": 0}
        try:
            await rng.choice(acts)(openai, ask, text)
        except RateLimitError as error:
            assert error.code == "queue_full"
            self.counts["refused"] += 1
            await asyncio.sleep(0.05)

    async def _whole(self, openai: AsyncOpenAI, ask: dict[str, Any], text: str) -> None:
        made = await openai.completions.create(**ask)
        assert made.choices[0].text == text
        self.counts["right"] += 1

    async def _stream(self, openai: AsyncOpenAI, ask: dict[str, Any], text: str) -> None:
        stream = await openai.completions.create(**ask, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == text
        self.counts["right"] += 1

    async def _leave(self, openai: AsyncOpenAI, ask: dict[str, Any], text: str) -> None:
        """In the middle of a stream."""
        stream = await openai.completions.create(**{**ask, "max_tokens": 100}, stream=True)
        seen = ""
        async for chunk in stream:
            seen += chunk.choices[0].text
            if len(seen) > 3:
                break
        await stream.close()
        assert text.startswith(seen[:1])
        self.counts["left"] += 1


class Refusals(Counter[str]):
    """Counts that let the model run at the first refusal."""

    def __init__(self, let_run: threading.Event) -> None:
        super().__init__()
        self.let_run = let_run

    def __setitem__(self, name: str, count: int) -> None:
        super().__setitem__(name, count)
        if name == "refused":
            self.let_run.set()


def resident() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_forty_clients(running: Running) -> None:
    crowd = Crowd(running, 1)
    asyncio.run(crowd.meet(40, 5))
    running.idle()
    assert sum(crowd.counts.values()) == 200
    assert crowd.counts["right"] > 100 and crowd.counts["left"] and crowd.counts["bad"]
    assert running.engine.load_now().reused


def test_more_clients_than_the_queue_takes(start: Start, let_run: threading.Event) -> None:
    """Nobody is served before one was refused."""
    with start(queue=4) as running:
        let_run.set()
        crowd = Crowd(running, 2, prompts=4)
        let_run.clear()
        crowd.counts = Refusals(let_run)
        asyncio.run(crowd.meet(48, 2))
        running.idle()
        assert sum(crowd.counts.values()) == 96
        assert crowd.counts["refused"] and crowd.counts["right"]


@pytest.mark.slow
def test_sixty_four_clients_for_long(running: Running) -> None:
    """About 2,500 requests. Memory stays flat after the first quarter."""
    crowd, sizes = Crowd(running, 3, prompts=40), []
    started = time.monotonic()
    for _ in range(4):
        asyncio.run(crowd.meet(64, 10))
        running.idle()
        sizes.append(resident())
    assert sum(crowd.counts.values()) == 4 * 64 * 10
    print(dict(crowd.counts), f"{time.monotonic() - started:.0f} s", sizes)
    assert sizes[-1] < sizes[0] + (16 << 20)
