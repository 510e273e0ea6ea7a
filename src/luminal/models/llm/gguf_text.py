"""The tokenizer inside a GGUF file, built with the tokenizers package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF, Texts
from ..tokenizing import refused, tokenizers
from .templates import gguf_templates
from .text import Tokenizer

PREFIX = "tokenizer.ggml"
MOST_CHARACTERS = 4096  # of a token
MOST_TEXTS = 1 << 22  # tokens, or pairs that are merged
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # kinds of tokens
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(ending: str, digits: str) -> str:
    """Words change at a small letter before a large one. ending: what may follow a word."""
    words = (f"{UPPER}*{LOWER}+", f"{UPPER}+{LOWER}*")
    return "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{word}{ending}" for word in words) + f"|{digits}{REST}"


KINDS = {  # tokenizer.ggml.pre: how a text is cut before pairs are merged, cut after cut
    (GPT2_SPLIT,): ("default", "gpt-2", "phi-2", "olmo", "jais", "mpt"),
    (r"\p{N}", GPT2_SPLIT): ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
    (LLAMA3_SPLIT,): (
        "llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4",
    ),
    (QWEN2_SPLIT,): ("qwen2", "stablelm2"),
    (_cased(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"),): ("gpt-4o",),
    (_cased("", r"\p{N}"),): ("tekken",),
}  # fmt: skip
SPLITS = {name: patterns for patterns, names in KINDS.items() for name in names}


def gguf_tokenizer(file: GGUF) -> Tokenizer:
    """Raises WeightsError where the file has none or a damaged one, Unsupported for a kind that is
    not known."""
    given = Fields(file.metadata, str(file.path))
    tokens = list(texts(given, "tokens"))
    if not tokens:
        raise WeightsError(f"{file.path}: no tokenizer in this file")
    kind = given.text(f"{PREFIX}.model")
    if kind not in ("gpt2", "llama"):
        raise Unsupported(f"{file.path}: tokenizer {kind!r}; there are 'gpt2' and 'llama'")
    settings = {}
    for name in ("bos", "eos"):
        number = _token(given, name, tokens)
        if number is not None:
            settings[f"{name}_token"] = tokens[number]
    try:
        raw = (_byte_level if kind == "gpt2" else _sentencepiece)(given, tokens)
        _add_special(raw, given, tokens)
        _add_begin(raw, given, tokens, kind == "llama")
    except BaseException as error:
        raise refused(error, f"{file.path}: not a tokenizer") from None
    return Tokenizer(raw, gguf_templates(file.metadata, settings))


def texts(given: Fields, name: str) -> Sequence[str]:
    """A list of texts, or none."""
    found = given.values.get(f"{PREFIX}.{name}")
    if found is None:
        return []
    if not isinstance(found, Texts) or len(found) > MOST_TEXTS:
        raise given.wrong(f"{PREFIX}.{name}", f"a list of at most {MOST_TEXTS} texts")
    return found


def _token(given: Fields, name: str, tokens: list[str]) -> int | None:
    """The id of a special token."""
    field = f"{PREFIX}.{name}_token_id"
    return given.count(field, low=0, high=len(tokens) - 1) if given.has(field) else None


def _byte_level(given: Fields, tokens: list[str]) -> Any:
    """Byte-level BPE with its merges, as in GPT-2, Llama 3, Qwen."""
    package = tokenizers()
    split = given.text(f"{PREFIX}.pre", "default")
    if split not in SPLITS:
        raise Unsupported(f"{given.where}: pre-tokenizer {split!r}; there are {', '.join(SPLITS)}")
    merges = [tuple(merge.split(" ", 1)) for merge in texts(given, "merges")]
    if any(len(merge) != 2 for merge in merges):
        raise given.wrong(f"{PREFIX}.merges", "pairs of tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    whole = split in ("llama-bpe", "llama3", "llama-v3", "tekken")
    raw = package.Tokenizer(package.models.BPE(vocabulary, merges, ignore_merges=whole))
    steps = package.pre_tokenizers
    cuts = [steps.Split(package.Regex(pattern), "isolated") for pattern in SPLITS[split]]
    level = steps.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.pre_tokenizer = steps.Sequence([*cuts, level])
    raw.decoder = package.decoders.ByteLevel()
    return raw


def _sentencepiece(given: Fields, tokens: list[str]) -> Any:
    """SentencePiece BPE by scores, bytes for what has no token, as in Llama 2 and Gemma."""
    package = tokenizers()
    longest = max(map(len, tokens))
    if longest > MOST_CHARACTERS:
        raise WeightsError(f"{given.where}: a token of {longest} characters")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = tokens[_token(given, "unknown", tokens) or 0]
    merges = _merges(tokens, given.numbers(f"{PREFIX}.scores", len(tokens)), vocabulary)
    raw = package.Tokenizer(
        package.models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefix = given.flag(f"{PREFIX}.add_space_prefix", True)
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


def _add_special(raw: Any, given: Fields, tokens: list[str]) -> None:
    """Tokens that stand for themselves wherever they occur; control tokens are not shown."""
    package, field = tokenizers(), f"{PREFIX}.token_type"
    if not given.has(field):
        return
    kinds = given.counts(field, len(tokens))
    raw.add_tokens([
        package.AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds)
        if kind in (CONTROL, USER)
    ])  # fmt: skip


def _add_begin(raw: Any, given: Fields, tokens: list[str], usual: bool) -> None:
    """The begin token before every text, where the model wants it."""
    number = _token(given, "bos", tokens)
    if number is None or not given.flag(f"{PREFIX}.add_bos_token", usual):
        return
    begin = tokens[number]
    raw.post_processor = tokenizers().processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, number)]
    )
