"""Text and encoded pictures, which only the host handles."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import InputError, Unsupported
from .. import kinds
from .base import ML, host

if TYPE_CHECKING:
    from ..stages import Host


def _objects(values: Any, shape: Any) -> np.ndarray:
    return np.array(values, object).reshape(shape)


@host("Identity")
def identity(at: Host, x: Any) -> Any:
    return x


@host("Constant")
def constant(
    at: Host, value: Any = None, value_string: Any = None, value_strings: Any = None
) -> Any:
    held = value if value is not None else value_string if value_strings is None else value_strings
    return np.array(held, object)


@host("Equal")
def equal(at: Host, x: np.ndarray, y: np.ndarray) -> Any:
    return np.asarray(x.astype(str) == y.astype(str))


@host("Cast")
def cast(at: Host, x: np.ndarray, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to == kinds.STRING:
        return _objects([_written(v) for v in x.reshape(-1)], x.shape)
    wanted = kinds.numpy_of(to)
    numbers = [float(v) if wanted.kind not in "iu" else int(v) for v in x.reshape(-1)]
    return np.array(numbers).astype(wanted).reshape(x.shape)


def _written(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, (float, np.floating)) else str(value)


@host("Reshape")
def reshape(at: Host, x: np.ndarray, shape: np.ndarray, allowzero: int = 0) -> Any:
    sizes = [x.shape[d] if s == 0 and not allowzero else int(s) for d, s in enumerate(shape)]
    return x.reshape(sizes)


@host("Squeeze")
def squeeze(at: Host, x: np.ndarray, axes: Any = None) -> Any:
    return x.squeeze(None if axes is None else tuple(int(a) for a in axes))


@host("Unsqueeze")
def unsqueeze(at: Host, x: np.ndarray, axes: Any) -> Any:
    return np.expand_dims(x, tuple(int(a) for a in axes))


@host("Gather")
def gather(at: Host, x: np.ndarray, index: np.ndarray, axis: int = 0) -> Any:
    return np.take(x, index, axis)


@host("Concat")
def concat(at: Host, *parts: np.ndarray, axis: int) -> Any:
    return np.concatenate(parts, axis)


@host("SequenceConstruct")
def construct(at: Host, *parts: Any) -> Any:
    return list(parts)


@host("SequenceAt")
def sequence_at(at: Host, values: list[Any], place: Any) -> Any:
    return values[int(place)]


@host("StringConcat")
def string_concat(at: Host, x: np.ndarray, y: np.ndarray) -> Any:
    return np.asarray(np.char.add(x.astype(str), y.astype(str))).astype(object)


@host("StringSplit")
def string_split(
    at: Host, x: np.ndarray, delimiter: str | None = None, maxsplit: int | None = None
) -> Any:
    """(pieces, padded with "", their numbers)."""
    most = -1 if maxsplit is None else maxsplit
    rows = [str(text).split(delimiter or None, most) for text in x.reshape(-1)]
    width = max(map(len, rows), default=0)
    pieces = [row + [""] * (width - len(row)) for row in rows]
    counts = np.array([len(row) for row in rows], np.int64).reshape(x.shape)
    return _objects(pieces, (*x.shape, width)), counts


@host("RegexFullMatch")
def regex_full_match(at: Host, x: np.ndarray, pattern: str) -> Any:
    compiled = re.compile(pattern)
    hits = [compiled.fullmatch(str(text)) is not None for text in x.reshape(-1)]
    return np.array(hits, np.bool_).reshape(x.shape)


@host("StringNormalizer")
def string_normalizer(
    at: Host, x: np.ndarray, case_change_action: str = "NONE", is_case_sensitive: int = 0,
    locale: str = "", stopwords: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Words that are no stop words, in another case; one empty word if none is left."""
    hidden = set(stopwords if is_case_sensitive else [w.lower() for w in stopwords])
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)

    def row(words: Any) -> list[str]:
        kept = [w for w in words if (w if is_case_sensitive else w.lower()) not in hidden]
        return [change(w) for w in kept] or [""]

    if x.ndim == 1:
        return np.array(row(map(str, x)), object)
    rows = [row(map(str, line)) for line in x]
    return _objects(rows, (len(rows), -1))


