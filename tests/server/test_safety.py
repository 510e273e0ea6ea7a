"""What strangers may do to a server: nothing that the others notice."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from luminal.server import bodies, connections
from luminal.server.requests import base

from .conftest import CONTEXT, NAME, Running, until

Start = Callable[..., contextlib.AbstractContextManager[Running]]
BODY: dict[str, Any] = {"model": NAME, "prompt": "the", "max_tokens": 1}


def ask(running: Running, headers: dict[str, str], **body: Any) -> httpx.Response:
    return running.http().post("/v1/completions", headers=headers, json={**BODY, **body})


def well_beside(running: Running, work: Callable[[], Any]) -> None:
    """/health answers while something else is asked."""
    thread = threading.Thread(target=work)
    with running.http() as http:
        thread.start()
        while thread.is_alive():
            assert http.get("/health").status_code == 200


def test_a_text_that_is_too_long_is_not_looked_at(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = running.engine.tokenizer
    assert tokenizer is not None
    seen: list[int] = []
    encode = type(tokenizer).encode

    def noted(self: Any, text: str, special: bool = True) -> list[int]:
        seen.append(len(text))
        return encode(self, text, special)

    monkeypatch.setattr(type(tokenizer), "encode", noted)
    long = "ab c" * (1 << 20)
    message = [{"role": "user", "content": long}]
    for path, more in (("/v1/completions", {"prompt": long}), ("/tokenize", {"prompt": long}),
                       ("/v1/chat/completions", {"messages": message}),
                       ("/v1/responses", {"input": long})):  # fmt: skip
        answer = running.http().post(path, json={"model": NAME, **more})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert not seen
    assert ask(running, {}, prompt="word " * CONTEXT).status_code == 400  # longer, by its tokens
    assert len(seen) == 1


def test_large_bodies_are_bounded_together(
    start: Start, let_run: threading.Event, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Those that come beside what is being answered are refused, small ones are not; it is no fault
    of the server's for the log."""
    monkeypatch.setattr(bodies, "MOST_TOGETHER", 3 << 20)
    large = {"user": "x" * (1 << 20)}
    with start() as running:
        found: list[int] = []
        send = lambda: found.append(ask(running, {}, **large).status_code)  # noqa: E731
        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: running.asked() == 3)
        refused = ask(running, {}, **large)
        assert refused.status_code == 503 and "try again" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"]
        assert running.http().post("/tokenize", json={"prompt": "a"}).status_code == 200
        let_run.set()
        for thread in threads:
            thread.join(300)
        assert found == [200] * 3 and ask(running, {}, **large).status_code == 200
    assert "Traceback" not in caplog.text


