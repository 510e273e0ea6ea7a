"""A decoder compiled once for every prompt and context length, with its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import nn
from ...errors import InputError
from ...graph import Graph
from ...runtime.executable import Executable
from .cache import ContiguousCache, layer_bytes
from .carry import state_bytes
from .config import DecoderConfig
from .decoder import Decoder
from .elsewhere import Recorded, compiled
from .loading import PRECISION
from .pictures import Pictures, check_tokens, given_left, given_places, given_rows
from .rope import rows_at, switch_of
from .storage import Storage
from .weights import give, parameter_bytes

CHUNK = 128  # tokens of a prompt that run at once


def recorded(
    config: DecoderConfig, context: int, chunk: int, storage: Storage, kv: str
) -> Recorded:
    """Logits of the last `wanted` of `tokens` tokens, the first of them at `position`."""
    graph = Graph()
    both = (1, chunk)  # decoding, and prompts
    tokens = graph.dim("tokens", 1, chunk, hint=both)
    wanted = graph.dim("wanted", 1, chunk, hint=both)
    position = graph.dim("position", 0, context - 1, hint=min(512, context - 1))
    ids = graph.tensor((tokens,), "i64", "ids")
    with nn.uninitialised():
        model = Decoder(graph, config, context, storage)
    cache = ContiguousCache(graph, config, context, tokens, position, kv)
    pictures = given_rows(graph, config, tokens)
    cache.places = given_places(graph, config, context, tokens)
    cache.left = given_left(graph, config, tokens)

    def finish() -> None:
        hidden = model(ids, cache, pictures).narrow(0, tokens - wanted, wanted)
        model.logits(hidden).output("logits")

    return Recorded(graph, model, cache.states, finish)


class DecoderProgram:
    """Feed tokens at positions, get logits. One compiled program serves prompt chunks and decoding.

    context: how many positions the cache holds. storage: how the matrices are stored.
    """

    def __init__(
        self, config: DecoderConfig, state: Mapping[str, np.ndarray], context: int,
        storage: Storage | None = None, chunk: int = CHUNK, threads: int | None = None,
        precision: str = PRECISION, identity: str | None = None, kv: str = "f32", **options: Any,
    ) -> None:  # fmt: skip
        """identity: see `give`. kv: the kind of `ContiguousCache`. options: of `Graph.compile`.
        Raises Unsupported."""
        self.config, self.context = config, context
        self.chunk = min(max(chunk, config.together + 1), context)
        self._layer_bytes = {n: layer_bytes(config, kv, n) for n in config.keeping}
        arguments = {"config": config, "context": context, "chunk": self.chunk,
                     "storage": storage or Storage(), "kv": kv}  # fmt: skip
        options |= {"threads": threads, "precision": precision}
        made, self._program = compiled(recorded, arguments, options)
        give(self._program, made.model, state, identity)
        self._program.clear(made.states)
        self._weights = parameter_bytes(made.model)
        self.pictures: Pictures | None = None
        if config.pictures:  # until others are given
            self.pictures = Pictures(config.vocabulary, config.width * (1 + config.deep))
        self.tokens: list[int] = []  # whose keys and values the cache holds
        self._sure = True  # states are those after these tokens: False while a run goes on
        self._switch, self._prompt = switch_of(config, context), 0

    def feed(self, tokens: Sequence[int], wanted: int = 1) -> np.ndarray:
        """Logits (wanted, vocabulary) f32 after the last `wanted` of the tokens, which follow those
        fed before. Raises InputError."""
        if not len(tokens) or not 1 <= wanted <= len(tokens):
            raise InputError(f"{wanted} logits of {len(tokens)} tokens")
        self._check(tokens)
        self._mend()
        if not self.tokens:
            self._prompt = self._prompt or len(tokens)
        parts: list[np.ndarray] = []
        first = len(tokens) - wanted  # logits are kept from here on
        start = 0
        while start < len(tokens):
            count = min(self.chunk, len(tokens) - start)
            if self.pictures is not None and self.config.together:
                count = self.pictures.unbroken(tokens, start, count)
            part = tokens[start : start + count]
            keep = min(len(part), start + len(part) - first)
            logits = self._run(part, max(1, keep))
            if keep > 0:
                parts.append(logits)
            start += count
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run(self, part: Sequence[int], wanted: int) -> np.ndarray:
        self._program["ids"] = np.asarray(part, np.int64)
        if self.pictures is not None:
            self._program["pictures"] = self.pictures.rows(part)
        if self.pictures is not None and self.config.placed:
            fed = [*self.tokens, *part]
            self._program["turned_at"] = self.pictures.places(fed, len(self.tokens))
        if self._switch is not None:
            positions = np.arange(len(self.tokens), len(self.tokens) + len(part))
            self._program["turned_at"] = rows_at(positions, self._prompt, self._switch)
        if self.pictures is not None and self.config.together:
            self._program["left"] = self.pictures.left(part)
        self._sure = False
        self._program.run(position=len(self.tokens), wanted=wanted)
        self.tokens += part
        self._sure = True
        return self._program["logits"]

    def _mend(self) -> None:
        """Make the states anew where the last run was interrupted: they may be those behind it."""
        if not self._sure and self.config.carries and self.tokens:
            fed, self.tokens = self.tokens, []
            self._sure = True
            self.feed(fed)

    def _check(self, tokens: Sequence[int]) -> None:
        if len(self.tokens) + len(tokens) > self.context:
            raise InputError(
                f"{len(self.tokens)} + {len(tokens)} tokens do not fit the context of "
                f"{self.context}; ask for a larger one"
            )
        check_tokens(tokens, self.config.vocabulary, self.pictures)

    def prefill(self, count: int) -> None:
        """Feed so many tokens of no meaning, at most a chunk, as a prompt of their own."""
        if count > self.chunk:
            raise InputError(f"a run of {count} tokens: at most {self.chunk} run at once")
        self.keep(0)
        self.feed([0] * count)

    def step(self, position: int) -> None:
        """Feed a token of no meaning behind so many others, as decoding does."""
        self.tokens = [0] * min(position, self.context - 1)
        self.feed([0])

    def keep(self, count: int, prompt: int | None = None) -> None:
        """Forget all but the first `count` tokens; their keys and values stay for the next feed.
        Where layers carry states, which hold all tokens at once, none stay then. prompt: how many
        tokens that of the sequence has (None: as before; of a new one, those of the next feed):
        none stay where theirs made them turn otherwise (`rows_at`)."""
        if self.config.carries and count < len(self.tokens):
            count = 0
        if prompt is not None and self._is_long(prompt) != self._is_long(self._prompt):
            count = 0
        if prompt is not None or not count:
            self._prompt = prompt or 0
        del self.tokens[count:]

    def _is_long(self, prompt: int) -> bool:
        return self._switch is not None and prompt > self._switch

    def step_bytes(self, position: int) -> int:
        """Bytes that one step of decoding at a position must read: weights, keys and values."""
        config, total = self.config, 0.0
        tables = ("model.embed_positions",) + ("model.embed_tokens",) * (not config.tied)
        for name, size in self._weights.items():
            share = 0.0 if name.startswith(tables) else 1.0
            if config.experts is not None and self._stacked(name):
                share = config.experts.chosen / config.experts.count
            total += size * share
        for layer in config.attending:
            seen = min(position, config.windows[layer] or position)
            total += self._layer_bytes[config.source(layer)] * seen
        return int(total) + state_bytes(config)

    def _stacked(self, name: str) -> bool:
        """A matrix of a layer's experts: of all of them."""
        experts = self.config.experts
        part = ".mixture." if experts is not None and experts.beside else ".mlp."
        own = part in name and "_proj." in name
        return own and self.config.has_experts(int(name.split(".")[2]))

    @property
    def peak_bytes(self) -> int:
        """Bytes of memory for packed weights, cache and all else that a run needs."""
        return self._program.peak_bytes

    @property
    def executable(self) -> Executable:
        """The compiled program, for its figures."""
        return self._program

    def explain(self) -> str:
        """What was compiled."""
        return self._program.explain()
