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
from functools import partial
from pathlib import Path

import numpy as np

from ..runtime.executable import Executable, Load
from .store import Store, whole

MAGIC, VERSION = b"lumkept\n", 1
HEAD = struct.Struct("<8sQQ32s")
PAGE = 4096


def set_parameters(
    program: Executable, load: Load, identity: str, store: Store | None = None
) -> None:
    """As `program.set_parameters(load)`, which is not called where what the program makes of these
    parameters was kept earlier; else it is kept now.

    identity: a file name that stands for exactly these values. store: the user's if None.
    """
    store = store or Store.of_weights()
    made = program.key_of_made
    key = None if made is None else f"{identity}-{made}"
    if not store.find(key, partial(read, program=program)):
        program.set_parameters(load)
        pieces = program.made()
        if pieces is not None:
            size = sum(piece.nbytes for piece in pieces.values())
            store.keep(key, partial(write, pieces=pieces), size)


def read(path: Path, program: Executable) -> bool:
    """Give a program the pieces of a file. Raises OSError, ValueError."""
    table = {place: (start, size) for place, start, size in _table(path)}

    def fill(place: int, room: np.ndarray) -> None:
        _fill(path, table[place][0], room)

    program.take({place: size for place, (_, size) in table.items()}, fill)
    return True


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


def _fill(path: Path, start: int, room: np.ndarray) -> None:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        target = room.data
        while target:
            read = file.readinto(target)
            if not read:
                raise ValueError("truncated")
            target = target[read:]
