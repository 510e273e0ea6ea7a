"""`tokenizer.model` files as tokenizers of the tokenizers package: unigram and BPE.

Format: sentencepiece_model.proto of https://github.com/google/sentencepiece; the fields that are
needed are read from the protocol buffer here: tag = number * 8 + wire type, varints, lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import Unsupported, WeightsError
from ..weights.fields import regular
from .tokenizing import MOST_TOKENIZER, merges_of, refused, spaced, tokenizers

UNIGRAM, BPE = 1, 2
UNKNOWN, CONTROL, USER = 2, 3, 4


@dataclass(frozen=True)
class Spec:
    """pieces: text, score and kind of each. kind: of the model. charsmap: of the normalizer.
    prefix: whether a space comes before a text; squeezed: spaces in a row are one. suffix: whether
    spaces belong to what comes before them."""

    pieces: list[tuple[str, float, int]]
    kind: int
    charsmap: bytes
    prefix: bool
    squeezed: bool
    bytes_for_unknown: bool
    suffix: bool = False


def read_model(file: Path, prefix: bool = True) -> Any:
    """A tokenizer of the tokenizers package. prefix: a space comes before a text, if the file says
    so. Raises WeightsError or Unsupported."""
    size = regular(file).stat().st_size
    if size > MOST_TOKENIZER:
        raise WeightsError(f"{file}: {size} bytes; at most {MOST_TOKENIZER} are read")
    try:
        spec = _spec(file.read_bytes())
    except (IndexError, ValueError, struct.error, KeyError) as error:
        raise WeightsError(f"{file}: not a sentencepiece model: {error}") from None
    if spec.kind not in (UNIGRAM, BPE) or not spec.pieces:
        raise Unsupported(f"{file}: a sentencepiece model that is neither unigram nor BPE")
    if spec.suffix:
        raise Unsupported(f"{file}: pieces that end in their spaces (treat_whitespace_as_suffix)")
    try:
        return made(replace(spec, prefix=spec.prefix and prefix))
    except BaseException as error:
        raise refused(error, f"{file}: not a tokenizer") from None


def made(spec: Spec) -> Any:
    """A tokenizer of the tokenizers package."""
    package = tokenizers()
    texts = [text for text, _, _ in spec.pieces]
    unknown = next((n for n, piece in enumerate(spec.pieces) if piece[2] == UNKNOWN), 0)
    if spec.kind == UNIGRAM:
        scored = [(text, score) for text, score, _ in spec.pieces]
        model = package.models.Unigram(scored, unknown, spec.bytes_for_unknown)
    else:
        vocabulary = {text: number for number, text in enumerate(texts)}
        merges = merges_of(texts, [score for _, score, _ in spec.pieces], vocabulary)
        model = package.models.BPE(
            vocabulary, merges, unk_token=texts[unknown], fuse_unk=True,
            byte_fallback=spec.bytes_for_unknown,
        )  # fmt: skip
    steps = package.normalizers
    first = [steps.Precompiled(spec.charsmap)] if spec.charsmap else []
    if spec.squeezed:
        spaces = ("^ +| +$", ""), (" {2,}", " ")  # no others: a tab stays where it is
        first += [steps.Replace(package.Regex(some), less) for some, less in spaces]
    raw = spaced(model, spec.prefix, first)
    raw.add_tokens([
        package.AddedToken(text, special=kind == CONTROL, normalized=False)
        for text, _, kind in spec.pieces
        if kind in (CONTROL, USER)
    ])  # fmt: skip
    return raw


# ---- the protocol buffer


def _spec(data: bytes) -> Spec:
    """ModelProto: pieces = 1, trainer_spec = 2, normalizer_spec = 3."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == 1:
            found = dict(_fields(value))
            score = struct.unpack("<f", found.get(2, b"\0\0\0\0"))[0]
            pieces.append((found[1].decode("utf-8"), score, found.get(3, 1)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    return Spec(
        pieces, trainer.get(3, UNIGRAM), normalizer.get(2, b""), bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)), bool(trainer.get(35, 0)), bool(trainer.get(24, 0)),
    )  # fmt: skip


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a message: numbers as they are, texts and fixed ones as bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, place = _varint(data, place)
        else:
            size = {1: 8, 5: 4}[wire]
        if place + size > len(data):
            raise ValueError("truncated")
        yield tag >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        number, place = number | (byte & 127) << shift, place + 1
        if byte < 128:
            return number, place
    raise ValueError("a number of more than ten bytes")
