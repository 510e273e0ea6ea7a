"""Paths, and what each of them does."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..errors import InputError
from ..models.llm import Engine, Grammars, Piece, Tokenizer, Wishes
from ..models.llm.grammar import Constraint
from .asking import Answers, Gone, unless_gone
from .embedding import Embedder
from .faults import Fault, fault_of
from .forms import Answer, ChatForm, Form, Parting, TextForm
from .metrics import Metrics
from .requests import MOST_CHOICES, Chat, Completion, Embeddings, Generation
from .thinking import ThinkingForm
from .tools import CallForm

LOG = logging.getLogger("luminal.server")
MOST_BYTES = 8 << 20  # of a body
LEFT = 499  # the status under which clients that left are counted
Body = TypeVar("Body", bound=BaseModel)


def create_app(
    engine: Engine, name: str, embedder: Embedder | None = None, api_key: str | None = None
) -> Starlette:
    """The application. name: of the model, as clients ask for it. api_key: None asks for none. The
    engine is closed with it. Raises WeightsError for a model without a tokenizer."""
    server = Server(engine, name, embedder, api_key)
    paths: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/chat/completions", server.chat),
        ("POST", "/v1/completions", server.complete),
        ("POST", "/v1/embeddings", server.embed),
        ("GET", "/v1/models", server.models),
        ("GET", "/v1/models/{model:path}", server.model),
        ("GET", "/metrics", server.show_metrics),
        ("GET", "/health", server.health),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close, 0)

    routes = [Route(path, server.guarded(path, act), methods=[verb]) for verb, path, act in paths]
    handlers = {HTTPException: _unknown}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


Handler = Callable[[Request], Awaitable[Response]]


async def _unknown(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    response = Fault(error.status_code, message).response()
    response.headers.update(error.headers or {})
    return response


class Server:
    """The handlers of the paths."""

    def __init__(
        self, engine: Engine, name: str, embedder: Embedder | None, api_key: str | None
    ) -> None:
        if engine.tokenizer is None:
            raise InputError("a server needs a model with a tokenizer")
        self.engine, self.name, self.embedder = engine, name, embedder
        self.tokenizer: Tokenizer = engine.tokenizer
        self.metrics = Metrics(engine)
        self._calls = CallForm.of(self.tokenizer)
        self._thinking = ThinkingForm.of(self.tokenizer)
        self._grammars = Grammars(self.tokenizer, engine.config.end_tokens)
        self._api_key, self._started = api_key, int(time.time())

    def guarded(self, path: str, act: Handler) -> Handler:
        """A handler with the key checked, faults answered, and requests counted."""

        async def handle(request: Request) -> Response:
            try:
                if path != "/health":
                    self._check_key(request)
                response = await act(request)
            except (Gone, ClientDisconnect):
                self.metrics.cancelled.inc()
                response = Response(status_code=LEFT)
            except Exception as error:
                fault = fault_of(error)
                if fault.status >= 500:
                    LOG.error("%s", fault.message, exc_info=error)
                response = fault.response()
            self.metrics.requests.labels(path, str(response.status_code)).inc()
            return response

        return handle

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._api_key.encode()):
            raise Fault(401, "a valid API key is needed: Authorization: Bearer KEY",
                        "invalid_api_key")  # fmt: skip

    # ---- small ones

    async def health(self, request: Request) -> Response:
        """200 while the server takes requests."""
        return JSONResponse({"status": "ok"})

    async def show_metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._about(n) for n in self._names()]})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._about(request.path_params["model"]))

    def _names(self) -> list[str]:
        embedder = self.embedder
        return [self.name] + ([embedder.name] if embedder is not None and embedder.there else [])

    def _about(self, name: str) -> dict[str, Any]:
        self._check_model(name, self._names())
        return {"id": name, "object": "model", "created": self._started, "owned_by": "luminal"}

    def _check_model(self, name: str, known: Sequence[str]) -> None:
        if name not in known:
            there = ", ".join(known) or "none"
            raise Fault(404, f"no model {name!r} for this; there is {there}", "model_not_found",
                        "model")  # fmt: skip

    async def embed(self, request: Request) -> Response:
        given, embedder = await _body(request, Embeddings), self.embedder
        self._check_model(given.model, self._names()[1:])
        assert embedder is not None
        packed, size = given.encoding_format == "base64", given.dimensions
        return JSONResponse(await asyncio.to_thread(embedder.answer, given.texts, packed, size))

    # ---- replies

    async def chat(self, request: Request) -> Response:
        given = await _body(request, Chat)
        self._check_model(given.model, [self.name])
        messages = [message.plain() for message in given.messages]
        tools = [{"type": "function", "function": function} for function in given.functions]
        text = await asyncio.to_thread(self.tokenizer.render, messages, tools)
        ids = await asyncio.to_thread(self.tokenizer.encode, text, False)
        form = ChatForm(self.tokenizer, given.logprobs, partial(self._parting, given, text))
        return await self._answer(request, given, form, [ids], given.limit, given.likely)

    def _parting(self, given: Chat, prompt: str) -> Parting:
        """Of one reply to a chat."""
        thinking = None if self._thinking is None else self._thinking.reader(prompt)
        calls = self._calls.reader(given.functions) if given.functions else None
        return Parting(calls, thinking, 1 if given.parallel_tool_calls is False else None)

    async def complete(self, request: Request) -> Response:
        given = await _body(request, Completion)
        self._check_model(given.model, [self.name])
        ids = await asyncio.to_thread(self._encode, given.prompts())
        form = TextForm(self.tokenizer, given.logprobs is not None)
        return await self._answer(request, given, form, ids, given.max_tokens, given.logprobs)

    def _encode(self, prompts: Sequence[str | list[int]]) -> list[list[int]]:
        return [self.tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]

    async def _answer(
        self, request: Request, given: Generation, form: Form, prompts: list[list[int]],
        limit: int | None, likely: int | None,
    ) -> Response:  # fmt: skip
        """Whole or in a stream; of each prompt n choices."""
        self._check_prompts(prompts, given.n)
        ends, most = self.engine.config.end_tokens, limit or self.engine.context
        shape, show = await asyncio.to_thread(self._form_of, given), self._shown(given)
        asked = [
            (ids, given.wishes(most, ends, likely, choice, shape, show))
            for ids in prompts
            for choice in range(given.n)
        ]
        answer = Answer(form, self.name, sum(map(len, prompts)))
        answers = Answers(self.engine, asked)
        timed = self._timed(answers)
        if given.stream:
            usage = given.stream_options is not None and given.stream_options.include_usage
            events = _events(answer, timed, len(asked), usage)
            return EventStream(events, answers, self.metrics)
        try:
            return JSONResponse(await unless_gone(request.receive, _whole(answer, timed, asked)))
        finally:
            answers.give_up()

    def _form_of(self, given: Generation) -> Callable[[], Constraint] | None:
        """What makes the constraint of a reply, if its form is prescribed."""
        grammar = given.grammar(self._calls)
        return None if grammar is None else self._grammars.form(grammar)

    def _shown(self, given: Generation) -> tuple[int, ...]:
        """Special tokens that the readers of the reply must see."""
        calls = self._calls.tokens.values() if given.functions else ()
        return (*calls, *(self._thinking.tokens if self._thinking is not None else ()))

    def _check_prompts(self, prompts: list[list[int]], n: int) -> None:
        if len(prompts) * n > MOST_CHOICES:
            raise Fault(400, f"{len(prompts)} prompts with {n} choices each: at most "
                        f"{MOST_CHOICES} in all", "invalid_value", "n")  # fmt: skip
        longest, context = max(map(len, prompts)), self.engine.context
        if longest > context:
            raise Fault(400, f"the prompt has {longest} tokens; this server's context is "
                        f"{context}", "context_length_exceeded", "messages")  # fmt: skip

    async def _timed(self, answers: Answers) -> AsyncIterator[tuple[int, Piece]]:
        """The pieces, with the times to the first and to the last one noted."""
        started, first = time.perf_counter(), True
        async for number, piece in answers.pieces():
            if first:
                self.metrics.first.observe(time.perf_counter() - started)
                first = False
            yield number, piece
        self.metrics.whole.observe(time.perf_counter() - started)


async def _body(request: Request, kind: type[Body]) -> Body:
    """A request's JSON, checked. Raises Fault or ValidationError."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MOST_BYTES:
            raise Fault(413, f"the body is larger than {MOST_BYTES >> 20} MiB", "body_too_large")
    return kind.model_validate_json(bytes(data))


