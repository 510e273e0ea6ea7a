"""The tokenizer inside a GGUF file, built with the tokenizers package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF, Texts
from ..tokenizing import merges_of, refused, spaced, tokenizers
from .gguf_splits import SPLITS, UNCUT, WHOLE, WORDS_ALONE
from .templates import gguf_templates
from .text import Tokenizer

PREFIX = "tokenizer.ggml"
KINDS = ("gpt2", "llama", "gemma4")
MOST_CHARACTERS = 4096  # of a token
MOST_TEXTS = 1 << 22  # tokens, or pairs that are merged
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # kinds of tokens


def gguf_tokenizer(file: GGUF) -> Tokenizer:
    """Raises WeightsError where the file has none or a damaged one, Unsupported for a kind that is
    not known."""
    given = Fields(file.metadata, str(file.path))
    tokens = list(texts(given, "tokens"))
    if not tokens:
        raise WeightsError(f"{file.path}: no tokenizer in this file")
    kind = given.text(f"{PREFIX}.model")
    if kind not in KINDS:
        raise Unsupported(f"{file.path}: tokenizer {kind!r}; there are {', '.join(KINDS)}")
    settings = {}
    for name in ("bos", "eos"):
        number = _token(given, name, tokens)
        if number is not None:
            settings[f"{name}_token"] = tokens[number]
    try:
        raw = (_sentencepiece if kind == "llama" else _byte_level)(given, tokens)
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
    own = given.text(f"{PREFIX}.model") == "gemma4"
    split = "gemma4" if own else given.text(f"{PREFIX}.pre", "default")
    known = (*SPLITS, *UNCUT, *WORDS_ALONE)
    if split not in known:
        raise Unsupported(f"{given.where}: pre-tokenizer {split!r}; there are {', '.join(known)}")
    merges = [tuple(merge.split(" ", 1)) for merge in texts(given, "merges")]
    if set(map(len, merges)) - {2}:
        raise given.wrong(f"{PREFIX}.merges", "pairs of tokens")
    vocabulary = dict(zip(tokens, range(len(tokens))))
    if split in UNCUT:
        return spaced(package.models.BPE(vocabulary, merges, byte_fallback=True), prefix=False)
    whole = split in WHOLE
    raw = package.Tokenizer(package.models.BPE(vocabulary, merges, ignore_merges=whole))
    steps = package.pre_tokenizers
    cuts = [steps.Split(package.Regex(pattern), "isolated") for pattern in SPLITS.get(split, ())]
    cuts += [steps.WhitespaceSplit()] if split in WORDS_ALONE else []
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
    vocabulary = dict(zip(tokens, range(len(tokens))))
    unknown = tokens[_token(given, "unknown", tokens) or 0]
    merges = merges_of(tokens, given.numbers(f"{PREFIX}.scores", len(tokens)), vocabulary)
    model = package.models.BPE(
        vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    return spaced(model, given.flag(f"{PREFIX}.add_space_prefix", True))


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
