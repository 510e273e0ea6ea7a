"""Connections of the server: so many at once, and none that says nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 512  # sockets; a process has 1024 files by default
PATIENCE = 30.0  # seconds for the head of the first request


class Connection(H11Protocol):
    """uvicorn takes as many as come and waits for ever: what is too much is closed here."""

    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.close()
        else:
            self._watch = self.loop.call_later(PATIENCE, self._close_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _close_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()
