"""A decoder compiled once for tokens of many sequences side by side, over a paged cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import nn
from ...graph import Graph
from .beside import Beside, insert
from .cache import PagedCache
from .carry import Layout
from .config import DecoderConfig
from .decoder import Decoder
from .elsewhere import Recorded, compiled
from .loading import PRECISION, Loaded
from .pictures import Pictures, given_left, given_places, given_rows
from .rope import rows_at, switch_of
from .scheduler import Part
from .storage import Storage
from .weights import give

PAGE = 16  # tokens in a page
FEW = 16  # tokens of a step for which there are kernels of their own, at most


def recorded(
    config: DecoderConfig, context: int, pages: int, page: int, chunk: int, batch: int,
    storage: Storage, kv: str, beside: Beside | None = None,
) -> Recorded:  # fmt: skip
    """Logits of the tokens at the places `last`."""
    graph, longest = Graph(), -(-context // page)
    few = min(max(8, batch), FEW, chunk)  # what replies usually want of a step
    tokens = graph.dim("tokens", 1, chunk, hint=(few, chunk))
    listed = graph.dim("pages", 1, longest, hint=min(32, longest))
    wanted = graph.dim("wanted", 1, chunk, hint=min(8, batch))
    ids = graph.tensor((tokens,), "i64", "ids")
    positions = graph.tensor((tokens,), "i64", "positions")
    slots = graph.tensor((tokens,), "i64", "slots")
    table = graph.tensor((tokens, listed), "i64", "table")
    last = graph.tensor((wanted,), "i64", "last")
    with nn.uninitialised():
        model = Decoder(graph, config, context, storage)
    if beside is not None:
        with nn.uninitialised():
            insert(model, beside, graph.tensor((tokens,), "i64", "adapters"))
    layout = (Layout.of(graph, tokens, chunk, batch), batch) if config.carries else None
    cache = PagedCache(graph, config, pages, page, positions, slots, table, kv, layout)
    pictures = given_rows(graph, config, tokens)
    cache.places = given_places(graph, config, context, tokens)
    cache.left = given_left(graph, config, tokens)

    def finish() -> None:
        hidden = model(ids, cache, pictures).index_select(0, last)
        model.logits(hidden).output("logits")

    return Recorded(graph, model, cache.states, finish)


class BatchProgram:
    """Runs parts of sequences together; weights are read once for all of them.

    pages, page: of the cache. chunk: the most tokens of a run. batch: the most sequences. context:
    the most tokens of a sequence. storage: how the matrices are stored.
    """

    def __init__(
        self, config: DecoderConfig, state: Mapping[str, np.ndarray], context: int, pages: int,
        chunk: int, batch: int, storage: Storage | None = None, page: int = PAGE,
        threads: int | None = None, precision: str = PRECISION, identity: str | None = None,
        kv: str = "f32", beside: Beside | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """beside: adapters that the state has the halves of. options: of `Graph.compile`."""
        self.config, self.context, self.page, self.pages = config, context, page, pages
        self.chunk, self.batch, self.beside = chunk, batch, beside
        arguments = {"config": config, "context": context, "pages": pages, "page": page,
                     "chunk": chunk, "batch": batch, "storage": storage or Storage(),
                     "kv": kv, "beside": beside}  # fmt: skip
        options |= {"threads": threads, "precision": precision}
        made, self._program = compiled(recorded, arguments, options)
        give(self._program, made.model, state, identity)
        self._program.clear(made.states)
        self.pictures: Pictures | None = None
        if config.pictures:  # until others are given
            self.pictures = Pictures(config.vocabulary, config.width * (1 + config.deep))
        self._states, self.switch = made.states, switch_of(config, context)

    @classmethod
    def of(
        cls, loaded: Loaded, batch: int, chunk: int, cache: int | None = None, **options: Any
    ) -> BatchProgram:
        """Of a checkpoint; cache: tokens that the cache holds (by default four contexts)."""
        tokens = max(4 * loaded.context if cache is None else cache, loaded.context)
        return cls(
            loaded.config, loaded.state, loaded.context, -(-tokens // PAGE),
            max(chunk, batch + 1 + loaded.config.together), batch, loaded.storage,
            identity=loaded.identity, beside=loaded.beside, **options,
        )  # fmt: skip

    def run(self, parts: Sequence[Part]) -> np.ndarray:
        """Logits (tokens whose logits are wanted, vocabulary) f32, in order."""
        program, counts = self._program, [part.count for part in parts]
        starts = np.array([part.start for part in parts])
        ends = np.cumsum(counts)  # of the parts among the tokens of the run
        positions = np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts)
        longest = max(-(-(part.start + part.count) // self.page) for part in parts)
        rows = [part.pages[:longest] for part in parts]
        table = np.array([row + (0,) * (longest - len(row)) for row in rows], np.int64)
        table = np.repeat(table, counts, 0)  # (tokens, pages)
        pages = np.take_along_axis(table, positions[:, None] // self.page, 1)[:, 0]
        last = [n for end, part in zip(ends, parts) for n in range(end - part.wanted, end)]
        program["ids"] = np.concatenate([part.tokens for part in parts]).astype(np.int64)
        if self.pictures is not None:
            program["pictures"] = self.pictures.rows([t for part in parts for t in part.tokens])
        if self.pictures is not None and self.config.placed:
            fed = [
                ([*part.sequence.tokens[: part.start], *part.tokens], part.start) for part in parts
            ]
            places = [self.pictures.places(ids, start) for ids, start in fed]
            program["turned_at"] = np.concatenate(places)
        if self.switch is not None:
            prompts = np.repeat([part.sequence.prompt for part in parts], counts)
            program["turned_at"] = rows_at(positions, prompts, self.switch)
        if self.pictures is not None and self.config.together:
            program["left"] = self.pictures.left([t for part in parts for t in part.tokens])
        program["positions"] = positions
        program["slots"] = pages * self.page + positions % self.page
        program["table"] = table
        program["last"] = np.array(last or [0], np.int64)
        if self.beside is not None:
            numbers = [part.sequence.adapter for part in parts]
            program["adapters"] = np.repeat(np.array(numbers, np.int64), counts)
        if self.config.carries:
            seats = [part.seat for part in parts]
            for name, array in Layout.arrays(seats, [p.start for p in parts], counts).items():
                program[name] = array
        program.run()
        return program["logits"][: len(last)]

    @property
    def states(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shape (slots, ...) and type of each state of the cache."""
        return [(tuple(map(int, s.shape)), s.dtype.numpy) for s in self._states]

    def cached(self, number: int) -> np.ndarray:
        """A copy of a state."""
        return np.array(self._program[self._states[number]])

    def set_cached(self, number: int, array: np.ndarray) -> None:
        """Give a state other contents."""
        self._program[self._states[number]] = array

    @property
    def peak_bytes(self) -> int:
        """Bytes of memory for packed weights, cache and all else that a run needs."""
        return self._program.peak_bytes

    def explain(self) -> str:
        """What was compiled."""
        return self._program.explain()
