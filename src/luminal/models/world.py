r"""The tokenizer of RWKV's World models: at every place the longest token that matches, in bytes.

GGUF files write a token as Python shows its bytes (`\n`, `\t`, `\r`, `\xff`, a backslash before
what it stands for); bytes that no token begins with are the unknown token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .tokenizing import tokenizers

ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def unescaped(token: str) -> bytes:
    r"""The bytes of a token as a file has it.

    >>> unescaped(r"\xe4\xbd \\ \n")
    b'\xe4\xbd \\ \n'
    """

    def one(found: re.Match[bytes]) -> bytes:
        what = found[1]
        return bytes([int(what[1:], 16)]) if len(what) == 3 else NAMED.get(what, what)

    return ESCAPE.sub(one, token.encode())


@dataclass(frozen=True)
class Encoded:
    """As one of the tokenizers package."""

    ids: list[int]


class World:
    """Encodes by itself, as the tokenizers package does otherwise. special: tokens that stand for
    no text."""

    def __init__(self, tokens: Sequence[bytes], unknown: int, special: Iterable[int] = ()) -> None:
        self._ids = {token: number for number, token in enumerate(tokens) if token}
        self._tokens, self._unknown, self._special = tokens, unknown, frozenset(special)
        lengths: dict[bytes, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[:2], set()).add(len(token))
        self._lengths = {start: sorted(known)[::-1] for start, known in lengths.items()}

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoded:
        """Nothing comes around a text."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise TypeError("half a surrogate pair") from None
        place, found = 0, []
        ids, lengths = self._ids, self._lengths
        while place < len(data):
            number, step = ids.get(data[place : place + 1], self._unknown), 1
            for length in lengths.get(data[place : place + 2], ()):
                longer = ids.get(data[place : place + length])
                if longer is not None:
                    number, step = longer, length
                    break
            found.append(number)
            place += step
        return Encoded(found)

    def encode_batch_fast(self, texts: Sequence[str], add_special_tokens: bool) -> list[Encoded]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        known = range(len(self._tokens))
        left = [n for n in ids if n in known and not (skip_special_tokens and n in self._special)]
        return b"".join(self._tokens[n] for n in left).decode(errors="replace")

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Bytes as the package's ByteLevel writes them."""
        letters = _letters()
        return {"".join(letters[b] for b in token): n for token, n in self._ids.items()}

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        return len(self._tokens)

    def id_to_token(self, number: int) -> str | None:
        if not 0 <= number < len(self._tokens):
            return None
        return "".join(_letters()[b] for b in self._tokens[number])

    def token_to_id(self, text: str) -> int | None:
        return self._ids.get(text.encode())

    def to_str(self) -> str:
        """A tokenizer.json with the same tokens: for grammars, which need no more."""
        package = tokenizers()
        raw = package.Tokenizer(package.models.BPE(self.get_vocab(), []))
        raw.pre_tokenizer = package.pre_tokenizers.ByteLevel(False, use_regex=False)
        raw.decoder = package.decoders.ByteLevel()
        raw.add_special_tokens([self.id_to_token(n) for n in sorted(self._special)])
        return str(raw.to_str())


@lru_cache(1)
def _letters() -> list[str]:
    """How ByteLevel writes each byte: as itself where that can be seen."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in seen else chr(next(others)) for b in range(256)]
