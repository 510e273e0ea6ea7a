"""Bodies of requests: read in time, bounded one by one and all together, checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .faults import Fault
from .requests import Body

MOST_BYTES = 8 << 20  # of a body
SMALL = 64 << 10  # bytes of a body that are not counted: who asks little is never refused
MOST_TOGETHER = 64 << 20  # bytes of all bodies beyond that
MOST_VALUES = {b"[": 1 << 16, b"{": 1 << 16, b",": 1 << 20}  # nothing else runs while it is checked
SECONDS = 60  # until all of a body is there
MOST_FIELDS = 64 << 10  # bytes of a form beside its file
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
                async for part in self._stream(request, MOST_BYTES):
                    data += part
        except TimeoutError:
            raise _slow() from None
        for sign, count in MOST_VALUES.items():
            if data.count(sign) > count:
                raise Fault(413, f"the body has more than {count} {sign.decode()!r}",
                            "body_too_large")  # fmt: skip
        return kind.model_validate_json(bytes(data))

    async def form(self, request: Request, most: int) -> tuple[bytes, dict[str, Any]]:
        """(the contents of the field `file`, the other fields) of a form; most: bytes of the file.
        Raises Fault."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise Fault(400, "the body is no form: multipart/form-data with a file", "invalid_body")
        stream = self._stream(request, most + MOST_FIELDS)
        parser = MultiPartParser(request.headers, stream, max_files=1, max_fields=32,
                                 max_part_size=MOST_FIELDS)  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                found = await parser.parse()
        except TimeoutError:
            raise _slow() from None
        except MultiPartException as error:
            raise Fault(400, f"the form cannot be read: {error.message}", "invalid_body") from None
        try:
            file = found.get("file")
            if not isinstance(file, UploadFile):
                raise Fault(400, "file: the form has no file under this name", "missing", "file")
            return await file.read(), _fields(found)
        finally:
            await found.close()

    async def _stream(self, request: Request, most: int) -> AsyncGenerator[bytes, None]:
        """The parts of a body. Raises Fault for one that is too large."""
        size = 0
        async for part in request.stream():
            size += len(part)
            self._check(request, size, most)
            yield part

    def _check(self, request: Request, size: int, most: int) -> None:
        if size > most:
            raise Fault(413, f"the body is larger than {most >> 20} MiB", "body_too_large")
        if size > SMALL:
            self._large[request] = size - SMALL
            if sum(self._large.values()) > MOST_TOGETHER:
                raise Fault(503, f"the server holds {MOST_TOGETHER >> 20} MiB of large requests, "
                            "all that it takes at once: try again", "overloaded")  # fmt: skip

    def forget(self, request: Request) -> None:
        """It is answered."""
        self._large.pop(request, None)


def _fields(form: FormData) -> dict[str, Any]:
    """All but files. A name with brackets behind it (`name[]`, `name[0]`), and one that comes
    several times, has a list."""
    found: dict[str, list[str]] = {}
    lists: set[str] = set()
    for name, value in form.multi_items():
        if isinstance(value, str):
            plain = re.sub(r"\[\d*\]$", "", name)
            found.setdefault(plain, []).append(value)
            if plain != name or len(found[plain]) > 1:
                lists.add(plain)
    return {name: values if name in lists else values[0] for name, values in found.items()}


def _slow() -> Fault:
    return Fault(408, f"no whole body in {SECONDS} s", "body_too_slow")