@host("TfIdfVectorizer")
def tfidf(
    at: Host, x: np.ndarray, max_gram_length: int, max_skip_count: int, min_gram_length: int,
    mode: str, ngram_counts: Sequence[int], ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (), pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Any:  # fmt: skip
    """How often known n-grams occur, whose elements stand 1 .. max_skip_count + 1 apart."""
    pool: Sequence[Any] = list(pool_int64s) or list(pool_strings)
    known: dict[tuple[Any, ...], int] = {}
    ends = [*ngram_counts, len(pool)]
    number = 0
    for size, (start, end) in enumerate(pairwise(ends), 1):
        for place in range(start, end, size):
            known[tuple(pool[place : place + size])] = ngram_indexes[number]
            number += 1
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    found = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for counts, line in zip(found, rows):
        values = [v if isinstance(v, str) else v.item() for v in line]
        for size in range(min_gram_length, max_gram_length + 1):
            for skip in range(1, max_skip_count + 2 if size > 1 else 2):
                for first in range(len(values) - skip * (size - 1)):
                    gram = tuple(values[first : first + skip * size : skip][:size])
                    if gram in known:
                        counts[known[gram]] += 1
    scale = np.ones(found.shape[1], np.float32)
    if len(weights):
        scale[list(ngram_indexes)] = weights
    if mode == "TF":
        result = found
    elif mode == "IDF":
        result = (found > 0) * scale
    else:
        result = found * scale
    return (result.reshape(-1) if x.ndim == 1 else result).astype(np.float32)


@host("LabelEncoder", domain=ML)
def label_encoder(at: Host, x: np.ndarray, **attributes: Any) -> Any:
    """A table from keys to values, with a default."""

    def named(prefix: str) -> Any:
        found = {k: v for k, v in attributes.items() if k.startswith(prefix)}
        return next(iter(found.values()), None)

    keys, values = named("keys_"), named("values_")
    kinds_of_values = {"values_strings": object, "values_int64s": np.int64,
                       "values_floats": np.float32}  # fmt: skip
    if keys is None:  # version 1: names and their places
        names = attributes["classes_strings"]
        if x.dtype.kind in "OSU":
            table: dict[Any, Any] = {name: k for k, name in enumerate(names)}
            rest: Any = attributes.get("default_int64", -1)
            kind: Any = np.int64
        else:
            table, kind = dict(enumerate(names)), object
            rest = attributes.get("default_string", "_Unused")
    else:
        held = [np.asarray(v).reshape(-1).tolist() for v in (keys, values)]
        table = {_key(k): v for k, v in zip(*held)}
        name = next(k for k in attributes if k.startswith("values_"))
        kind = kinds_of_values.get(name, np.asarray(values).dtype)
        defaults: dict[Any, Any] = {"default_string": "_Unused", "default_int64": -1,
                                    "default_float": -0.0}  # fmt: skip
        usual = {object: "default_string", np.int64: "default_int64", np.float32: "default_float"}
        if "default_tensor" in attributes:
            rest = np.asarray(attributes["default_tensor"]).reshape(-1)[0]
        else:
            name = usual.get(kind, "default_int64")
            rest = attributes.get(name, defaults[name])
    found = [table.get(_key(v), rest) for v in x.reshape(-1).tolist()]
    return np.array(found, kind).reshape(x.shape)


def _key(value: Any) -> Any:
    return "nan" if isinstance(value, float) and value != value else value


@host("ImageDecoder")
def image_decoder(at: Host, data: np.ndarray, pixel_format: str = "RGB") -> Any:
    """(height, width, channels) of an encoded picture, by Pillow."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise Unsupported("ImageDecoder needs Pillow: pip install pillow") from None
    try:
        mode = "L" if pixel_format == "Grayscale" else "RGB"
        picture = Image.open(io.BytesIO(data.tobytes())).convert(mode)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"ImageDecoder: no picture, or a damaged one ({error})") from None
    pixels = np.asarray(picture)
    if pixel_format == "Grayscale":
        return pixels[..., None]
    return np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels
