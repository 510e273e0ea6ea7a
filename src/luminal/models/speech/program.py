"""Whisper compiled: spectrograms to keys and values, tokens to logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import nn, ops
from ...graph import Graph, Tensor
from ..llm.cache import PagedCache
from ..llm.config import DecoderConfig
from ..llm.elsewhere import Recorded, compiled
from ..llm.storage import Storage
from ..llm.weights import Deferred, give
from ..llm.whole import buckets_before
from .config import WhisperConfig
from .decoder import Memories, SpeechDecoder
from .encoder import Memory, WhisperEncoder, encoder_outputs

MOST_FRAMES = 4096
CHUNK = 64  # tokens of a prompt that run at once
Encoded = list[np.ndarray]  # keys, values of each layer: (audios, heads, frames, head_dim) f32


class Encoding(nn.Module):
    """An encoder, and what a decoder's layers make of its frames."""

    def __init__(self, encoder: nn.Module, memory: Memory) -> None:
        super().__init__()
        self.encoder, self.memory = encoder, memory

    def forward(self, x: Tensor, *more: Any) -> Memories:
        return self.memory(self.encoder(x, *more))


def recorded_encoder(config: WhisperConfig, audios: int) -> Recorded:
    """Spectrograms (audios, mels, frames) of windows to the keys and values of each layer."""
    graph, storage = Graph(), Storage()
    count = graph.dim("audios", 1, audios, hint=1)
    mel = graph.tensor((count, config.mels, config.frames), name="mel")
    with nn.uninitialised():
        encoder = WhisperEncoder(graph, config.encoder, config.mels, storage)
        memory = Memory(graph, config.decoder, config.encoder.width, storage)
    model = Encoding(encoder, memory)
    encoder_outputs(model(mel))
    return Recorded(graph, model, [])


def recorded_decoder(
    config: DecoderConfig, frames: int | None, rows: int, storage: Storage,
    heads: Sequence[tuple[int, int]] = (),
) -> Recorded:  # fmt: skip
    """Logits of the tokens at the places `last`: as many tokens of each recording. A place of the
    cache is a page of its own, so that hypotheses share what they have in common. heads: layers and
    heads of which it is told how much of each frame each token takes. frames: of the sound, None:
    any number, of several recordings `heard` says how many each has."""
    graph = Graph()
    audios = graph.dim("audios", 1, rows, hint=1)
    each = graph.dim("each", 1, max(rows, CHUNK), hint=(1, 5, CHUNK))
    seen = graph.dim("seen", 1, config.context, hint=min(64, config.context))
    wanted = graph.dim("wanted", 1, max(rows, CHUNK), hint=1)
    ids, positions, slots = (graph.tensor((audios, each), "i64", name).flatten(0, 1)
                             for name in ("ids", "positions", "slots"))  # fmt: skip
    table = graph.tensor((audios, each, seen), "i64", "table").flatten(0, 1)
    with nn.uninitialised():
        model = SpeechDecoder(graph, config, storage)
    cache = PagedCache(graph, config, rows * config.context, 1, positions, slots, table)
    if model.relative is not None and config.relative is not None:
        numbers = graph.constant(buckets_before(config.context, *config.relative))
        cache.bias = model.relative(numbers)  # (positions, heads)
    length = graph.dim("frames", 1, MOST_FRAMES, hint=500) if frames is None else frames
    memory = memory_inputs(graph, config, audios, length)
    heard = graph.tensor((audios,), "i64", "heard") if frames is None and rows > 1 else None
    last = graph.tensor((wanted,), "i64", "last")
    shown: list[Tensor] | None = [] if heads else None
    hidden = model(ids, cache, memory, shown, heard)
    model.logits(hidden.index_select(0, last)).output("logits")
    if shown:  # (audios, heads, tokens of each, frames)
        chosen = [shown[layer].narrow(1, head, 1) for layer, head in heads]
        ops.cat(chosen, 1).output("shares")
    return Recorded(graph, model, cache.states)


def memory_inputs(graph: Graph, config: DecoderConfig, audios: Any, frames: Any) -> Memories:
    """Inputs for the keys and values of encoded sound."""
    shape = (audios, config.kv_heads, frames, config.head_dim)
    names = [(f"heard_keys{n}", f"heard_values{n}") for n in range(config.layers)]
    return [(graph.tensor(shape, name=k), graph.tensor(shape, name=v)) for k, v in names]


def part_of(state: Mapping[str, np.ndarray], *prefixes: str) -> Deferred:
    """The tensors of a program."""
    return Deferred.of({n: v for n, v in state.items() if n.startswith(prefixes)})


