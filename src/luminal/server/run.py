"""From options to a running server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InputError, Unsupported, WeightsError
from ..models.kinds import is_t5
from ..models.llm import Engine
from ..models.llm.cache import cache_bytes
from ..models.llm.loading import DEFAULT_CONTEXT
from ..models.llm.packaged import NAME, located
from ..models.llm.source import open_source
from ..models.ranking import check_reranker
from ..models.sentence import check_encoder
from ..models.speech.load import speech_kind
from ..weights.fields import exists
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
    """name: of the model for clients (None: the last part of its path). Where models are named, by
    arguments of `build` too, NAME=PATH gives one a name of its own. batch: replies made at
    once; queue: requests that may wait; cache: tokens that the cache holds for all together; chunk:
    tokens computed at once; device: of all models. kv: how the cache keeps numbers ("f32", "f16" or
    "int8"; None: as for `LLM`). precision, speculate, draft, lora, mmproj, prefixes: as for
    `Engine`.
    adapters: as for `Engine`: under its name the model has the adapter. hosts,
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
    embeddings: str | Path | None = None
    reranker: str | Path | None = None
    speech: str | Path | None = None
    images: str | Path | None = None
    patience: int = 20


def build(
    model: str | None, options: Options, others: Sequence[str] = (), memory: int | None = None
) -> uvicorn.Server:
    """The model (None: the packaged one) loaded, and a server for it that was not started yet.
    others: models that are loaded when they are asked for; T5 too, for completions. memory:
    see `Shelf`. Raises WeightsError, Unsupported or InputError."""
    given = [_named(each) for each in (model, *others)]
    if given[0].path is not None and is_t5(given[0].path):
        raise InputError(f"{model}: a T5 is served beside a model for chats, which comes first")
    if options.api_key == "":
        raise InputError("an API key that is empty keeps nobody out")
    texts = [each for each in given[1:] if each.path is not None and is_t5(each.path)]
    given = [each for each in given if each not in texts]
    adapters = [_named(each) for each in options.adapters]
    own = (options.name, options.lora, options.mmproj, options.draft)
    if len(given) > 1 and (adapters or any(each is not None for each in own)):
        raise InputError("--name, --lora, --mmproj, --draft and --adapter are of one model, not of "
                         "several: NAME=MODEL names one of them")  # fmt: skip
    names = [options.name or given[0].known, *(each.known for each in given[1:])]
    every = [*names, *(each.known for each in (*adapters, *texts))]
    if len(set(every)) < len(every):
        raise InputError(f"models of the same name: {', '.join(every)}: NAME=MODEL gives another")
    beside = _Beside(options)
    several = memory is not None or len(given) > 1
    offers = {name: _offer(each.place, options) for name, each in zip(names, given) if several}
    first = offers[names[0]].load() if offers else _load(given[0].place, options)
    _check_room(names[0], first, memory)
    shelf = Shelf(names[0], first, offers, memory, [each.known for each in adapters])
    hosts = (*options.hosts, options.host, socket.gethostname())
    rewriters = [Rewriter(Path(each.place or ""), *beside.where, each.known) for each in texts]
    app = create_app(
        shelf, shelf.default, beside.embedder, options.api_key, hosts, options.origins,
        beside.listener, beside.ranker, rewriters, beside.painter,
    )  # fmt: skip
    return server(app, options)


@dataclass(frozen=True)
class _Named:
    """What an argument names: [NAME=]PLACE; place: None for the packaged model."""

    name: str | None
    place: str | None

    @property
    def known(self) -> str:
        """Under which clients ask for it."""
        if self.name is not None:
            return self.name
        return NAME if self.place is None else Path(self.place).name.removesuffix(".gguf")

    @property
    def path(self) -> Path | None:
        return None if self.place is None else Path(self.place)


def _named(given: str | Path | None) -> _Named:
    """NAME has no slash; what exists as it is written has no name. Raises InputError."""
    if given is None:
        return _Named(None, None)
    name, equals, place = str(given).partition("=")
    if not equals or "/" in name or exists(Path(given)):
        return _Named(None, str(given))
    if not (name and place):
        raise InputError(f"{given}: NAME=MODEL has a name and a model")
    return _Named(name, place)


class _Beside:
    """The models of other kinds. Raises WeightsError where one is none."""

    def __init__(self, options: Options) -> None:
        self.where = options.threads, options.device
        vectors, ranks, hears, paints = map(
            _named, (options.embeddings, options.reranker, options.speech, options.images)
        )
        _check(vectors.path, "a model of embeddings", check_encoder)
        _check(ranks.path, "a reranker", check_reranker)
        if hears.place is not None:
            speech_kind(locate(hears.place))
        ranker, painter = ranks.path, paints.path
        self.ranker = None if ranker is None else Ranker(ranker, *self.where, ranks.name)
        self.painter = None if painter is None else Painter(painter, *self.where, paints.name)
        self.embedder = Embedder(vectors.path, *self.where, vectors.name)
        self.listener = Listener(hears.place, *self.where, hears.name)


def _check_room(name: str, first: Engine, memory: int | None) -> None:
    """Raises InputError where the first model does not fit the bound."""
    taken = first.program.peak_bytes
    if memory is not None and taken > memory:
        first.close(0)
        raise InputError(
            f"{name} takes {taken >> 20} MiB with its cache, models may take {memory >> 20}: a "
            "smaller context or cache takes less"
        )


def _check(folder: Path | None, what: str, kind: Callable[[Path], None]) -> None:
    """kind: raises where a folder or a file holds none of that kind."""
    if folder is None:
        return
    if not gguf_file(folder) and not (folder / "config.json").is_file():
        raise WeightsError(f"{folder}: no config.json: {what} is a directory as Hugging Face "
                           "writes it, or a GGUF file")  # fmt: skip
    try:
        kind(folder)
    except (WeightsError, Unsupported) as error:
        raise type(error)(f"{folder} is no {what.partition(' ')[2]}: {error}") from None


def _load(model: str | None, options: Options) -> Engine:
    return Engine.load(
        model, options.quant, context=options.context, search=options.search,
        threads=options.threads, batch=options.batch, chunk=options.chunk, cache=options.cache,
        queue=options.queue, kv=options.kv, precision=options.precision,
        speculate=options.speculate, draft=options.draft, lora=options.lora,
        prefixes=options.prefixes, mmproj=options.mmproj,
        adapters=[_named(each).place or "" for each in options.adapters],
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
