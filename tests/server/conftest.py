"""A real server in a thread, for a tiny random model, and clients for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from llm.checkpoints import checkpoint
from openai import OpenAI

from luminal.models.llm import Engine
from luminal.models.llm.scheduler import Part
from luminal.server import Options, create_app
from luminal.server.embedding import Embedder
from luminal.server.run import server as make_server

NAME = "tiny"
CONTEXT = 160


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for what another thread does soon."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Running:
    """A server that runs: its address, its engine, clients."""

    def __init__(self, server: uvicorn.Server, engine: Engine, api_key: str) -> None:
        self.server, self.engine, self.api_key = server, engine, api_key
        self.thread = threading.Thread(target=server.run)
        self.thread.start()
        while not server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def client(self) -> OpenAI:
        """Without retries: what the server says is what a test sees."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.api_key, max_retries=0, timeout=300)

    def http(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=300)

    def metric(self, name: str) -> float:
        """The sum of a metric's values."""
        lines = self.http().get("/metrics").text.splitlines()
        found = [line for line in lines if line.partition("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def idle(self) -> None:
        """Wait until nothing runs; then all pages must be free."""
        until(lambda: not self.asked())
        assert self.engine.load_now().pages_held == 0

    def asked(self) -> int:
        """Replies that run or wait."""
        load = self.engine.load_now()
        return load.running + load.waiting

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(300)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Few places and few pages; no end tokens, so that replies have the length asked for."""
    directory, _ = checkpoint("llama3")
    engine = Engine.load(
        directory, context=CONTEXT, batch=16, chunk=48, cache=900, queue=48, threads=1
    )
    engine.config = replace(engine.config, end_tokens=())
    yield engine
    engine.close(0)


@pytest.fixture(scope="session")
def start(engine: Engine) -> Callable[..., contextlib.AbstractContextManager[Running]]:
    """Starts a server; each has a thread of its own for the same model."""

    @contextlib.contextmanager
    def start(
        api_key: str | None = None, queue: int = 48, patience: int = 5, **guard: Any
    ) -> Iterator[Running]:  # fmt: skip
        own = Engine(engine.program, engine.tokenizer, queue)
        own.config = engine.config
        app = create_app(own, NAME, Embedder(threads=1), api_key, **guard)
        options = Options(port=0, patience=patience)
        running = Running(make_server(app, options), own, api_key or "none")
        try:
            yield running
        finally:
            running.stop()

    return start


@pytest.fixture(scope="session")
def running(
    start: Callable[..., contextlib.AbstractContextManager[Running]],
) -> Iterator[Running]:
    with start() as running:
        yield running


@pytest.fixture
def let_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The model computes nothing before this is set."""
    program, run, free = engine.program, engine.program.run, threading.Event()

    def run_later(parts: Sequence[Part]) -> np.ndarray:
        free.wait(120)
        return run(parts)

    monkeypatch.setattr(program, "run", run_later)
    yield free
    free.set()