class EncoderProgram:
    """Encodes windows of sound."""

    def __init__(
        self, config: WhisperConfig, state: Mapping[str, np.ndarray], audios: int, **options: Any
    ) -> None:
        """options: of `Graph.compile`."""
        self.config, self.audios = config, audios
        given = {"config": config, "audios": audios}
        made, self.executable = compiled(recorded_encoder, given, options)
        give(self.executable, made.model, part_of(state, "encoder.", "memory."))

    def __call__(self, mel: np.ndarray) -> Encoded:
        """mel: (audios, mels, frames) f32."""
        self.executable["mel"] = mel
        self.executable.run()
        names = [f"{what}{n}" for n in range(self.config.decoder.layers)
                 for what in ("keys", "values")]  # fmt: skip
        return [self.executable[name] for name in names]


class DecoderProgram:
    """Feeds tokens of hypotheses about recordings; a row is the place of one in the cache."""

    def __init__(
        self, config: DecoderConfig, state: Mapping[str, np.ndarray], frames: int | None, rows: int,
        storage: Storage, heads: Sequence[tuple[int, int]] = (), **options: Any,
    ) -> None:  # fmt: skip
        self.config, self.rows, self.chunk, self.heads = config, rows, max(rows, CHUNK), heads
        given = {"config": config, "frames": frames, "rows": rows, "storage": storage,
                 "heads": heads}  # fmt: skip
        made, self.executable = compiled(recorded_decoder, given, options)
        own = {n.removeprefix("decoder."): v for n, v in state.items() if n.startswith("decoder.")}
        give(self.executable, made.model, Deferred.of(own))
        self.executable.clear(made.states)

    def listen(self, encoded: Encoded, beams: int = 1, heard: Sequence[int] = ()) -> None:
        """From now on tokens are about these recordings, `beams` hypotheses for each. heard: how
        many frames each has, where their number is not that of the model."""
        if heard:
            self.executable["heard"] = np.array(heard, np.int64)
        for n, value in enumerate(encoded):
            self.executable[f"heard_{('keys', 'values')[n % 2]}{n // 2}"] = value
        self.audios, self.beams, self.position = len(encoded[0]), beams, 0
        rows = np.arange(self.audios * beams).reshape(self.audios, beams, 1)
        # where each hypothesis' tokens lie; those to come lie in its own row
        self._own = rows * self.config.context + np.arange(self.config.context)
        self._tables = self._own.copy()

    def prompt(self, ids: np.ndarray, wanted: Sequence[int]) -> np.ndarray:
        """Tokens (audios, tokens) that all hypotheses begin with: logits (audios, wanted,
        vocabulary) after those at the places `wanted`, which ascend; with `heads` also `shares`
        (heads, tokens, frames) of the first recording."""
        found, shares = [], []
        self._tables[:] = self._own[:, :1]
        for start in range(0, ids.shape[1], self.chunk // self.audios):
            part = ids[:, start : start + self.chunk // self.audios]
            inside = [n - start for n in wanted if start <= n < start + part.shape[1]]
            table = self._tables[:, :1, : self.position + part.shape[1]]
            logits = self._run(part, np.arange(part.shape[1]), table, inside)
            found.append(logits[:, : len(inside)])
            if self.heads:
                shares.append(self.executable["shares"][0])
            self.position += part.shape[1]
        if shares:
            self.shares = np.concatenate(shares, 1)
        return np.concatenate(found, 1)

    def step(self, ids: np.ndarray) -> np.ndarray:
        """One token (audios, beams) more of each: logits (audios, beams, vocabulary)."""
        self._tables[:, :, self.position :] = self._own[:, :, self.position :]
        table = self._tables[:, :, : self.position + 1]
        logits = self._run(ids, np.zeros(1, np.int64), table, range(self.beams))
        self.position += 1
        return logits

    def reorder(self, parents: np.ndarray) -> None:
        """Hypotheses go on from others: parents (audios, beams), which of its recording."""
        self._tables = np.take_along_axis(self._tables, parents[:, :, None], 1)

    def _run(
        self, ids: np.ndarray, ahead: np.ndarray, table: np.ndarray, wanted: Sequence[int]
    ) -> np.ndarray:
        """Logits (audios, wanted or one, vocabulary). ahead: how far a token stands after the
        first."""
        program, (audios, each) = self.executable, ids.shape
        positions = np.broadcast_to(self.position + ahead, ids.shape)
        tables = np.broadcast_to(table, (audios, each, table.shape[2]))
        program["ids"], program["positions"] = np.ascontiguousarray(ids, np.int64), positions
        program["slots"] = np.take_along_axis(tables, positions[:, :, None], 2)[:, :, 0]
        program["table"] = tables
        places = np.array(wanted or [0], np.int64)
        program["last"] = (np.arange(audios)[:, None] * each + places).reshape(-1)
        program.run()
        return program["logits"].reshape(audios, len(wanted) or 1, -1)
