"""Kernels, schedules and results between this process and a child: pickles, length first.

Indices and dtypes are compared by identity, so they travel as what they are made of and are
interned again on arrival. Only pipes of our own children carry this; nothing from disk is ever
unpickled.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import IO, Any

from ..graph.dtype import BY_NAME, DType
from ..graph.index import Atom, Floor, Index

LENGTH = struct.Struct("<Q")


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one message."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    data = buffer.getvalue()
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message. Raises EOFError where the other side is gone."""
    (length,) = LENGTH.unpack(_read(pipe, LENGTH.size))
    return pickle.loads(_read(pipe, length))


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError("the pipe was closed")
    return data


class _Pickler(pickle.Pickler):
    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, DType):
            return _dtype, (found.name,)
        if isinstance(found, Index):
            return _index, (_pieces(found),)
        return NotImplemented


def _dtype(name: str) -> DType:
    return BY_NAME[name]


def _pieces(index: Index) -> tuple[Any, ...]:
    return tuple((tuple(map(_piece, monomial)), count) for monomial, count in index.terms)


def _piece(atom: Atom) -> Any:
    if isinstance(atom, str):
        return atom
    if isinstance(atom, Floor):
        return "floor", _pieces(atom.numerator), _pieces(atom.divisor)
    return atom.kind, _pieces(atom.first), _pieces(atom.second)


def _index(pieces: tuple[Any, ...]) -> Index:
    total = Index.of(0)
    for monomial, count in pieces:
        product = Index.of(count)
        for piece in monomial:
            product = product * _atom(piece)
        total = total + product
    return total


def _atom(piece: Any) -> Index:
    if isinstance(piece, str):
        return Index.of(piece)
    kind, first, second = piece
    return _OPERATIONS[kind](_index(first), _index(second))


_OPERATIONS: dict[str, Callable[[Index, Index], Index]] = {
    "floor": lambda a, b: a // b,
    "min": lambda a, b: a.minimum(b),
    "max": lambda a, b: a.maximum(b),
}
