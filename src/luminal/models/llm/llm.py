"""A language model in one object: load, generate, stream, logits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, Unsupported, WeightsError
from ...weights.hub import locate
from .config import DecoderConfig
from .program import DecoderProgram
from .sampling import Sampler, Sampling, log_probability
from .source import open_source
from .text import Message, Pieces, StopTexts, Tokenizer

DEFAULT_CONTEXT = 4096
QUANTS = {"q8": "q8", "q8_0": "q8", "q4": "q4", "q4_0": "q4", "bf16": "bf16", "f16": "f16",
          "f32": "f32"}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """A step of a reply. text: what may be shown now, often of several tokens or none. token: the
    one chosen (None for the last piece). finish: why the reply ends ("stop" or "length")."""

    text: str
    token: int | None = None
    logprob: float | None = None
    finish: str | None = None


@dataclass(frozen=True)
class Completion:
    """A whole reply. tokens: without the end token. logprobs: natural logarithms, of each token."""

    text: str
    tokens: list[int]
    logprobs: list[float]
    finish: str
    prompt_tokens: int


class LLM:
    """A language model from a directory, a GGUF file, or a name on the Hugging Face hub.

    quant: None keeps the weights as the checkpoint has them; "q8" and "q4" quantise them to GGUF's
    Q8_0 and Q4_0 when they are loaded, "bf16" and "f16" round them. Products are computed in f32.
    context: how many tokens a conversation may have (by default what the model was trained for,
    at most 4096). Raises WeightsError, Unsupported or InputError before anything is run.

    There is one cache. Tokens that a prompt has in common with what it holds are not computed
    again; replies made at the same time are right, but compute their conversations anew in turns.
    """

    def __init__(
        self, path_or_id: str | Path, quant: str | None = None, precision: str = "f32",
        context: int | None = None, search: int = 0, threads: int | None = None,
        device: str = "auto",
    ) -> None:  # fmt: skip
        if quant is not None and quant not in QUANTS:
            raise Unsupported(f"quant={quant!r}; there are {', '.join(QUANTS)}")
        source = open_source(locate(path_or_id))
        self.config: DecoderConfig = source.config
        self.context = _context(context, self.config)
        self._source = source
        self._tokenizer: Tokenizer | None = None
        state, storage = source.load(None if quant is None else QUANTS[quant])
        _check_memory(self.config, self.context, sum(value.nbytes for value in state.values()))
        self.program = DecoderProgram(
            self.config, state, self.context, storage, threads=threads, device=device,
            search=search, precision=precision,
        )  # fmt: skip
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to tokens and back. Raises WeightsError where the checkpoint has none."""
        if self._tokenizer is None:
            self._tokenizer = self._source.tokenizer()
        return self._tokenizer

    # ---- text

    def generate(
        self, prompt: str | Sequence[Message] | Sequence[int], max_tokens: int = 256,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> str:  # fmt: skip
        """The reply to a text, a conversation, or token ids. sampling: fields of `Sampling`."""
        return self.complete(prompt, max_tokens, stop, **sampling).text

    def stream(
        self, prompt: str | Sequence[Message] | Sequence[int], max_tokens: int = 256,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> Iterator[str]:  # fmt: skip
        """The reply in pieces of whole characters, as they are made."""
        for piece in self.pieces(prompt, max_tokens, stop, **sampling):
            if piece.text:
                yield piece.text

    def complete(
        self, prompt: str | Sequence[Message] | Sequence[int], max_tokens: int = 256,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> Completion:  # fmt: skip
        """The reply with its tokens, their log probabilities, and why it ended."""
        ids = self.ids(prompt)
        pieces = list(self.pieces(ids, max_tokens, stop, logprobs=True, **sampling))
        made = [piece for piece in pieces if piece.token is not None]
        tokens = [piece.token for piece in made if piece.token is not None]
        logprobs = [piece.logprob for piece in made if piece.logprob is not None]
        text = "".join(piece.text for piece in pieces)
        return Completion(text, tokens, logprobs, pieces[-1].finish or "length", len(ids))

    def pieces(
        self, prompt: str | Sequence[Message] | Sequence[int], max_tokens: int = 256,
        stop: str | Sequence[str] = (), logprobs: bool = False, **sampling: Any,
    ) -> Iterator[Piece]:  # fmt: skip
        """The reply step by step. A reply ends at an end token or a stop text ("stop"), or after
        max_tokens or at the end of the context ("length")."""
        settings, ids = _sampling(sampling), self.ids(prompt)
        stops = StopTexts([stop] if isinstance(stop, str) else stop)
        self._check_prompt(ids)
        yield from self._pieces(ids, max_tokens, stops, logprobs, settings)

    def _pieces(
        self, ids: list[int], limit: int, stops: StopTexts, logprobs: bool, sampling: Sampling
    ) -> Iterator[Piece]:
        sampler, text, finish = Sampler(sampling, ids), Pieces(self.tokenizer), "length"
        for _ in range(limit):
            if len(ids) > self.context:
                break
            logits = self._after(ids)
            token = sampler.choose(logits)
            if token in self.config.end_tokens:
                finish = "stop"
                break
            known = log_probability(logits, token) if logprobs else None
            ids = [*ids, token]
            yield Piece(stops.push(text.push(token)), token, known)
            if stops.found:
                finish = "stop"
                break
        rest = "" if stops.found else stops.push(text.flush())
        yield Piece(rest + stops.flush(), finish="stop" if stops.found else finish)

    def _after(self, ids: list[int]) -> np.ndarray:
        """Logits (vocabulary,) after these tokens; what the cache holds of them is kept."""
        with self._lock:
            known = _common(self.program.tokens, ids[:-1])
            self.program.keep(known)
            return self.program.feed(ids[known:])[0]

    # ---- numbers

    def ids(self, prompt: str | Sequence[Message] | Sequence[int]) -> list[int]:
        """Token ids of a text, of a conversation, or as given."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        messages = [entry for entry in prompt if not isinstance(entry, (int, np.integer))]
        if messages:
            return self.tokenizer.chat(messages)
        return [int(entry) for entry in prompt if isinstance(entry, (int, np.integer))]

    def logits(self, token_ids: Sequence[int]) -> np.ndarray:
        """Logits (tokens, vocabulary) f32 after each token of one sequence."""
        ids = [int(token) for token in token_ids]
        self._check_prompt(ids)
        with self._lock:
            self.program.keep(0)
            return self.program.feed(ids, len(ids)).copy()

    def _check_prompt(self, ids: Sequence[int]) -> None:
        if not ids:
            raise InputError("the prompt is empty")
        if len(ids) > self.context:
            raise InputError(
                f"the prompt has {len(ids)} tokens, the context {self.context}: "
                "shorten it or load the model with a larger context"
            )


def _common(held: list[int], wanted: list[int]) -> int:
    """How many tokens two sequences begin with in common."""
    shorter = min(len(held), len(wanted))
    if held[:shorter] == wanted[:shorter]:  # nearly always
        return shorter
    return next(n for n in range(shorter) if held[n] != wanted[n])


def _sampling(options: dict[str, Any]) -> Sampling:
    unknown = options.keys() - Sampling.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Sampling.__dataclass_fields__)
        raise InputError(f"unknown option {sorted(unknown)[0]!r}; there are {known}")
    return Sampling(**options)


def _context(wanted: int | None, config: DecoderConfig) -> int:
    if wanted is None:
        return min(config.context, DEFAULT_CONTEXT)
    if not 1 <= wanted <= config.context:
        raise InputError(f"context={wanted}: this model has 1 to {config.context}")
    return wanted


def _check_memory(config: DecoderConfig, context: int, weights: int) -> None:
    """Refuse what cannot fit this machine's memory."""
    cache = 2 * 4 * config.layers * context * config.kv_heads * config.head_dim
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if weights + cache > memory:
        raise WeightsError(
            f"weights of {weights >> 20} MiB and a cache of {cache >> 20} MiB for {context} tokens "
            f"do not fit the {memory >> 20} MiB of this machine: take a smaller context or quant"
        )
