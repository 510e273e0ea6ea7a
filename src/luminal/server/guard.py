"""Who may ask at all, and a line in the log for every request.

Without an API key a web page that a user visits could ask this server through the browser: as a
cross-origin request, which names its origin, or under a name of its own that it has resolve to this
machine (DNS rebinding), which is in Host. Both are refused; with a key nobody gets so far.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .faults import Fault

LOG = logging.getLogger("luminal.access")
OPEN = ("/health",)  # paths that need no key


class Guard:
    """Around an application. hosts: names under which this server is known, besides addresses and
    localhost. origins: whose pages may ask ("*": all)."""

    def __init__(
        self, app: ASGIApp, api_key: str | None, hosts: Collection[str], origins: Collection[str]
    ) -> None:
        self._app, self._origins = app, frozenset(origins)
        self._key = None if api_key is None else api_key.encode()
        self._hosts = frozenset(["localhost", *(host.lower() for host in hosts)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        fault, app = self._fault(scope["path"], Headers(scope=scope)), self._app
        try:
            await (app if fault is None else fault.response())(scope, receive, note)
        finally:
            took, path = time.perf_counter() - started, scope["path"].encode("unicode_escape")
            LOG.info("%s %s %d %.2f s", scope["method"], path.decode()[:200], status, took)

    def _fault(self, path: str, headers: Headers) -> Fault | None:
        """Why a request is refused, if it is."""
        if self._key is not None:
            return None if path in OPEN or self._knows(headers) else Fault(
                401, "a valid API key is needed: Authorization: Bearer KEY", "invalid_api_key"
            )  # fmt: skip
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return Fault(403, f"{host[:80]!r} is no name of this server: start it with "
                         "--allow-host NAME or --api-key KEY", "forbidden_host")  # fmt: skip
        own = origin is not None and urlsplit(origin).netloc.lower() == host.lower()
        if origin is None or own or self._origins & {origin, "*"}:
            return None
        return Fault(403, f"pages of {origin[:80]!r} may not ask: start the server with "
                     "--allow-origin ORIGIN", "forbidden_origin")  # fmt: skip

    def _knows(self, headers: Headers) -> bool:
        """Whether the key is there. Headers are bytes that count as Latin-1."""
        assert self._key is not None
        scheme, _, given = headers.get("authorization", "").encode("latin-1").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._key)

    def _is_ours(self, host: str) -> bool:
        """A Host header: an address, localhost, or one of the names."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True