HOSTILE: list[dict[str, Any]] = [
    {"prompt": [-1] * (1 << 20)},
    {"prompt": [[-1]] * (1 << 20)},
    {"prompt": [[]] * (1 << 15)},
    {"prompt": [""] * (1 << 20)},
    {"stop": [""] * (1 << 20)},
    {"logit_bias": {f"x{n}": 1 for n in range(1 << 18)}},
    {f"unknown {n}": 1 for n in range(1 << 18)},
    {"prompt": "\ud800" * 1000},
    {"seed": 10**4000},
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies_are_refused_beside_others(running: Running, body: dict[str, Any]) -> None:
    data = json.dumps({**BODY, **body}).encode()
    found = []
    send = lambda: found.append(running.http().post("/v1/completions", content=data))  # noqa: E731
    well_beside(running, send)
    assert found[0].status_code in ((200,) if "unknown 0" in body else (400, 413))
    assert len(found[0].content) < 4000


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:9"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "mine.example:80"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null", "Content-Type": "text/plain"}, 403),
        ({"Host": "localhost:7", "Origin": "http://localhost:7"}, 200),
        ({"Origin": "https://good.example"}, 200),
    ],
)
def test_pages_of_others_may_not_ask(
    guarded: Running, headers: dict[str, str], status: int
) -> None:
    answer = ask(guarded, headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["type"] == "permission_error"
    good = headers.get("Origin") == "https://good.example"
    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == (headers["Origin"] if good else None)


@pytest.fixture(scope="module")
def guarded(start: Start) -> Any:
    with start(hosts=["mine.example"], origins=["https://good.example"]) as running:
        yield running


def test_preflights_are_answered_for_pages_that_may_ask(guarded: Running) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://good.example"}
    url = "/v1/chat/completions"
    assert guarded.http().options(url, headers=asked).status_code == 200
    assert guarded.http().options(url, headers={**asked, "Origin": "https://x"}).status_code == 400


@pytest.mark.parametrize("key", ["secret", "schlüssel 日本"])
def test_keys_of_any_letters_under_any_scheme(start: Start, key: str) -> None:
    with start(api_key=key) as running:
        http = httpx.Client(base_url=running.url)
        for scheme in ("Bearer", "bearer", "BEARER "):
            header = {"Authorization": f"{scheme} {key}".encode()}
            assert http.get("/v1/models", headers=header).status_code == 200
        for wrong in (key, f"Basic {key}", f"Bearer {key}x", "Bearer", ""):
            header = {"Authorization": wrong.encode(), "Host": "any.example"}
            answer = http.get("/v1/models", headers=header)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"


def test_too_many_and_silent_connections_are_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST", 4)
    monkeypatch.setattr(connections, "PATIENCE", 0.5)
    with start() as running:
        address = running.server.servers[0].sockets[0].getsockname()
        sockets = [socket.create_connection(address, timeout=120) for _ in range(8)]
        closed = sum(_is_closed(each) for each in sockets[4:])
        assert closed == 4
        sockets[0].sendall(b"GET /health HTTP/1.1\r\n")  # and no more
        assert all(_is_closed(each) for each in sockets[:4])
        for each in sockets:
            each.close()
        assert ask(running, {}).status_code == 200


def _is_closed(connection: socket.socket) -> bool:
    """The other side ends it without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_is_cut_when_the_server_stops_is_told(
    start: Start, let_run: threading.Event
) -> None:
    """The model comes to nothing before both are told."""
    with start(patience=1) as running:
        found: list[httpx.Response] = []
        body = {"model": NAME, "prompt": "the", "max_tokens": 150, "n": 16}

        def post(stream: bool) -> None:
            more = {**body, "stream": stream}
            found.append(running.http().post("/v1/completions", json=more))

        threads = [threading.Thread(target=post, args=(stream,)) for stream in (True, False)]
        for thread in threads:
            thread.start()
        until(lambda: running.asked() == 32)
        threading.Thread(target=lambda: until(lambda: len(found) == 2) or let_run.set()).start()
        running.stop()
        for thread in threads:
            thread.join(300)
        whole, streamed = sorted(found, key=lambda r: "text/event" in r.headers["content-type"])
        assert whole.status_code == 503 and whole.json()["error"]["code"] == "stopping"
        lines = [line for line in streamed.text.splitlines() if line]
        assert '"stopping"' in lines[-2] and lines[-1] == "data: [DONE]"


def test_requests_and_unknown_fields_are_told_in_the_log(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base.Body, "_told", set())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            answer = ask(running, {}, brand_new=1, logprobs=None, stream_options=None, stop=None,
                         temperature=None, best_of=1)  # fmt: skip
            assert answer.status_code == 200
        running.http().get("/v1/a%0Ab")
        # After the answers are sent; and so may be what was asked before this test.
        until(lambda: caplog.text.count("POST /v1/completions 200") >= 2)
        until(lambda: "GET /v1/a\\nb 404" in caplog.text)
    text = caplog.text
    assert text.count("brand_new") == 1 and "best_of" not in text


def test_arguments_and_schemas_without_an_end(running: Running) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": deep}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]
    body = {"model": NAME, "messages": messages, "max_tokens": 1}
    assert running.http().post("/v1/chat/completions", json=body).status_code == 200
    for schema in ({"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}, {"$ref": "#/nowhere"}):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        more = {"messages": messages[:1], "response_format": form}
        answer = running.http().post("/v1/chat/completions", json={**body, **more})
        assert answer.status_code == 400, answer.text


def test_texts_are_tokenised_beside_others(running: Running) -> None:
    """The interpreter is let go: the longest pause is no part of the whole."""
    tokenizer = running.engine.tokenizer
    assert tokenizer is not None
    text, ended, turns = "the quick brown fox " * 40_000, threading.Event(), 0

    def watch() -> None:
        nonlocal turns
        while not ended.wait(0.002):
            turns += 1

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(50):  # a busy machine may not let the other thread run
        turns = 0
        ids = tokenizer.encode(text)
        if turns > 5:
            break
    ended.set()
    thread.join()
    assert turns > 5 and np.array_equal(ids[:40], tokenizer.encode(text[:2000])[:40])
