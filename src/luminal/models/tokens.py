"""Texts as one number of tokens, whatever their length: for encoders of a fixed size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import WeightsError, stack_level
from ..weights.fields import Fields, exists, read_json
from .tokenizing import read_tokenizer, refused, tokenizers

MOST_TOKENS = 512
CLIP_WORDS = (  # how OpenAI's CLIP splits lower-case text
    r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
)


class Tokens:
    """A tokenizer that gives every text the same number of tokens: cut, or padded.

    place: a folder with tokenizer.json, or with CLIP's vocab.json and merges.txt.
    """

    def __init__(
        self, place: Path, length: int | None = None, pad: str = "<|endoftext|>"
    ) -> None:
        settings = _settings(place)
        file = place / "tokenizer.json"
        self.tokenizer = read_tokenizer(file) if exists(file) else _clip(place)
        most = settings.values.get("model_max_length")
        usual = most if isinstance(most, int) and most <= MOST_TOKENS else 77
        self.length = length or usual
        own = self.tokenizer.padding or {}
        named = settings.values.get("pad_token", own.get("pad_token", pad))
        pad = named["content"] if isinstance(named, dict) else named
        self.pad = self.tokenizer.token_to_id(pad)
        if self.pad is None:
            raise WeightsError(f"{place}: no token {pad!r}, which is to pad texts")
        self.where = place

    def __call__(self, text: str) -> np.ndarray:
        """(1, length) i64. Warns of a text that is cut."""
        self.tokenizer.enable_truncation(self.length)
        self.tokenizer.enable_padding(length=self.length, pad_id=self.pad)
        try:
            found = self.tokenizer.encode(text)
        except BaseException as error:
            raise refused(error, f"{self.where}: its tokenizer cannot encode a text") from None
        if found.overflowing:
            told = f"a text is cut: {self.where} has {self.length} tokens for it, and it has more"
            warnings.warn(told, stacklevel=stack_level())
        return np.array([found.ids], np.int64)


def _settings(place: Path) -> Fields:
    """tokenizer_config.json over special_tokens_map.json."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if exists(place / name):
            given = read_json(place / name)
            found |= {key: value for key, value in given.items() if value is not None}
    return Fields(found, str(place))


def _clip(place: Path) -> Any:
    """CLIP's tokenizer from vocab.json and merges.txt."""
    files = place / "vocab.json", place / "merges.txt"
    if not all(exists(file) for file in files):
        raise WeightsError(f"{place}: neither tokenizer.json nor vocab.json and merges.txt")
    package = tokenizers()
    try:
        model = package.models.BPE.from_file(
            *map(str, files), unk_token="<|endoftext|>", end_of_word_suffix="</w>"
        )
    except BaseException as error:
        raise refused(error, f"{place}: not a vocabulary") from None
    made = package.Tokenizer(model)
    norms, splits = package.normalizers, package.pre_tokenizers
    made.normalizer = norms.Sequence(
        [norms.NFC(), norms.Replace(package.Regex(r"\s+"), " "), norms.Lowercase()]
    )
    words = splits.Split(package.Regex(CLIP_WORDS), behavior="removed", invert=True)
    made.pre_tokenizer = splits.Sequence([words, splits.ByteLevel(add_prefix_space=False)])
    names = ["<|endoftext|>", "<|startoftext|>"]
    ends = [made.token_to_id(name) for name in names]
    if None in ends:
        raise WeightsError(f"{place}: no tokens <|startoftext|> and <|endoftext|>")
    made.post_processor = package.processors.RobertaProcessing(  # names differ by version
        *zip(names, ends), False, False
    )
    made.add_special_tokens(names)
    return made
