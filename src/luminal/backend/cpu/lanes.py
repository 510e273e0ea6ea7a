"""Moving lanes: repeat, number, pack, shuffle, reduce across."""

from __future__ import annotations

from ...errors import Unsupported
from ...graph.dtype import DType
from ...graph.scalars import COMBINE
from ...kernel.program import Val
from .elementwise import apply
from .emitter import BITS, Emitter, Operand


def expand(e: Emitter, a: Operand, source: Val, result: Val) -> Operand:
    """Repeat over the lanes that the operand lacks."""
    if source.width == 1:
        return e.broadcast(a, result.width)
    if source.width == result.width:
        return a
    inner = result.lanes[len(result.lanes) - len(source.lanes) :]
    if inner == source.lanes and a.element != "i1":
        whole = _repeat_whole(e, a, result.width)
        if whole is not None:
            return whole
    return e.pick(a, _sources(source, result))


def _repeat_whole(e: Emitter, a: Operand, width: int) -> Operand | None:
    """A short vector as one integer, broadcast: a single load-and-broadcast for the machine."""
    bits = BITS[a.element] * a.width
    if bits > 64:
        return None
    one = e.let(f"bitcast {a.typed} to i{bits}", f"i{bits}")
    many = e.broadcast(one, width // a.width)
    result = Operand("", a.element, width)
    return e.let(f"bitcast {many.typed} to {result.type}", a.element, width)


def _sources(source: Val, result: Val) -> list[int]:
    """For each lane of the result, its position in the source."""
    strides, stride = {}, 1
    for axis, size in reversed(source.lanes):
        strides[axis] = stride
        stride *= size
    picks = [0]
    for axis, size in result.lanes:
        step = strides.get(axis, 0)
        picks = [p + i * step for p in picks for i in range(size)]
    return picks


def iota(e: Emitter, step: int, element: str, width: int) -> Operand:
    """step * lane number."""
    if width == 1:
        return e.number(0, element)
    wrapped = [e.number(i * step, element).text for i in range(width)]
    inside = ", ".join(f"{element} {text}" for text in wrapped)
    return Operand(f"<{inside}>", element, width)


def shuffle(e: Emitter, a: Operand, b: Operand | None, picks: tuple[int, ...]) -> Operand:
    """The lanes of a and b numbered through, in this order."""
    if b is None:
        return e.pick(a, picks)
    if a.width == b.width == 1:
        return e.pack([(a, b)[p] for p in picks])
    if a.width == b.width:
        return e.pick(a, picks, b)
    width = max(a.width, b.width)
    moved = [p if p < a.width else p - a.width + width for p in picks]
    return e.pick(_padded(e, a, width), moved, _padded(e, b, width))


def _padded(e: Emitter, a: Operand, width: int) -> Operand:
    if a.width == width:
        return a
    return e.pick(a, [min(i, a.width - 1) for i in range(width)])


def across(e: Emitter, reduction: str, dtype: DType, a: Operand) -> Operand:
    """All lanes combined, halves first: the same order on every machine."""
    if a.width & (a.width - 1):
        raise Unsupported(f"a reduction over {a.width} lanes: not a power of two")
    while a.width > 1:
        half = a.width // 2
        high = e.pick(a, range(half, a.width))
        a = apply(e, COMBINE[reduction], dtype, [e.pick(a, range(half)), high])
    return a
