"""A page that is made anew whenever it is loaded: `luminal view MODEL --serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = ("localhost", "127.0.0.1", "[::1]")
OURS = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def server(make: Callable[[], str], port: int = 0) -> ThreadingHTTPServer:
    """A server of this page on this machine alone; `serve_forever()` runs it, `server_port` is
    where. make: called for each load, one at a time; an error of it is the answer, with status
    500. Raises OSError where the port is taken."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host")
            if host not in HERE:  # a page of others that has taken this address for its own name
                self.send_error(HTTPStatus.FORBIDDEN, "open it as localhost")
            elif self.path.partition("?")[0] != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._answer()

        do_HEAD = do_GET

        def _answer(self) -> None:
            try:
                with lock:
                    page = make()
            except Exception as error:  # whatever it is: who reads has no other way to know
                told = f"{type(error).__name__}: {error}"
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", told)
            else:
                self._send(HTTPStatus.OK, "text/html", page)

        def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", OURS)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the terminal is the user's."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
