"""Writes LLVM IR line by line: typed operands, constants, calls, labels."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...graph.dtype import DType

if TYPE_CHECKING:
    from .target import Machine

# Elements of a vector in registers. bf16 and f16 travel as their bits: LLVM then has no opinion on
# how to move, select or mask them, and conversions are exact (`convert.py`).
ELEMENTS = {
    "f64": "double", "f32": "float", "f16": "i16", "bf16": "i16", "bool": "i1",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8",
    "u64": "i64", "u32": "i32", "u16": "i16", "u8": "i8",
}  # fmt: skip
BITS = {"double": 64, "float": 32, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 1, "ptr": 64}
SUFFIXES = {"double": "f64", "float": "f32", "ptr": "p0", "bfloat": "bf16", "half": "f16"}


@dataclass(frozen=True)
class Operand:
    """A value in the text: its name or constant, LLVM element type, lanes (1: a scalar)."""

    text: str
    element: str
    width: int = 1

    @property
    def type(self) -> str:
        return self.element if self.width == 1 else f"<{self.width} x {self.element}>"

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


class Emitter:
    """The text of one function, and what it declares."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.block = "entry"
        self._counter = 0

    # ---- lines

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, element: str, width: int = 1) -> Operand:
        """A new name for the result of an instruction."""
        self._counter += 1
        name = f"%t{self._counter}"
        self.lines.append(f"  {name} = {text}")
        return Operand(name, element, width)

    def label(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    # ---- constants

    def constant(self, value: int | float | bool, like: Operand) -> Operand:
        """A number in the type of another operand."""
        return self.number(value, like.element, like.width)

    def number(self, value: int | float | bool, element: str, width: int = 1) -> Operand:
        text = number_text(value, element)
        return Operand(text if width == 1 else f"splat ({element} {text})", element, width)

    def vector(self, values: Sequence[int], element: str) -> Operand:
        """A vector of integer constants."""
        inside = ", ".join(f"{element} {value}" for value in values)
        return Operand(f"<{inside}>", element, len(values))

    # ---- operations

    def binary(self, name: str, a: Operand, b: Operand) -> Operand:
        return self.let(f"{name} {a.typed}, {b.text}", a.element, a.width)

    def compare(self, test: str, a: Operand, b: Operand) -> Operand:
        """`test` as in "fcmp olt" or "icmp ult"."""
        return self.let(f"{test} {a.typed}, {b.text}", "i1", a.width)

    def select(self, condition: Operand, a: Operand, b: Operand) -> Operand:
        return self.let(f"select {condition.typed}, {a.typed}, {b.typed}", a.element, a.width)

    def convert(self, name: str, a: Operand, element: str) -> Operand:
        """bitcast, zext, sitofp ... of every lane."""
        if a.element == element:
            return a
        kind = Operand("", element, a.width).type
        return self.let(f"{name} {a.typed} to {kind}", element, a.width)

    def bits(self, a: Operand) -> Operand:
        """A float as an integer of its size."""
        return self.convert("bitcast", a, f"i{BITS[a.element]}")

    def bits_of(self, value: float, like: Operand) -> Operand:
        """The bits of a float constant of the type of another operand, as an integer."""
        form = "<f" if like.element == "float" else "<d"
        number = int.from_bytes(struct.pack(form, value), "little")
        return self.number(number, f"i{BITS[like.element]}", like.width)

    def call(self, name: str, result: Operand | None, *args: Operand | str) -> Operand | None:
        """A call of a function; `result` gives the type (None: void). Texts are typed."""
        typed = [a if isinstance(a, str) else a.typed for a in args]
        kind = "void" if result is None else result.type
        parameters = ", ".join(map(_parameter, typed))
        self.declared[name] = f"declare {kind} @{name}({parameters})"
        text = f"call {kind} @{name}({', '.join(typed)})"
        if result is None:
            self.line(text)
            return None
        return self.let(text, result.element, result.width)

    def value(self, name: str, like: Operand, *args: Operand | str) -> Operand:
        """The result of a function, of the type of an operand."""
        result = self.call(name, like, *args)
        assert result is not None
        return result

    def intrinsic(self, name: str, *args: Operand | str) -> Operand:
        """An intrinsic overloaded on the type of its first operand, which its result also has."""
        first = args[0]
        assert isinstance(first, Operand)
        return self.value(f"llvm.{name}.{suffix(first)}", first, *args)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Operand:
        """a * b + c, in one rounding where the machine can."""
        if self.machine.is_x86 and not self.machine.has("fma"):
            return self.binary("fadd", self.binary("fmul", a, b), c)
        return self.intrinsic("fma", a, b, c)

    def at(self, pointer: Operand, offset: int) -> Operand:
        """A pointer some bytes further."""
        if not offset:
            return pointer
        return self.let(f"getelementptr i8, ptr {pointer.text}, i64 {offset}", "ptr")

    # ---- parts of vectors

    def pick(self, a: Operand, lanes: Sequence[int], b: Operand | None = None) -> Operand:
        """The lanes of a, or of a and b numbered through, in this order."""
        if a.width == 1:
            return self.broadcast(a, len(lanes))
        other = f"{a.type} {b.text if b else 'poison'}"
        if len(lanes) == 1:
            return self.let(f"extractelement {a.typed}, i64 {lanes[0]}", a.element)
        mask = _mask(lanes)
        return self.let(f"shufflevector {a.typed}, {other}, {mask}", a.element, len(lanes))

    def broadcast(self, a: Operand, width: int) -> Operand:
        """A scalar in every lane; what has the width already stays as it is."""
        if a.width == width:
            return a
        if not a.text.startswith("%"):
            return Operand(f"splat ({a.element} {a.text})", a.element, width)
        kind = f"<{width} x {a.element}>"
        one = self.let(f"insertelement {kind} poison, {a.typed}, i64 0", a.element, width)
        text = f"shufflevector {one.typed}, {kind} poison, <{width} x i32> zeroinitializer"
        return self.let(text, a.element, width)

    def join(self, parts: Sequence[Operand]) -> Operand:
        """Vectors of one width, a power of two of them, one after the other."""
        while len(parts) > 1:
            lanes = range(2 * parts[0].width)
            parts = [self._pair(a, b, lanes) for a, b in zip(parts[::2], parts[1::2])]
        return parts[0]

    def _pair(self, a: Operand, b: Operand, lanes: Sequence[int]) -> Operand:
        if a.width > 1:
            return self.pick(a, lanes, b)
        return self.pack((a, b))

    def pack(self, scalars: Sequence[Operand]) -> Operand:
        """Scalars as the lanes of one vector."""
        width, element = len(scalars), scalars[0].element
        if width == 1:
            return scalars[0]
        vector = Operand("poison", element, width)
        for lane, scalar in enumerate(scalars):
            vector = self.let(
                f"insertelement {vector.typed}, {scalar.typed}, i64 {lane}", element, width
            )
        return vector

    def in_pieces(
        self, width: int, piece: int, compute: Callable[..., Operand], *args: Operand
    ) -> Operand:
        """compute(...) on pieces of the operands, for an instruction of a fixed width. An operand
        that is n times as wide as the result is cut in pieces n times as wide."""
        if width == piece:
            return compute(*args)
        results = []
        for i in range(width // piece):
            cut = [_cut(a, width, piece, i) for a in args]
            results.append(compute(*(self.pick(a, lanes) for a, lanes in zip(args, cut))))
        return self.join(results)


def suffix(a: Operand) -> str:
    """How intrinsics name a type: v16f32, i64, p0."""
    name = SUFFIXES.get(a.element, a.element)
    return name if a.width == 1 else f"v{a.width}{name}"


def _cut(a: Operand, width: int, piece: int, number: int) -> range:
    size = a.width * piece // width
    return range(number * size, (number + 1) * size)


def _mask(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def _parameter(typed: str) -> str:
    """The type in a typed operand."""
    return typed[: typed.index(">") + 1] if typed[0] == "<" else typed.split()[0]


def number_text(value: int | float | bool, element: str) -> str:
    """A constant of an LLVM element type; floats as the bits of a double."""
    if element not in ("float", "double"):
        bits = BITS[element]
        wrapped = int(value) & ((1 << bits) - 1)
        return str(wrapped if bits == 1 or wrapped < 1 << (bits - 1) else wrapped - (1 << bits))
    number = float(value)
    if math.isnan(number):
        return "0x7FF8000000000000"
    if element == "float":
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def literal(text: str, dtype: DType) -> int | float:
    """The number that a literal `Val` stands for, as its element type keeps it."""
    if dtype.name in ("f32", "f64"):
        return float(text)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            rounded = np.float32(float(text)).astype(dtype.numpy)
        return int(rounded.view(np.uint16))
    number = _integer(text)
    return int(number != 0) if dtype.kind == "bool" else number


def _integer(text: str) -> int:
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return int(text)
    except ValueError:
        return int(float(text))
