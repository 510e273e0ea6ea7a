"""Loads and stores: contiguous, strided, anywhere, masked. A bool is a byte in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from operator import mul

from ...graph.dtype import DType
from .emitter import BITS, ELEMENTS, Emitter, Operand, suffix


def load(e: Emitter, dtype: DType, width: int, pointer: Operand, mask: Operand | None) -> Operand:
    """Contiguous lanes; masked ones are 0."""
    like = _stored(dtype, width)
    if mask is None:
        text = f"load {like.type}, ptr {pointer.text}, align {dtype.bytes}"
        value = e.let(text, like.element, width)
    elif width == 1:
        value = _load_one(e, like, pointer, mask, dtype.bytes)
    else:
        passing, name = f"{like.type} zeroinitializer", f"llvm.masked.load.{suffix(like)}.p0"
        source = f"ptr align {dtype.bytes} {pointer.text}"
        value = _result(e.call(name, like, source, mask, passing))
        apart = e.machine.has("avx512bw") and like.element != "i32"
        value = _by_itself(e, value) if apart else value
    return _from_memory(e, dtype, value)


def _by_itself(e: Emitter, value: Operand) -> Operand:
    """What was loaded under a mask, from where LLVM does not look at the load: it makes one
    instruction of this and a permutation under the same mask, and those of AVX-512 read what is
    masked out too. In whole registers, as assembly takes it. Not of 32 bits: products of such as 64
    bits are not selected then (LLVM 22 fails, and ends the process)."""
    each, width = BITS[value.element], value.width
    whole = next((n for n in (128, 256, 512) if n >= each * width), 512) // each
    count = 1 << (-(-width // whole) - 1).bit_length()
    if whole * count != width:
        value = e.pick(value, [min(i, width - 1) for i in range(whole * count)])
    parts = [e.pick(value, range(whole * n, whole * (n + 1))) if count > 1 else value
             for n in range(count)]  # fmt: skip
    same = [e.let(f'call {p.type} asm "", "=v,0"({p.typed})', p.element, p.width) for p in parts]
    joined = e.join(same)
    return e.pick(joined, range(width)) if joined.width > width else joined


def gather(
    e: Emitter, dtype: DType, pointer: Operand, offsets: Operand, mask: Operand | None
) -> Operand:
    """Lanes so many elements further (a vector); masked ones are 0."""
    width = offsets.width
    if width == 1:
        return load(e, dtype, 1, further(e, dtype, pointer, offsets), mask)
    like, known = _stored(dtype, width), _known(offsets)
    if known and mask is None:
        return _from_memory(e, dtype, _one_by_one(e, like, dtype, pointer, known))
    addresses = f"<{width} x ptr> align {dtype.bytes} {further(e, dtype, pointer, offsets).text}"
    every = mask or e.number(1, "i1", width)
    name = f"llvm.masked.gather.{suffix(like)}.v{width}p0"
    value = e.call(name, like, addresses, every, f"{like.type} zeroinitializer")
    return _from_memory(e, dtype, _result(value))


def _one_by_one(
    e: Emitter, like: Operand, dtype: DType, pointer: Operand, known: list[int]
) -> Operand:
    """Loads put side by side: a gather instruction takes twice as long on Zen 5, and 5 times where
    its lines come from the last cache."""
    value = Operand("poison", like.element, like.width)
    for lane, offset in enumerate(known):
        at = further(e, dtype, pointer, e.number(offset, "i64"))
        text = f"load {like.element}, ptr {at.text}, align {dtype.bytes}"
        text = f"insertelement {value.typed}, {e.let(text, like.element).typed}, i64 {lane}"
        value = e.let(text, like.element, like.width)
    return value


def store(e: Emitter, dtype: DType, value: Operand, pointer: Operand, mask: Operand | None) -> None:
    """Contiguous lanes; masked ones are not written.

    LLVM stores the one lane that a mask known to it leaves with all bytes that it had before a
    truncation, over the neighbour: masks of narrow elements also ask whether there are threads.
    """
    value = _to_memory(e, dtype, value)
    if mask is None:
        e.line(f"store {value.typed}, ptr {pointer.text}, align {dtype.bytes}")
    elif value.width == 1:
        _store_one(e, value, pointer, mask, dtype.bytes)
    else:
        target = f"ptr align {dtype.bytes} {pointer.text}"
        if dtype.bytes < 4:
            threads = e.let("icmp sgt i64 %nt, 0", "i1")
            mask = e.binary("and", mask, e.broadcast(threads, mask.width))
        e.call(f"llvm.masked.store.{suffix(value)}.p0", None, value, target, mask)


def scatter(
    e: Emitter,
    dtype: DType,
    value: Operand,
    pointer: Operand,
    offsets: Operand,
    mask: Operand | None,
) -> None:
    """Lanes so many elements further, in the order of the lanes: the last one wins."""
    if value.width == 1:
        return store(e, dtype, value, further(e, dtype, pointer, offsets), mask)
    value = _to_memory(e, dtype, value)
    width = value.width
    addresses = f"<{width} x ptr> align {dtype.bytes} {further(e, dtype, pointer, offsets).text}"
    every = mask or e.number(1, "i1", width)
    e.call(f"llvm.masked.scatter.{suffix(value)}.v{width}p0", None, value, addresses, every)


def strides(e: Emitter, steps: Sequence[int], sizes: Sequence[int]) -> Operand:
    """Lanes that are a constant stride apart along each of the axes that they make up."""
    apart = [sum(map(mul, steps, place)) for place in product(*map(range, sizes))]
    return e.vector(apart, "i64") if len(apart) > 1 else e.number(0, "i64")


def further(e: Emitter, dtype: DType, pointer: Operand, elements: Operand) -> Operand:
    """The address, or those of the lanes, so many elements further."""
    elements = _narrow(elements)
    text = f"getelementptr {_stored(dtype, 1).type}, ptr {pointer.text}, {elements.typed}"
    return e.let(text, "ptr", elements.width)


def _narrow(elements: Operand) -> Operand:
    """Constants in 32 bits where the bytes fit: gathers and scatters then serve twice as many."""
    numbers = _known(elements)
    if not numbers or max(map(abs, numbers)) >= 1 << 28:
        return elements
    inside = ", ".join(f"i32 {number}" for number in numbers)
    return Operand(f"<{inside}>", "i32", elements.width)


def _known(elements: Operand) -> list[int]:
    """The lanes of a constant vector; none of another one."""
    if elements.element != "i64" or not elements.text.startswith("<i64"):
        return []
    return [int(part.split()[1]) for part in elements.text[1:-1].split(",")]


def _load_one(e: Emitter, like: Operand, pointer: Operand, mask: Operand, align: int) -> Operand:
    """A scalar under a condition: a branch, since the address may be outside all memory."""
    taken, done, before = e.label("take"), e.label("taken"), e.block
    e.line(f"br i1 {mask.text}, label %{taken}, label %{done}")
    e.start(taken)
    value = e.let(f"load {like.type}, ptr {pointer.text}, align {align}", like.element)
    e.line(f"br label %{done}")
    e.start(done)
    zero = e.constant(0, like)
    text = f"phi {like.type} [{value.text}, %{taken}], [{zero.text}, %{before}]"
    return e.let(text, like.element)


def _store_one(e: Emitter, value: Operand, pointer: Operand, mask: Operand, align: int) -> None:
    put, done = e.label("put"), e.label("done")
    e.line(f"br i1 {mask.text}, label %{put}, label %{done}")
    e.start(put)
    e.line(f"store {value.typed}, ptr {pointer.text}, align {align}")
    e.line(f"br label %{done}")
    e.start(done)


def _stored(dtype: DType, width: int) -> Operand:
    return Operand("", "i8" if dtype.kind == "bool" else ELEMENTS[dtype.name], width)


def _from_memory(e: Emitter, dtype: DType, value: Operand) -> Operand:
    if dtype.kind != "bool":
        return value
    return e.compare("icmp ne", value, e.constant(0, value))


def _to_memory(e: Emitter, dtype: DType, value: Operand) -> Operand:
    return e.convert("zext", value, "i8") if dtype.kind == "bool" else value


def _result(value: Operand | None) -> Operand:
    assert value is not None
    return value
