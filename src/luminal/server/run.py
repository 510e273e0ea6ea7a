"""From options to a running server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InputError, WeightsError
from ..models.kinds import is_t5
from ..models.llm import Engine
from ..models.llm.cache import cache_bytes
from ..models.llm.loading import DEFAULT_CONTEXT
from ..models.llm.packaged import NAME, located
from ..models.llm.source import open_source
from ..models.speech.load import speech_kind
from ..weights.gguf import gguf_file
from ..weights.hub import locate
from .app import create_app
from .connections import Connection
from .embedding import Embedder
from .hearing import Listener
from .painting import Painter
from .ranking import Ranker
from .rewriting import Rewriter
from .shelf import Offer, Shelf

BACKLOG = 512  # connections that wait to be taken
KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, so that they close them


@dataclass(frozen=True)
class Options:
    """name: of the model for clients (None: the last part of its path). batch: replies made at
    once; queue: requests that may wait; cache: tokens that the cache holds for all together; chunk:
    tokens computed at once; device: of all models. kv: how the cache keeps numbers ("f32", "f16" or
    "int8"; None: as for `LLM`). precision, speculate, draft, lora, mmproj, prefixes: as for
    `Engine`.
    adapters: NAME=DIR or DIR, as for `Engine`: under its name the model has the adapter. hosts,
    origins: as for `Guard`.
    embeddings: directory of a BERT-like model (None: the packaged MiniLM, if it is installed).
    reranker: directory of a cross-encoder for /v1/rerank, where the model of embeddings ranks too.
    speech: a Whisper model (None: the packaged one, if it is installed). images: a folder of
    diffusers that makes pictures (None: none are made). patience: seconds that
    running replies get when the server is told to stop.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    name: str | None = None
    quant: str | None = None
    context: int | None = None
    batch: int = 32
    queue: int = 64
    cache: int | None = None
    chunk: int = 128
    kv: str | None = None
    precision: str | None = None
    speculate: int = 0
    draft: str | None = None
    lora: str | None = None
    mmproj: str | None = None
    adapters: tuple[str, ...] = ()
    prefixes: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    threads: int | None = None
    device: str = "auto"
    search: int = 0
    embeddings: Path | None = None
    reranker: Path | None = None
    speech: str | None = None
    images: Path | None = None
    patience: int = 20


def build(
    model: str | None, options: Options, others: Sequence[str] = (), memory: int | None = None
) -> uvicorn.Server:
    """The model (None: the packaged one) loaded, and a server for it that was not started yet.
    others: models that are loaded when they are asked for; T5 too, for completions. memory:
    see `Shelf`. Raises WeightsError, Unsupported or InputError."""
    if model is not None and is_t5(Path(model)):
        raise InputError(f"{model}: a T5 is served beside a model for chats, which comes first")
    texts = [Path(each) for each in others if is_t5(Path(each))]
    others = [each for each in others if Path(each) not in texts]
    names = [_name(each) for each in (model, *others)]
    adapters = [_adapter(each)[0] for each in options.adapters]
    own = (options.name, options.lora, options.mmproj, options.draft)
    if others and (adapters or any(given is not None for given in own)):
        raise InputError("name, lora, mmproj, draft and adapters are of one model, not of several")
    every = [options.name or names[0], *names[1:], *adapters, *(each.name for each in texts)]
    if len(set(every)) < len(every):
        raise InputError(f"models of the same name: {', '.join(every)}")
    ranker, painter = _ranker(options), None
    if options.embeddings is not None:
        _check_folder(options.embeddings, "a model of embeddings")
    if options.speech is not None:
        speech_kind(locate(options.speech))
    if options.images is not None:
        painter = Painter(options.images, options.threads, options.device)
    offers = {name: _offer(each, options) for name, each in zip(names, (model, *others))}
    first = offers[every[0]].load() if others else _load(model, options)
    _check_room(names[0], first, memory)
    shelf = Shelf(every[0], first, offers if others else {}, memory, adapters)
    embedder = Embedder(options.embeddings, options.threads, options.device)
    hosts = (*options.hosts, options.host, socket.gethostname())
    listener = Listener(options.speech, options.threads, options.device)
    app = create_app(
        shelf, shelf.default, embedder, options.api_key, hosts, options.origins, listener, ranker,
        [Rewriter(each, options.threads, options.device) for each in texts],
        painter,
    )  # fmt: skip
    return server(app, options)


