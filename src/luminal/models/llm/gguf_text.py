"""The tokenizer inside a GGUF file, built with the tokenizers package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF, Texts
from ..sentencepiece import UNIGRAM, Spec, made
from ..tokenizing import merges_of, refused, spaced, tokenizers
from ..world import World, unescaped
from .gguf_splits import BEGUN, SPLITS, UNCUT, WHOLE, WORDS_ALONE
from .templates import gguf_templates
from .text import Tokenizer

PREFIX = "tokenizer.ggml"
MOST_CHARACTERS = 4096  # of a token
MOST_TEXTS = 1 << 22  # tokens, or pairs that are merged
ROBERTA = ("roberta-bpe", "jina-v1-en", "jina-v2-code", "jina-v2-es", "jina-v2-de")
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # kinds of tokens


def gguf_tokenizer(file: GGUF) -> Tokenizer:
    """Raises WeightsError where the file has none or a damaged one, Unsupported for a kind that is
    not known."""
    raw, given = raw_tokenizer(file), Fields(file.metadata, str(file.path))
    tokens, settings = texts(given, "tokens"), {}
    for name in ("bos", "eos"):
        number = _token(given, name, tokens)
        if number is not None:
            settings[f"{name}_token"] = tokens[number]
    return Tokenizer(raw, gguf_templates(file.metadata, settings))


def raw_tokenizer(file: GGUF, encoder: bool = False) -> Any:
    """Of the tokenizers package. encoder: a begin and an end token come around every text and both
    texts of a pair. Raises WeightsError or Unsupported."""
    given = Fields(file.metadata, str(file.path))
    tokens = list(texts(given, "tokens"))
    if not tokens:
        raise WeightsError(f"{file.path}: no tokenizer in this file")
    kind = given.text(f"{PREFIX}.model")
    if kind not in KINDS:
        raise Unsupported(f"{file.path}: tokenizer {kind!r}; there are {', '.join(KINDS)}")
    try:
        raw = KINDS[kind](given, tokens)
        if kind not in ADDED:
            _add_special(raw, given, tokens)
        if encoder:
            _add_both(raw, given, tokens)
        elif kind != "rwkv":
            _add_around(raw, given, tokens, kind)
    except BaseException as error:
        raise refused(error, f"{file.path}: not a tokenizer") from None
    return raw


def texts(given: Fields, name: str) -> Sequence[str]:
    """A list of texts, or none."""
    found = given.values.get(f"{PREFIX}.{name}")
    if found is None:
        return []
    if not isinstance(found, Texts) or len(found) > MOST_TEXTS:
        raise given.wrong(f"{PREFIX}.{name}", f"a list of at most {MOST_TEXTS} texts")
    return found


def _token(given: Fields, name: str, tokens: Sequence[str]) -> int | None:
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


def _words(given: Fields, tokens: list[str]) -> Any:
    """WordPiece: files write a word's beginning with "▁" and its further pieces as they are. In a
    vocabulary without large letters, texts have none either."""
    package = tokenizers()
    kinds = given.counts(f"{PREFIX}.token_type", len(tokens))
    plain = [kind not in (CONTROL, UNKNOWN) for kind in kinds]
    named = [token if not usual else token[1:] if token.startswith("▁") else f"##{token}"
             for token, usual in zip(tokens, plain)]  # fmt: skip
    small = not any(any("A" <= letter <= "Z" for letter in token) and "[" not in token
                    for token, usual in zip(tokens, plain) if usual)  # fmt: skip
    unknown = tokens[_token(given, "unknown", tokens) or 0]
    vocabulary = dict(zip(named, range(len(named))))
    raw = package.Tokenizer(package.models.WordPiece(vocabulary, unk_token=unknown))
    raw.normalizer = package.normalizers.BertNormalizer(lowercase=small)
    raw.pre_tokenizer = package.pre_tokenizers.BertPreTokenizer()
    raw.decoder = package.decoders.WordPiece()
    return raw


def _unigram(given: Fields, tokens: list[str]) -> Any:
    """SentencePiece's unigrams by scores, as in T5 and XLM-RoBERTa."""
    kinds = given.counts(f"{PREFIX}.token_type", len(tokens))
    scores = given.numbers(f"{PREFIX}.scores", len(tokens))
    known, table = f"{PREFIX}.precompiled_charsmap", b""
    if given.has(known):
        table = np.array(given.values[known]).astype(np.uint8).tobytes()
    return made(Spec(
        list(zip(tokens, scores, kinds)), UNIGRAM, table,
        given.flag(f"{PREFIX}.add_space_prefix", True),
        given.flag(f"{PREFIX}.remove_extra_whitespaces"), BYTE in kinds,
    ))  # fmt: skip


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


def _add_around(raw: Any, given: Fields, tokens: list[str], kind: str) -> None:
    """The begin token before every text, the end token behind it: where the file wants them, or
    does not say and its kind of tokenizer usually has them."""
    begun = kind == "llama" or given.text(f"{PREFIX}.pre", "") in BEGUN
    wanted = [name for name, usual in (("bos", begun), ("eos", kind == "t5"))
              if given.flag(f"{PREFIX}.add_{name}_token", usual)]  # fmt: skip
    numbers = {name: _token(given, name, tokens) for name in wanted}
    special = {tokens[number]: number for number in numbers.values() if number is not None}
    first, last = (
        [] if numbers.get(name) is None else [tokens[numbers[name] or 0]] for name in ("bos", "eos")
    )
    raw.post_processor = tokenizers().processors.TemplateProcessing(
        single=[*first, "$A", *last], pair=[*first, "$A", *last, *first, "$B", *last],
        special_tokens=list(special.items()),
    )  # fmt: skip


def _add_both(raw: Any, given: Fields, tokens: list[str]) -> None:
    """BERT's [CLS] A [SEP] B [SEP], RoBERTa's <s> A </s></s> B </s>. What a file calls cls or
    seperator goes before bos and eos."""
    begin, end = (
        next((n for name in names if (n := _token(given, name, tokens)) is not None), None)
        for names in (("cls", "bos"), ("seperator", "eos"))
    )
    wanted = [given.flag(f"{PREFIX}.add_{name}_token", True) for name in ("bos", "eos")]
    if given.text(f"{PREFIX}.model") == "bert":
        wanted = [True, True]
    first = [tokens[begin]] if begin is not None and wanted[0] else []
    last = [tokens[end]] if end is not None and wanted[1] else []
    twice = given.text(f"{PREFIX}.model") == "t5" or given.text(f"{PREFIX}.pre", "") in ROBERTA
    special = {tokens[n]: n for n in (begin, end) if n is not None}
    second = [*last, "$B", *last] if twice else ["$B:1", *(f"{text}:1" for text in last)]
    raw.post_processor = tokenizers().processors.TemplateProcessing(
        single=[*first, "$A", *last], pair=[*first, "$A", *last, *second],
        special_tokens=list(special.items()),
    )  # fmt: skip


def _world(given: Fields, tokens: list[str]) -> World:
    """RWKV's: the longest token that matches."""
    kinds = given.counts_or(f"{PREFIX}.token_type", [NORMAL] * len(tokens), len(tokens))
    special = [number for number, kind in enumerate(kinds) if kind == CONTROL]
    return World([unescaped(token) for token in tokens], _token(given, "unknown", tokens) or 0,
                 special)  # fmt: skip


KINDS = {"gpt2": _byte_level, "gemma4": _byte_level, "llama": _sentencepiece, "bert": _words,
         "t5": _unigram, "rwkv": _world}  # fmt: skip
ADDED = ("t5", "rwkv")  # with their special tokens
