"""Paths, and who may ask for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..models.llm import Engine
from .embedding import Embedder
from .faults import Fault
from .guard import Guard
from .hearing import Listener
from .painting import Painter
from .ranking import Ranker
from .rewriting import Rewriter
from .server import Handler, Server
from .shelf import Shelf


def create_app(
    engine: Engine | Shelf, name: str, embedder: Embedder | None = None, api_key: str | None = None,
    hosts: Collection[str] = (), origins: Collection[str] = (), listener: Listener | None = None,
    ranker: Ranker | None = None, rewriters: Sequence[Rewriter] = (),
    painter: Painter | None = None,
) -> Starlette:  # fmt: skip
    """The application. name: of the model, as clients ask for it; of several a shelf has their
    names. api_key: None asks for none.
    hosts, origins: as for `Guard`. listener: hears speech (None: the packaged Whisper). ranker:
    scores documents. rewriters: make texts of texts. painter: makes pictures. The engine is closed
    with it. Raises WeightsError for a model without a tokenizer."""
    shelf = engine if isinstance(engine, Shelf) else Shelf(name, engine)
    server = Server(shelf, embedder, listener, ranker, rewriters, painter)
    paths: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/chat/completions", server.chat),
        ("POST", "/v1/completions", server.complete),
        ("POST", "/v1/responses", server.respond),
        ("POST", "/v1/embeddings", server.embed),
        ("POST", "/v1/rerank", server.rerank),
        ("POST", "/v1/audio/transcriptions", server.transcribe),
        ("POST", "/v1/audio/translations", server.translate),
        ("POST", "/v1/images/generations", server.paint),
        ("POST", "/tokenize", server.tokenize),
        ("POST", "/detokenize", server.detokenize),
        ("GET", "/v1/models", server.models),
        ("GET", "/v1/models/{model:path}", server.model),
        ("GET", "/metrics", server.show_metrics),
        ("GET", "/health", server.health),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with contextlib.suppress(asyncio.CancelledError):  # told twice to stop
            yield
        await asyncio.to_thread(shelf.close)
        server.close()

    middleware = [Middleware(Guard, api_key=api_key, hosts=hosts, origins=origins)]
    if origins:
        cors = Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"],
                          allow_headers=["*"])  # fmt: skip
        middleware.insert(0, cors)
    routes = [Route(path, server.guarded(path, act), methods=[verb]) for verb, path, act in paths]
    return Starlette(
        routes=routes, lifespan=lifespan, middleware=middleware,
        exception_handlers={HTTPException: _unknown},
    )  # fmt: skip


async def _unknown(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    response = Fault(error.status_code, message).response()
    response.headers.update(error.headers or {})
    return response
