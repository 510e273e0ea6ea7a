"""A pool of cache pages: counted references, and full pages found again by what they hold."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np


def extend_keys(keys: list[bytes], tokens: Sequence[int], size: int, first: bytes = b"") -> None:
    """Add the keys of further full pages of a sequence; contents depend on all tokens before, and
    on what else `first` stands for."""
    while (len(keys) + 1) * size <= len(tokens):
        start = len(keys) * size
        part = np.asarray(tokens[start : start + size], np.int64).tobytes()
        keys.append(blake2b((keys[-1] if keys else first) + part, digest_size=16).digest())


class Pages:
    """Pages 0 .. count - 1. A page is held by one or more sequences, or kept for its contents until
    it is needed for others (the longest unused one first), or free."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))[::-1]
        self._holders: Counter[int] = Counter()
        self._kept: OrderedDict[int, None] = OrderedDict()  # known contents, no holder
        self._key: dict[int, bytes] = {}
        self._page: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """How many pages can be taken."""
        return len(self._free) + len(self._kept)

    @property
    def held(self) -> int:
        """How many pages sequences hold."""
        return self.count - self.available

    def take(self) -> int:
        """A page for new contents, held once. There must be one available."""
        page = self._free.pop() if self._free else self._kept.popitem(last=False)[0]
        self._forget(page)
        self._holders[page] = 1
        return page

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The pages of the longest beginning of these keys that is there; not yet held."""
        known = [self._page.get(key) for key in keys]
        return known[: known.index(None)] if None in known else known  # type: ignore[return-value]

    def hold(self, pages: Sequence[int]) -> None:
        """One more holder for pages that were found."""
        for page in pages:
            self._kept.pop(page, None)
            self._holders[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """One holder fewer; of pages given up together the last are needed again first."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                if page in self._key:
                    self._kept[page] = None
                else:
                    self._free.append(page)

    def remember(self, page: int, key: bytes) -> None:
        """A held page is full now; the first one with given contents is found by others."""
        if key not in self._page and page not in self._key:
            self._key[page], self._page[key] = key, page

    def known(self) -> list[tuple[bytes, int]]:
        """(contents, page), those first that were full first."""
        return list(self._page.items())

    def adopt(self, keys: Sequence[bytes]) -> list[int]:
        """Pages for contents that are there already, nobody's yet; as many must be available."""
        found = [self.take() for _ in keys]
        for page, key in zip(found, keys):
            self.remember(page, key)
        self.release(found)
        return found

    def _forget(self, page: int) -> None:
        key = self._key.pop(page, None)
        if key is not None:
            del self._page[key]
