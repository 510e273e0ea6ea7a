"""What each path does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ..errors import InputError
from ..models.llm import Piece, Wishes
from ..models.llm.grammar import Constraint
from .asking import Answers, Gone, unless_gone
from .bodies import Bodies
from .embedding import Embedder
from .events import EventStream
from .faults import Fault, fault_of
from .forms import Answer, ChatForm, Object, Parting, TextForm
from .hearing import Listener
from .metrics import Metrics
from .painting import Painter
from .ranking import Ranker
from .requests import (
    Chat,
    Completion,
    Detokenize,
    Embeddings,
    Generation,
    Rerank,
    Responses,
    Tokenize,
)
from .responses import ResponsesAnswer
from .rewriting import Rewriter
from .shelf import Served, Shelf

LOG = logging.getLogger("luminal.server")
WORKERS = 2  # threads that tokenise and render
LEFT = 499  # the status under which clients that left are counted
Handler = Callable[[Request], Awaitable[Response]]
Result = TypeVar("Result")


class Framed(Protocol):
    """An answer in the form of an endpoint."""

    def whole(self, replies: Sequence[Sequence[Piece]]) -> Object:
        """At once."""

    def stream(
        self, pieces: AsyncIterator[tuple[int, Piece]], count: int
    ) -> AsyncIterator[Object]:
        """In events."""


class Server:
    """The handlers of the paths. All work on texts is done by threads of its own."""

    def __init__(
        self, shelf: Shelf, embedder: Embedder | None, listener: Listener | None = None,
        ranker: Ranker | None = None, rewriters: Sequence[Rewriter] = (),
        painter: Painter | None = None,
    ) -> None:  # fmt: skip
        self.painter = painter
        self.rewriters = {each.name: each for each in rewriters}
        self.shelf, self.embedder, self.ranker = shelf, embedder, ranker
        self.listener = Listener() if listener is None else listener
        self.metrics = Metrics(shelf)
        self._started = int(time.time())
        self._workers = ThreadPoolExecutor(WORKERS, "luminal-text")
        self._bodies = Bodies()

    def close(self) -> None:
        """The threads end."""
        self.listener.close()
        if self.painter is not None:
            self.painter.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def guarded(self, path: str, act: Handler) -> Handler:
        """A handler with faults answered, and requests counted."""

        async def handle(request: Request) -> Response:
            try:
                response = await act(request)
            except (Gone, ClientDisconnect):
                self.metrics.cancelled.inc()
                response = Response(status_code=LEFT)
            except asyncio.CancelledError:  # its time is over
                response = Fault(503, "the server stops", "stopping").response()
            except Exception as error:
                fault = fault_of(error)
                if fault.status >= 500 and fault is not error:
                    LOG.error("%s", fault.message, exc_info=error)
                response = fault.response()
            finally:
                self._bodies.forget(request)
                for served in getattr(request.state, "held", ()):
                    served.held -= 1
            self.metrics.requests.labels(path, str(response.status_code)).inc()
            return response

        return handle

    async def _aside(self, work: Callable[..., Result], *given: Any) -> Result:
        """What the work returns, done by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, *given)

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
        others = [*self._rankers(), *self.rewriters, *self.listener.names[:1]]
        others += [] if self.painter is None else [self.painter.name]
        return [*self.shelf.names, *self._embedders(), *others]

    def _rankers(self) -> list[str]:
        return [] if self.ranker is None else [self.ranker.name]

    def _embedders(self) -> list[str]:
        embedder = self.embedder
        return [embedder.name] if embedder is not None and embedder.there else []

    def _about(self, name: str) -> Object:
        self._check_model(name, self._names())
        return {"id": name, "object": "model", "created": self._started, "owned_by": "luminal"}

    def _check_model(self, name: str, known: Sequence[str]) -> None:
        if name not in known:
            there = ", ".join(known) or "none"
            raise Fault(404, f"no model {name[:80]!r} for this; there is {there}",
                        "model_not_found", "model")  # fmt: skip

    def _chosen(self, name: str | None, known: Sequence[str]) -> str:
        """The name, which may be left out where there is one. Raises Fault."""
        if name is None and len(known) > 1:
            raise Fault(400, f"model: one of {', '.join(known)} must be named", "missing", "model")
        name = known[0] if name is None and known else name or ""
        self._check_model(name, known)
        return name

    async def _served(self, request: Request, name: str | None) -> Served:
        """The model of that name (None: the first), loaded, until the request is done. Raises
        Fault."""
        if name is not None:
            self._check_model(name, self.shelf.names)
        name = self.shelf.default if name is None else name
        served = await self.shelf.take(name)
        request.state.held, request.state.adapter = [served], self.shelf.adapter(name)
        return served

    async def embed(self, request: Request) -> Response:
        given = await self._bodies.read(request, Embeddings)
        self._chosen(given.model, self._embedders())
        assert self.embedder is not None
        embedder, packed = self.embedder, given.encoding_format == "base64"
        async with self.shelf.beside(embedder.model):
            made = await asyncio.to_thread(embedder.answer, given.texts, packed, given.dimensions)
        return JSONResponse(made)

    async def rerank(self, request: Request) -> Response:
        given = await self._bodies.read(request, Rerank)
        name = self._chosen(given.model, [*self._rankers(), *self._embedders()])
        by = self.ranker if name in self._rankers() else self.embedder
        assert by is not None
        shown = given.texts if given.return_documents else None
        rank = partial(by.rank, given.query, given.texts, given.top_n, shown)
        async with self.shelf.beside(by.model):
            return JSONResponse(await asyncio.to_thread(rank))

    async def transcribe(self, request: Request) -> Response:
        return await self.listener.answer(request, self._bodies, self.shelf, "transcribe")

    async def translate(self, request: Request) -> Response:
        return await self.listener.answer(request, self._bodies, self.shelf, "translate")

    async def paint(self, request: Request) -> Response:
        if self.painter is None:
            raise Fault(404, "no model for pictures: start the server with --images FOLDER",
                        "model_not_found", "model")  # fmt: skip
        return await self.painter.answer(request, self._bodies, self.shelf)

    async def tokenize(self, request: Request) -> Response:
        given = await self._bodies.read(request, Tokenize)
        served = await self._served(request, self._known(given.model))
        if given.prompt is None:
            _, ids = await self._conversation(served, given.options(), "messages")
        else:
            ids = await self._encoded(served, given.prompt, "prompt", given.add_special_tokens)
        names = {"token_strs": [served.tokenizer.name(token) for token in ids]}
        context = served.engine.context
        return JSONResponse({"count": len(ids), "max_model_len": context, "tokens": ids,
                             **(names if given.return_token_strs else {})})  # fmt: skip

    async def detokenize(self, request: Request) -> Response:
        given = await self._bodies.read(request, Detokenize)
        served = await self._served(request, self._known(given.model))
        vocabulary = served.engine.config.vocabulary
        if max(given.tokens, default=0) >= vocabulary:
            raise InputError(f"token ids go from 0 to {vocabulary - 1}")
        text = await self._aside(served.tokenizer.decode, given.tokens, True)
        return JSONResponse({"prompt": text})

    def _known(self, name: str | None) -> str | None:
        """The name, where it is one of several; else the first model's is meant."""
        return name if name in self.shelf.names else None

    # ---- prompts

    async def _encoded(
        self, served: Served, text: str, field: str, special: bool = True
    ) -> list[int]:
        """Tokens of a text, which stood in this field; one that is too long for certain is not
        looked at. Raises Fault."""
        context = served.engine.context
        if len(text) > context * served.tokenizer.longest:
            raise _too_long(f"more than {context}", context, field)
        return await self._aside(served.tokenizer.encode, text, special)

    async def _conversation(
        self, served: Served, options: Object, field: str
    ) -> tuple[str, list[int]]:
        """(text, tokens) of a conversation. options: those of `Templates.render`."""
        if any(isinstance(message["content"], list) for message in options["messages"]):
            if served.tokenizer.sight is None:
                raise Fault(400, "this model sees no pictures", "invalid_value", field)
            return await self._aside(partial(served.tokenizer.conversation, **options))
        text = await self._aside(partial(served.tokenizer.render, **options))
        return text, await self._encoded(served, text, field, special=False)

    def _check_prompts(self, served: Served, prompts: Sequence[list[int]], field: str) -> None:
        longest, context = max(map(len, prompts)), served.engine.context
        if longest > context:
            raise _too_long(str(longest), context, field)

    def _check_count(self, served: Served, count: int) -> None:
        """What never fits need not be tried again."""
        queue, most = served.engine.queue, served.engine.program.batch
        if queue is not None and count > queue + most:
            raise Fault(400, f"{count} replies at once: this server makes or holds {queue + most}",
                        "invalid_value", "n")  # fmt: skip

    # ---- replies

    async def chat(self, request: Request) -> Response:
        given = await self._bodies.read(request, Chat)
        name = self._chosen(given.model, self.shelf.names)
        served = await self._served(request, name)
        text, ids = await self._conversation(served, given.options(), "messages")
        self._check_prompts(served, [ids], "messages")
        parting = partial(self._parting, served, given, text)
        form = ChatForm(served.tokenizer, given.logprobs, parting)
        answer = Answer(form, name, len(ids), given.stream_options.include_usage)
        return await self._answer(request, served, given, answer, [ids])

    async def respond(self, request: Request) -> Response:
        given = await self._bodies.read(request, Responses)
        given.model = self._chosen(given.model, self.shelf.names)
        served = await self._served(request, given.model)
        chat = given.chat()
        text, ids = await self._conversation(served, chat.options(), "input")
        self._check_prompts(served, [ids], "input")
        answer = ResponsesAnswer(given, self._parting(served, chat, text), len(ids))
        return await self._answer(request, served, chat, answer, [ids], named=True)

    async def complete(self, request: Request) -> Response:
        given = await self._bodies.read(request, Completion)
        name = self._chosen(given.model, [*self.shelf.names, *self.rewriters])
        if (rewriter := self.rewriters.get(name)) is not None:
            async with self.shelf.beside(rewriter.model):
                return JSONResponse(await rewriter.answer(request.receive, given))
        served = await self._served(request, name)
        asked = given.prompts()
        prompts = [await self._encoded(served, p, "prompt") if isinstance(p, str) else p
                   for p in asked]  # fmt: skip
        self._check_prompts(served, prompts, "prompt")
        echoes = None
        if given.echo:
            decode = served.tokenizer.decode
            texts = [p if isinstance(p, str) else decode(p, True) for p in asked]
            echoes = [text for text in texts for _ in range(given.n)]
        form = TextForm(served.tokenizer, given.logprobs is not None, echoes)
        usage = given.stream_options.include_usage
        answer = Answer(form, name, sum(map(len, prompts)), usage)
        return await self._answer(request, served, given, answer, prompts, echo=given.echo)

    def _parting(self, served: Served, given: Chat, prompt: str) -> Parting:
        """Of one reply to a chat."""
        form = None if given.prescribed else served.thinking
        thinking = None if form is None else form.reader(prompt)
        calls = served.calls.reader(given.functions) if given.functions else None
        return Parting(calls, thinking, None if given.parallel_tool_calls else 1)

    async def _answer(
        self, request: Request, served: Served, given: Generation, answer: Framed,
        prompts: Sequence[list[int]], named: bool = False, echo: bool = False,
    ) -> Response:  # fmt: skip
        """Whole or in a stream; of each prompt n choices. named: events have names."""
        self._check_count(served, given.n * len(prompts))
        make = await self._wishes(served, given, echo)
        adapter = request.state.adapter
        asked = [(ids, replace(make(choice), adapter=adapter))
                 for ids in prompts for choice in range(given.n)]  # fmt: skip
        answers = Answers(served.engine, asked)
        timed = self._timed(answers)
        if given.stream:
            return EventStream(answer.stream(timed, len(asked)), answers, self.metrics, named)
        try:
            made = await unless_gone(request.receive, _gathered(timed, len(asked)))
            return JSONResponse(answer.whole(made))
        finally:
            answers.give_up()

    async def _wishes(
        self, served: Served, given: Generation, echo: bool
    ) -> Callable[[int], Wishes]:
        """What each choice should be, by its number."""
        form = await self._aside(self._form_of, served, given)
        limit = served.engine.context if given.limit is None else given.limit
        calls = served.calls.tokens.values() if given.functions else ()
        show = (*calls, *(served.thinking.tokens if served.thinking is not None else ()))
        ends = served.engine.config.end_tokens
        return lambda choice: given.wishes(limit, ends, choice, form, show, echo)

    def _form_of(self, served: Served, given: Generation) -> Callable[[], Constraint] | None:
        """What makes the constraint of a reply, if its form is prescribed."""
        grammar = given.grammar(served.calls)
        return None if grammar is None else served.grammars.form(grammar)

    async def _timed(self, answers: Answers) -> AsyncIterator[tuple[int, Piece]]:
        """The pieces, with the times to the first and to the last one noted."""
        started, first = time.perf_counter(), True
        async for number, piece in answers.pieces():
            if first:
                self.metrics.first.observe(time.perf_counter() - started)
                first = False
            yield number, piece
        self.metrics.whole.observe(time.perf_counter() - started)


def _too_long(count: str, context: int, field: str) -> Fault:
    return Fault(400, f"the prompt has {count} tokens; this server's context is {context}",
                 "context_length_exceeded", field)  # fmt: skip


async def _gathered(pieces: AsyncIterator[tuple[int, Piece]], count: int) -> list[list[Piece]]:
    """The pieces of each reply."""
    replies: list[list[Piece]] = [[] for _ in range(count)]
    async for number, piece in pieces:
        replies[number].append(piece)
    return replies
