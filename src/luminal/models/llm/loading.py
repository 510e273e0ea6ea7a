"""From a name to what programs are built of; everything that can be refused is refused here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...collecting import collected_later
from ...errors import InputError, LuminalError, Unsupported, WeightsError
from ...graph.dtype import bf16
from ...options import backend_of
from ...weights.hub import locate
from .beside import Beside, identity_with, stacked
from .cache import cache_bytes
from .config import DecoderConfig
from .gguf_adapter import read_adapter
from .packaged import PRECISION as PACKAGED_PRECISION
from .packaged import located
from .pictures import Pictures
from .shapes import check_shapes
from .source import Source, open_source
from .storage import Storage
from .text import Tokenizer
from .weights import Deferred, identity_of

DEFAULT_CONTEXT = 4096
PRECISION = "quantised"  # unless another is asked for
QUANTS = {"q8": "q8", "q8_0": "q8", "int8": "q8", "q4": "q4", "q4_0": "q4", "bf16": "bf16",
          "f16": "f16", "f32": "f32"}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A checkpoint's tensors, how its matrices are stored, and the tokens of a conversation.
    identity: stands for the tensors as they are now (see `identity_of`). text: why there is no
    tokenizer, where there is none."""

    config: DecoderConfig
    state: Deferred
    storage: Storage
    context: int
    identity: str | None
    kv: str
    precision: str
    text: Tokenizer | LuminalError
    pictures: Pictures | None = None
    beside: Beside | None = None


def usual_precision(path_or_id: str | Path | None, device: str) -> str:
    """That of a checkpoint where none is asked for: bf16 where a GPU multiplies matrices of it."""
    backend = backend_of(device)
    if path_or_id is None or backend is None:
        return PRECISION if path_or_id else PACKAGED_PRECISION
    target = backend.target(1)
    matrices = any(i.rows > 1 and i.first is bf16 for i in target.instructions)
    return "bf16" if matrices and target.group > 1 else PRECISION


@collected_later()
def load(
    path_or_id: str | Path | None, quant: str | None = None, context: int | None = None,
    positions: int | None = None, kv: str | None = None, precision: str | None = None,
    lora: str | Path | None = None, adapters: Sequence[str | Path] = (), device: str = "auto",
    mmproj: str | Path | None = None,
) -> Loaded:  # fmt: skip
    """path_or_id, quant, context, kv, precision, lora, device, mmproj: as for `LLM`. positions: how
    many the cache holds, if not one context. adapters: like lora, not merged but side by side
    (`beside`). Raises WeightsError, Unsupported or InputError."""
    if quant is not None and quant not in QUANTS:
        raise Unsupported(f"quant={quant!r}; there are {', '.join(QUANTS)}")
    precision = precision or usual_precision(path_or_id, device)
    path = located(path_or_id)
    source = open_source(path, *(None if f is None else locate(f) for f in (lora, mmproj)))
    tokens = _context(context, source.config)
    state, storage = source.load(None if quant is None else QUANTS[quant])
    check_shapes(source.config, state.shapes, str(path))
    kv = kv or ("f16" if storage.narrow and precision != "f32" else "f32")
    positions = max(tokens, positions or 0)
    _check_memory(positions, state.bytes, cache_bytes(source.config, positions, kv))
    identity, text = identity_of(source.files, quant), _text(source)
    config, beside = _with_end(source.config, text), None
    if adapters:
        found = [read_adapter(locate(each), source.config) for each in adapters]
        shapes = {name: state.shapes[name] for name in source.as_they_are() & state.shapes.keys()}
        beside, more = stacked(found, shapes)
        state, identity = state.with_more(more), identity_with(identity, found)
    return Loaded(
        config, state, storage, tokens, identity, kv, precision, text, source.pictures, beside
    )


def _text(source: Source) -> Tokenizer | LuminalError:
    """Made before all else: the most memory that takes is free again when the program is made."""
    try:
        return source.tokenizer()
    except LuminalError as error:
        return error.with_traceback(None)


def _with_end(config: DecoderConfig, text: Tokenizer | LuminalError) -> DecoderConfig:
    """The tokenizer knows an end token too; in some checkpoints only the tokenizer does."""
    name = None if isinstance(text, LuminalError) else text.templates.settings.get("eos_token")
    if isinstance(text, LuminalError) or name is None or (end := text.token(name)) is None:
        return config
    if end >= config.vocabulary:  # in the tokenizer alone
        return config
    return replace(config, end_tokens=tuple(dict.fromkeys((*config.end_tokens, end))))


def _context(wanted: int | None, config: DecoderConfig) -> int:
    if wanted is None:
        return min(config.context, DEFAULT_CONTEXT)
    if not 1 <= wanted <= config.context:
        raise InputError(f"context={wanted}: this model has 1 to {config.context}")
    return wanted


def _check_memory(positions: int, weights: int, cache: int) -> None:
    """Refuse what cannot fit this machine's memory."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if weights + cache > memory:
        raise WeightsError(
            f"weights of {weights >> 20} MiB and a cache of {cache >> 20} MiB for {positions} "
            f"tokens do not fit the {memory >> 20} MiB of this machine: take a smaller context or "
            "quant"
        )
