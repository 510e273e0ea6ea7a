"""The models that a server may load: some are loaded, as many as the memory bound allows; one that
is asked for takes the place of those that nobody has asked for longest."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ..errors import InputError
from ..models.llm import Engine, Grammars, Tokenizer
from ..models.llm.engine import Load
from .faults import Fault
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


@dataclass(frozen=True)
class Offer:
    """A model that may be loaded. bytes: about what it takes."""

    load: Callable[[], Engine]
    bytes: int


class Shelf:
    """first: the model that is loaded from the start, under its name. offers: all that may be
    loaded and unloaded, by name. memory: the most bytes that all loaded ones may take together
    (None: any number). adapters: names for the first model with each of its adapters."""

    def __init__(
        self, name: str, first: Engine, offers: Mapping[str, Offer] | None = None,
        memory: int | None = None, adapters: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._offers, self.memory, self.default = dict(offers or {}), memory, name
        self._loaded: OrderedDict[str, Served] = OrderedDict({name: Served(name, first)})
        self._lock, self._gone = asyncio.Lock(), NOTHING
        self._adapters = {each: number for number, each in enumerate(adapters, 1)}
        self.names = list(dict.fromkeys((name, *self._adapters, *self._offers)))

    @property
    def loaded(self) -> list[str]:
        """The names of those that are loaded, the one asked for last at the end."""
        return list(self._loaded)

    def adapter(self, name: str) -> int:
        """The number of the adapter that the name stands for; 0: a model as it is."""
        return self._adapters.get(name, 0)

    async def take(self, name: str) -> Served:
        """The model of that name, loaded; to be given back. Raises Fault, or what loading does."""
        name = self.default if name in self._adapters else name
        if name not in self._loaded:
            async with self._lock:
                if name not in self._loaded:
                    await self._load(name)
        found = self._loaded[name]
        self._loaded.move_to_end(name)
        found.held += 1
        return found

    async def _load(self, name: str) -> None:
        offer = self._offers[name]
        await self._make_room(name, offer.bytes)
        LOG.info("loading %s", name)
        engine = await asyncio.to_thread(offer.load)
        taken = engine.program.peak_bytes
        self._offers[name] = Offer(offer.load, taken)
        try:
            await self._make_room(name, taken)  # it may be more than was thought
        except Fault:
            await asyncio.to_thread(engine.close, 0)
            raise
        self._loaded[name] = Served(name, engine)

    async def _make_room(self, name: str, wanted: int) -> None:
        if self.memory is None:
            return
        if wanted > self.memory:
            raise Fault(503, f"{name} takes {wanted >> 20} MiB, this server's models may take "
                        f"{self.memory >> 20}", "no_memory", "model")  # fmt: skip
        while self._bytes() + wanted > self.memory:
            idle = [each for each in self if each.idle and each.name in self._offers]
            if not idle:
                raise Fault(503, f"no room for {name} while other models reply: ask again later",
                            "no_memory", "model")  # fmt: skip
            await self._unload(idle[0])

    async def _unload(self, served: Served) -> None:
        LOG.info("unloading %s", served.name)
        del self._loaded[served.name]
        now = {"running": 0, "waiting": 0, "pages": 0, "pages_held": 0}
        self._gone = sum_of([self._gone, replace(served.engine.load_now(), **now)])
        await asyncio.to_thread(served.engine.close, 0)
        del served
        gc.collect()

    def _bytes(self) -> int:
        return sum(each.engine.program.peak_bytes for each in self._loaded.values())

    def load_now(self) -> Load:
        """What all engines do now, and have done; those that are gone too."""
        loads = [each.engine.load_now() for each in self]
        return sum_of([self._gone, *loads])

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._loaded.values()))

    def close(self) -> None:
        """All engines end, whatever they do."""
        for each in self:
            each.engine.close(0)


def sum_of(loads: Sequence[Load]) -> Load:
    """Of each number."""
    return Load(*(sum(getattr(load, field.name) for load in loads) for field in fields(Load)))
