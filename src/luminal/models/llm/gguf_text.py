"""The tokenizer inside a GGUF file, built with the tokenizers package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.gguf import GGUF
from .templates import gguf_templates
from .text import Tokenizer, tokenizers

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # kinds of tokens
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
SPLITS = {  # tokenizer.ggml.pre: how a text is cut before pairs are merged
    "default": GPT2_SPLIT, "gpt-2": GPT2_SPLIT, "llama-bpe": LLAMA3_SPLIT, "llama3": LLAMA3_SPLIT,
    "llama-v3": LLAMA3_SPLIT, "qwen2": QWEN2_SPLIT, "smollm": GPT2_SPLIT,
}  # fmt: skip


def gguf_tokenizer(file: GGUF) -> Tokenizer:
    """Raises WeightsError where the file has none, Unsupported for a kind that is not known."""
    given = file.metadata
    tokens = list(given.get("tokenizer.ggml.tokens", ()))
    if not tokens:
        raise WeightsError(f"{file.path}: no tokenizer in this file")
    kind = given.get("tokenizer.ggml.model")
    if kind == "gpt2":
        raw = _byte_level(given, tokens, str(file.path))
    elif kind == "llama":
        raw = _sentencepiece(given, tokens)
    else:
        raise Unsupported(f"{file.path}: tokenizer {kind!r}; there are 'gpt2' and 'llama'")
    _add_special(raw, given, tokens)
    settings = {
        f"{name}_token": tokens[int(given[f"tokenizer.ggml.{name}_token_id"])]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in given
    }
    _add_begin(raw, given, settings, kind == "llama")
    return Tokenizer(raw, gguf_templates(given, settings))


def _byte_level(given: Mapping[str, Any], tokens: list[str], where: str) -> Any:
    """Byte-level BPE with its merges, as in GPT-2, Llama 3, Qwen."""
    package = tokenizers()
    split = given.get("tokenizer.ggml.pre", "default")
    if split not in SPLITS:
        raise Unsupported(f"{where}: pre-tokenizer {split!r}; there are {', '.join(SPLITS)}")
    merges = [tuple(merge.split(" ", 1)) for merge in given.get("tokenizer.ggml.merges", [])]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    whole = split in ("llama-bpe", "llama3", "llama-v3")
    raw = package.Tokenizer(package.models.BPE(vocabulary, merges, ignore_merges=whole))
    pattern = package.Regex(SPLITS[split])
    steps = [package.pre_tokenizers.Split(pattern, "isolated"),
             package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]  # fmt: skip
    raw.pre_tokenizer = package.pre_tokenizers.Sequence(steps)
    raw.decoder = package.decoders.ByteLevel()
    return raw


def _sentencepiece(given: Mapping[str, Any], tokens: list[str]) -> Any:
    """SentencePiece BPE by scores, bytes for what has no token, as in Llama 2 and Gemma."""
    package = tokenizers()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = tokens[int(given.get("tokenizer.ggml.unknown_token_id", 0))]
    merges = _merges(tokens, given["tokenizer.ggml.scores"], vocabulary)
    raw = package.Tokenizer(
        package.models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = bool(given.get("tokenizer.ggml.add_space_prefix", True))
    spaces = [package.normalizers.Prepend("▁")] if prefix else []
    raw.normalizer = package.normalizers.Sequence([*spaces, package.normalizers.Replace(" ", "▁")])
    steps = [package.decoders.Replace("▁", " "), package.decoders.ByteFallback(),
             package.decoders.Fuse()]  # fmt: skip
    if prefix:
        steps.append(package.decoders.Strip(" ", 1, 0))
    raw.decoder = package.decoders.Sequence(steps)
    return raw


def _merges(tokens: list[str], scores: Any, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the token of the best score first."""
    found, ranks = [], (-np.asarray(scores, np.float64)).tolist()
    for rank, token in zip(ranks, tokens):
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in vocabulary and token[cut:] in vocabulary:
                right = token[cut:]
                found.append((rank, vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]


def _add_special(raw: Any, given: Mapping[str, Any], tokens: list[str]) -> None:
    """Tokens that stand for themselves wherever they occur; control tokens are not shown."""
    package, kinds = tokenizers(), given.get("tokenizer.ggml.token_type")
    if kinds is None:
        return
    added = [
        package.AddedToken(tokens[n], special=bool(kinds[n] == CONTROL), normalized=False)
        for n in np.flatnonzero((kinds == CONTROL) | (kinds == USER))
    ]
    raw.add_tokens(added)


def _add_begin(raw: Any, given: Mapping[str, Any], settings: dict[str, str], usual: bool) -> None:
    """The begin token before every text, where the model wants it."""
    begin = settings.get("bos_token")
    if begin is None or not given.get("tokenizer.ggml.add_bos_token", usual):
        return
    number = int(given["tokenizer.ggml.bos_token_id"])
    raw.post_processor = tokenizers().processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, number)]
    )
