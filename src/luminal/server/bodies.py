"""Bodies of requests: read in time, bounded one by one and all together, checked."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from starlette.requests import Request

from .faults import Fault
from .requests import Body

MOST_BYTES = 8 << 20  # of a body
SMALL = 64 << 10  # bytes of a body that are not counted: who asks little is never refused
MOST_TOGETHER = 64 << 20  # bytes of all bodies beyond that
MOST_VALUES = {b"[": 1 << 16, b"{": 1 << 16, b",": 1 << 20}  # nothing else runs while it is checked
SECONDS = 60  # until all of a body is there
Kind = TypeVar("Kind", bound=Body)


class Bodies:
    """Those of the requests that are being read or answered."""

    def __init__(self) -> None:
        self._large: dict[Request, int] = {}  # bytes that count

    async def read(self, request: Request, kind: type[Kind]) -> Kind:
        """A request's JSON, checked. Raises Fault or ValidationError."""
        data = bytearray()
        try:
            async with asyncio.timeout(SECONDS):
                async for part in request.stream():
                    data += part
                    self._check(request, len(data))
        except TimeoutError:
            raise Fault(408, f"no whole body in {SECONDS} s", "body_too_slow") from None
        for sign, count in MOST_VALUES.items():
            if data.count(sign) > count:
                raise Fault(413, f"the body has more than {count} {sign.decode()!r}",
                            "body_too_large")  # fmt: skip
        return kind.model_validate_json(bytes(data))

    def _check(self, request: Request, size: int) -> None:
        if size > MOST_BYTES:
            raise Fault(413, f"the body is larger than {MOST_BYTES >> 20} MiB", "body_too_large")
        if size > SMALL:
            self._large[request] = size - SMALL
            if sum(self._large.values()) > MOST_TOGETHER:
                raise Fault(503, f"the server holds {MOST_TOGETHER >> 20} MiB of large requests, "
                            "all that it takes at once: try again", "overloaded")  # fmt: skip

    def forget(self, request: Request) -> None:
        """It is answered."""
        self._large.pop(request, None)
