"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .asking import Answers, Gone, unless_gone
from .faults import Fault, fault_of
from .metrics import Metrics


class EventStream(Response):
    """The replies behind the events are given up when the client leaves. An event with a type is
    named after it; a stream of others ends with [DONE]."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[dict[str, Any]], answers: Answers, metrics: Metrics, named: bool
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._answers, self._metrics = events, answers, metrics
        self._named = named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            await unless_gone(receive, self._send_all(send))
        except (Gone, OSError):
            self._metrics.cancelled.inc()
            return
        except asyncio.CancelledError:  # the server stops
            await self._send_fault(send, Fault(503, "the server stops", "stopping"))
        finally:
            self._answers.give_up()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        try:
            async for event in self._events:
                await self._send(send, event)
        except OSError:
            raise
        except Exception as error:  # the status is sent already: an event tells
            await self._send_fault(send, fault_of(error))
            return
        if not self._named:
            await _write(send, "data: [DONE]\n\n")

    async def _send_fault(self, send: Send, fault: Fault) -> None:
        body = fault.body()
        if self._named:
            await self._send(send, {**body["error"], "type": "error"})
        else:
            await self._send(send, body)
            await _write(send, "data: [DONE]\n\n")

    async def _send(self, send: Send, event: dict[str, Any]) -> None:
        name = f"event: {event['type']}\n" if self._named else ""
        await _write(send, f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")


async def _write(send: Send, text: str) -> None:
    body = text.encode("utf-8", "replace")
    await send({"type": "http.response.body", "body": body, "more_body": True})