async def _whole(
    answer: Answer, pieces: AsyncIterator[tuple[int, Piece]], asked: Sequence[tuple[Any, Wishes]]
) -> dict[str, Any]:
    replies: list[list[Piece]] = [[] for _ in asked]
    async for number, piece in pieces:
        replies[number].append(piece)
    return answer.whole(replies)


async def _events(
    answer: Answer, pieces: AsyncIterator[tuple[int, Piece]], count: int, usage: bool
) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a stream."""
    made = 0
    for number in range(count):
        if (opening := answer.opening(number)) is not None:
            yield opening
    async for number, piece in pieces:
        made += piece.token is not None
        if (chunk := answer.delta(number, piece)) is not None:
            yield chunk
    if usage:
        yield answer.closing(made)


class EventStream(Response):
    """Server-sent events; the replies behind them are given up when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[dict[str, Any]], answers: Answers, metrics: Metrics
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._answers, self._metrics = events, answers, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send_all(send))
        except (Gone, OSError):
            self._metrics.cancelled.inc()
        finally:
            self._answers.give_up()

    async def _send_all(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        try:
            async for event in self._events:
                await _send(send, json.dumps(event, ensure_ascii=False))
        except OSError:
            raise
        except Exception as error:  # the status is sent already: an event tells
            await _send(send, json.dumps(fault_of(error).body()))
        await _send(send, "[DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, text: str) -> None:
    body = f"data: {text}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})
