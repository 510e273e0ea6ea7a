"""The models that a server may load: some are loaded, as many as the memory bound allows; one that
is asked for takes the place of those that nobody has asked for longest, of whatever kind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar

from ..errors import InputError, LuminalError, WeightsError
from ..models.llm import Engine, Grammars, Tokenizer
from ..models.llm.engine import Load
from .faults import Fault
from .lazy import Lazy
from .thinking import ThinkingForm
from .tools import CallForm

LOG = logging.getLogger("luminal.server")
NOTHING = Load(*[0] * len(fields(Load)))


class Served:
    """A loaded model, and how its texts are read. held: requests that have not submitted yet."""

    def __init__(self, name: str, engine: Engine) -> None:
        if engine.tokenizer is None:
            raise InputError("a server needs a model with a tokenizer")
        self.name, self.engine, self.held = name, engine, 0
        self.tokenizer: Tokenizer = engine.tokenizer
        self.calls = CallForm.of(self.tokenizer)
        self.thinking = ThinkingForm.of(self.tokenizer)
        self.grammars = Grammars(self.tokenizer, engine.config.end_tokens)

    @property
    def idle(self) -> bool:
        load = self.engine.load_now()
        return not (self.held or load.running or load.waiting)

    @property
    def bytes(self) -> int:
        return self.engine.program.peak_bytes

    def close(self) -> None:
        """It ends, whatever it does."""
        self.engine.close(0)


Loaded: TypeAlias = Served | Lazy[Any]
Model = TypeVar("Model", bound=Loaded)


@dataclass(frozen=True)
class Offer:
    """A model that may be loaded. bytes: about what it takes."""

    load: Callable[[], Engine]
    bytes: int


class Shelf:
    """first: the model that is loaded from the start, under its name. offers: all that may be
    loaded and unloaded, by name. memory: the most bytes that all loaded ones may take together,
    those of `beside` too (None: any number). adapters: names for the first model with each of its
    adapters."""

    def __init__(
        self, name: str, first: Engine, offers: Mapping[str, Offer] | None = None,
        memory: int | None = None, adapters: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._offers, self.memory, self.default = dict(offers or {}), memory, name
        self._loaded: list[Loaded] = [Served(name, first)]  # the one asked for last at the end
        self._lock, self._gone = asyncio.Lock(), NOTHING
        self._adapters = {each: number for number, each in enumerate(adapters, 1)}
        self.names = list(dict.fromkeys((name, *self._adapters, *self._offers)))

    @property
    def loaded(self) -> list[str]:
        """The names of those that are loaded, the one asked for last at the end."""
        return [each.name for each in self._loaded]

    def adapter(self, name: str) -> int:
        """The number of the adapter that the name stands for; 0: a model as it is."""
        return self._adapters.get(name, 0)

    async def take(self, name: str) -> Served:
        """The model of that name, loaded; to be given back. Raises Fault, or what loading does."""
        name = self.default if name in self._adapters else name
        found = self._found(name)
        if found is None:
            async with self._lock:
                found = self._found(name) or await self._load(name)
        self._use(found)
        return found

    @contextlib.asynccontextmanager
    async def beside(self, model: Lazy[Any]) -> AsyncIterator[None]:
        """While a model of another kind is used: it is loaded, and stays. Raises Fault."""
        if model not in self._loaded:
            async with self._lock:
                if model not in self._loaded:
                    await self._admit(model.name, model.bytes, lambda: _got(model))
        self._use(model)
        try:
            yield
        except WeightsError as error:  # a part that is read late
            raise _gone(model.name, error) from None
        finally:
            model.held -= 1
            with contextlib.suppress(Fault):  # it may have grown
                await self._make_room(model.name, 0)

    def _found(self, name: str) -> Served | None:
        return next((each for each in self if each.name == name), None)

    def _use(self, model: Loaded) -> None:
        """To be given back: held, and the last to go."""
        self._loaded.remove(model)
        self._loaded.append(model)
        model.held += 1

    async def _load(self, name: str) -> Served:
        offer = self._offers[name]

        def load() -> Served:
            served = Served(name, offer.load())
            self._offers[name] = Offer(offer.load, served.bytes)  # what it really takes
            return served

        return await self._admit(name, offer.bytes, load)

    async def _admit(self, name: str, thought: int, load: Callable[[], Model]) -> Model:
        """A model loaded where there is room. thought: what it takes as far as is known."""
        await self._make_room(name, thought)
        LOG.info("loading %s", name)
        try:
            made = await asyncio.to_thread(load)
        except LuminalError as error:
            raise _gone(name, error) from None
        try:
            await self._make_room(name, made.bytes)  # it may be more than was thought
        except Fault:
            await asyncio.to_thread(made.close)
            raise
        self._loaded.append(made)
        return made

    async def _make_room(self, name: str, wanted: int) -> None:
        if self.memory is None:
            return
        if wanted > self.memory:
            raise Fault(503, f"{name} takes {wanted >> 20} MiB, this server's models may take "
                        f"{self.memory >> 20}", "no_memory", "model")  # fmt: skip
        while sum(each.bytes for each in self._loaded) + wanted > self.memory:
            idle = [each for each in self._loaded if each.idle and self._may_go(each)]
            if not idle:
                raise Fault(503, f"no room for {name} while other models reply: ask again later",
                            "no_memory", "model")  # fmt: skip
            await self._unload(idle[0])

    def _may_go(self, model: Loaded) -> bool:
        return isinstance(model, Lazy) or model.name in self._offers

    async def _unload(self, model: Loaded) -> None:
        LOG.info("unloading %s", model.name)
        self._loaded.remove(model)
        if isinstance(model, Served):
            now = {"running": 0, "waiting": 0, "pages": 0, "pages_held": 0}
            self._gone = sum_of([self._gone, replace(model.engine.load_now(), **now)])
        await asyncio.to_thread(model.close)
        del model
        gc.collect()

    def load_now(self) -> Load:
        """What all engines do now, and have done; those that are gone too."""
        loads = [each.engine.load_now() for each in self]
        return sum_of([self._gone, *loads])

    def __iter__(self) -> Iterator[Served]:
        """The models for texts."""
        return iter([each for each in self._loaded if isinstance(each, Served)])

    def close(self) -> None:
        """All engines end, whatever they do."""
        for each in self._loaded:
            each.close()


def _gone(name: str, error: LuminalError) -> Fault:
    """For clients; the log has the whole of it."""
    LOG.warning("%s: %s", name, error)
    message = str(error).partition("\n")[0]
    return Fault(404, f"{name} cannot be loaded any more: {message}", "model_not_found", "model")


def _got(model: Lazy[Any]) -> Lazy[Any]:
    """Loaded."""
    model.get()
    return model


def sum_of(loads: Sequence[Load]) -> Load:
    """Of each number."""
    return Load(*(sum(getattr(load, field.name) for load in loads) for field in fields(Load)))
