"""Between the event loop of the server and the thread of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from starlette.types import Receive

from ..errors import LuminalError
from ..models.llm import Engine, Piece, Wishes
from ..models.llm.engine import Listener

Heard = tuple[int, Piece | LuminalError]


class Gone(Exception):
    """The client left before its answer was complete."""


class Answers:
    """The replies to some prompts, as they grow; to be given up in the end."""

    def __init__(self, engine: Engine, asked: Sequence[tuple[list[int], Wishes]]) -> None:
        """Raises InputError, or Busy."""
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._tickets = engine.submit(
            [(ids, wishes, self._listener(n)) for n, (ids, wishes) in enumerate(asked)]
        )

    def _listener(self, number: int) -> Listener:
        def hear(piece: Piece | LuminalError) -> None:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, (number, piece))

        return hear

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """(number of the prompt, piece) in the order in which they are made."""
        left = len(self._tickets)
        while left:
            number, piece = await self._heard.get()
            if isinstance(piece, LuminalError):
                raise piece
            left -= piece.finish is not None
            yield number, piece

    def give_up(self) -> None:
        """Nobody waits for what is still missing, if anything is."""
        for ticket in self._tickets:
            self._engine.cancel(ticket)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """What the work returns; it is cancelled when the client leaves. Raises Gone."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_leaves(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