def _check_room(name: str, first: Engine, memory: int | None) -> None:
    """Raises InputError where the first model does not fit the bound."""
    taken = first.program.peak_bytes
    if memory is not None and taken > memory:
        first.close(0)
        raise InputError(
            f"{name} takes {taken >> 20} MiB with its cache, models may take {memory >> 20}: a "
            "smaller context or cache takes less"
        )


def _ranker(options: Options) -> Ranker | None:
    """Raises WeightsError where there is no model."""
    if options.reranker is None:
        return None
    _check_folder(options.reranker, "a reranker")
    return Ranker(options.reranker, options.threads, options.device)


def _check_folder(folder: Path, what: str) -> None:
    if gguf_file(folder) is None and not (folder / "config.json").is_file():
        raise WeightsError(f"{folder}: no config.json: {what} is a directory as Hugging Face "
                           "writes it, or a GGUF file")  # fmt: skip


def _name(model: str | None) -> str:
    return Path(model).name.removesuffix(".gguf") if model else NAME


def _adapter(given: str) -> tuple[str, str]:
    """(name, place) of NAME=DIR; the name is the place's own if there is none."""
    name, given_name, place = given.partition("=")
    return (name, place) if given_name else (Path(given).name.removesuffix(".gguf"), given)


def _load(model: str | None, options: Options) -> Engine:
    return Engine.load(
        model, options.quant, context=options.context, search=options.search,
        threads=options.threads, batch=options.batch, chunk=options.chunk, cache=options.cache,
        queue=options.queue, kv=options.kv, precision=options.precision,
        speculate=options.speculate, draft=options.draft, lora=options.lora,
        prefixes=options.prefixes, mmproj=options.mmproj,
        adapters=[_adapter(each)[1] for each in options.adapters],
        device=options.device, texts=True,
    )  # fmt: skip


def _offer(model: str | None, options: Options) -> Offer:
    """What is looked at now is refused now. A context that is too long for this one of several
    models is as long as it has it. Raises WeightsError or Unsupported."""
    source = open_source(located(model))
    source.tokenizer()
    context = min(options.context or DEFAULT_CONTEXT, source.config.context)
    if options.context is not None:
        options = replace(options, context=context)
    cache = cache_bytes(source.config, max(options.cache or 4 * context, context),
                        options.kv or "f16")  # fmt: skip
    size = sum(file.stat().st_size for file in source.files)
    return Offer(partial(_load, model, options), size + cache)


def server(app: Any, options: Options) -> uvicorn.Server:
    """A server for an application. It stops on SIGINT or SIGTERM: no new connections, replies that
    run are finished."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # clients that left are no warning
    config = uvicorn.Config(
        app, host=options.host, port=options.port, log_level="warning", access_log=False,
        timeout_graceful_shutdown=options.patience, timeout_keep_alive=KEEP_ALIVE, backlog=BACKLOG,
        http=Connection,
    )  # fmt: skip
    return uvicorn.Server(config)


def listen(options: Options) -> socket.socket:
    """Where connections wait from now on, at a free port if 0 is asked for. Raises InputError."""
    address = options.host, options.port
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(f"{options.host}, port {options.port}: {error.strerror}") from None


def serve(model: str | None, options: Options) -> None:
    """Serve a model until told to stop."""
    server = build(model, options)
    server.run(sockets=[listen(options)])
