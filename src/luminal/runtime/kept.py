"""What a program has made of its parameters, kept on disk: the packed weights of a model are made
once, and read back as they lie.

    head       magic, version, length and SHA-256 of the table
    table      JSON: [place, start, bytes] of each piece
    pieces     at multiples of a page
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .memory import Allocate, Block
from .store import whole

MAGIC, VERSION = b"lumkept\n", 1
HEAD = struct.Struct("<8sQQ32s")
PAGE = 4096


def read(path: Path, allocate: Allocate, threads: int) -> dict[int, Block]:
    """The pieces by place, in memory of their own. Raises OSError, ValueError."""
    table = _table(path)
    blocks = {place: Block(allocate, size) for place, _, size in table}
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda row: _fill(path, row, blocks[row[0]]), table))
    return blocks


def write(path: Path, pieces: Mapping[int, np.ndarray]) -> None:
    """Write pieces (bytes by place); whoever opens the file meets all of it or nothing."""
    table, start = [], 0
    for place, piece in pieces.items():
        table.append([place, start, piece.nbytes])
        start += -(-piece.nbytes // PAGE) * PAGE
    room = PAGE * (1 + (HEAD.size + 60 * len(table)) // PAGE)  # more than the table takes
    text = json.dumps([[place, at + room, size] for place, at, size in table]).encode()
    with whole(path) as file:
        file.write(HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text)
        for (_, at, _), piece in zip(table, pieces.values(), strict=True):
            file.seek(at + room)
            file.write(piece.reshape(-1).view(np.uint8).data)


def _table(path: Path) -> list[tuple[int, int, int]]:
    """(place, start, bytes) of the pieces of a file. Raises OSError, ValueError."""
    with path.open("rb") as file:
        raw = file.read(HEAD.size)
        if len(raw) < HEAD.size:
            raise ValueError("truncated")
        magic, version, length, digest = HEAD.unpack(raw)
        text = file.read(length)
    if (magic, version) != (MAGIC, VERSION) or hashlib.sha256(text).digest() != digest:
        raise ValueError("damaged")
    table = [(int(place), int(start), int(size)) for place, start, size in json.loads(text)]
    if any(start + size > path.stat().st_size for _, start, size in table):
        raise ValueError("truncated")
    return table


def _fill(path: Path, row: tuple[int, int, int], block: Block) -> None:
    _, start, size = row
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        target = block.array_of_bytes()[:size].data
        while target:
            read = file.readinto(target)
            if not read:
                raise ValueError("truncated")
            target = target[read:]
