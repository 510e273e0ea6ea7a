"""Loop program -> WGSL: no pointers, no narrow numbers, no narrow memory.

Elements of one and two bytes lie in words, several in each; numbers of less than 32 bits are
computed with in 32 and wrapped; f16 and bf16 travel as their bits. The shader finds buffers at
bindings 0, 1, ..., then a zero and the run-time sizes as i32, then a workspace. 64-bit numbers are
of the language's extensions `i64`, `u64` and `f64`.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ...errors import Unsupported
from ...graph.dtype import DType, f32, f64
from ...kernel.program import LINE, Program, Tile, Val
from .render import BINARY, kernel_name
from .wgsl_helpers import helper
from .writer import HALF, OF_BOOLS, Writer, half_bits, single, written

GROUP = 64  # workers of a group, each on units of its own
PRIVATE = 4096  # bytes of tiles that a worker has as variables
PLACES = {"group_id": "workgroup_id", "groups": "num_workgroups",
          "local_id": "local_invocation_id", "item_id": "global_invocation_id"}  # fmt: skip
CALLS = ("sqrt", "floor", "ceil", "trunc", "round", "fma")
CALLS_32 = (*CALLS, "exp2", "log2", "sin", "cos")


def words(dtype: DType) -> int:
    """Of an element of a worker's own tile."""
    return max(4, dtype.bytes) // 4


def own_words(program: Program) -> int:
    """Of a worker's own tiles together."""
    return sum(_length(t) * words(t.dtype) for t in program.tiles if t.space == "own")


def _length(tile: Tile) -> int:
    """A masked tail may reach a line further than the elements of an own tile."""
    return tile.elements + (LINE // tile.dtype.bytes if tile.space == "own" else 0)


def workspace_bytes(program: Program, workers: int) -> int:
    """Bytes that so many workers need for their tiles; 0 where those are variables."""
    size = 4 * own_words(program)
    return size * workers if size > PRIVATE else 0


def render(program: Program, lacks: Collection[str] = ()) -> str:
    """The text. Raises Unsupported for dtypes that are lacking, and for f64 where the language has
    no function."""
    return _Text(program, lacks).text()


class _Text(Writer):
    language, exchange = "webgpu", ""
    thread = "{kind}(local_id.x)"
    barrier = "workgroupBarrier(); storageBarrier();"

    def __init__(self, program: Program, lacks: Collection[str]) -> None:
        super().__init__(program)
        self.lacks, self.outer = lacks, list[str]()
        self.by_function: set[str] = set()

    def text(self) -> str:
        program, variables = self.program, list[str]()
        self._buffers()
        self._tiles(variables)
        threads = program.threads
        worker, workers = ("group_id.x", "groups.x") if threads else \
            ("item_id.x", f"groups.x * {GROUP}u")  # fmt: skip
        for number, size in enumerate(program.sizes):
            self.names[f"%d_{size}"] = f"d{number}"
            variables.append(f"  let d{number} = i64(sizes.d{number});")
        self.body(program.body, "  ")
        parameters = ", ".join(f"@builtin({kind}) {n}: vec3<u32>" for n, kind in PLACES.items())
        return "\n".join((
            "var<private> infinity: u32 = 0x7f800000u;  // a constant would be refused",
            "var<private> worker_number: i32;", *self.outer, *self.helpers.values(),
            f"@compute @workgroup_size({threads or GROUP})",
            f"fn {kernel_name(program)}({parameters}) {{",
            f"  worker_number = i32({worker});", f"  let all_workers = i32({workers});",
            *variables, *self.lines, "}", "",
        ))  # fmt: skip

    # ---- memory

    def _buffers(self) -> None:
        stored, program = written(self.program), self.program
        for number, buffer in enumerate(program.buffers):
            name = self.memory(buffer.name, buffer.dtype, f"b{number}")
            kind = self.type(buffer.dtype)
            if buffer.dtype.bytes < 4:
                kind = "atomic<u32>" if buffer.name in stored else "u32"
                self._packed(name, buffer.dtype, buffer.name in stored)
            self._binding(number, "storage, read_write", f"{name}: array<{kind}>")
        count = len(program.buffers)
        fields = "".join(f", d{number}: i32" for number in range(len(program.sizes)))
        self.outer.append(f"struct Sizes {{ zero: f32{fields} }}")
        self._binding(count, "uniform", "sizes: Sizes")
        self._binding(count + 1, "storage, read_write", "workspace: array<u32>")

    def _binding(self, number: int, space: str, text: str) -> None:
        self.outer.append(f"@group(0) @binding({number}) var<{space}> {text};")

    def _tiles(self, variables: list[str]) -> None:
        outside = workspace_bytes(self.program, 1) > 0
        if outside and self.program.threads:
            raise Unsupported("large tiles of each of the threads that share a unit in webgpu")
        at = 0
        for number, tile in enumerate(self.program.tiles):
            name = self.memory(tile.name, tile.dtype, f"t{number}")
            kind, length = self.type(tile.dtype), _length(tile)
            if tile.space == "shared" and tile.dtype.bytes < 4:
                count = -(-length * tile.dtype.bytes // 4)
                self.outer.append(f"var<workgroup> {name}: array<atomic<u32>, {count}>;")
                self._packed(name, tile.dtype, True)
            elif tile.space == "shared":
                self.outer.append(f"var<workgroup> {name}: array<{kind}, {length}>;")
            elif outside:
                self._apart(name, tile.dtype, at)
                at += length * words(tile.dtype)
            else:
                variables.append(f"  var {name}: array<{kind}, {length}>;")

    def _packed(self, name: str, dtype: DType, atomic: bool) -> None:
        """Several elements in a word: threads may store side by side."""
        bits, kind = 8 * dtype.bytes, self.type(dtype)
        word = f"{name}[u32(i) / {32 // bits}u]"
        shift = f"u32(i) % {32 // bits}u * {bits}u"
        read = f"atomicLoad(&{word})" if atomic else word
        whole = f"bitcast<i32>({read})" if dtype.kind == "int" else read
        part = f"extractBits({whole}, {shift}, {bits}u)"
        get = f"return {part}{' != 0u' if kind == 'bool' else ''};"
        put = (f"loop {{ let old = atomicLoad(&{word});"
               f" let next = insertBits(old, u32(v), {shift}, {bits}u);"
               f" if (atomicCompareExchangeWeak(&{word}, old, next).exchanged) {{ return; }} }}")
        self._functions(name, kind, get, put if atomic else "")

    def _apart(self, name: str, dtype: DType, at: int) -> None:
        """A worker's own tile, in the workspace."""
        kind, size = self.type(dtype), words(dtype)
        first = f"let p = worker_number * {own_words(self.program)} + {at} + i * {size};"
        if size == 2:
            get = f"bitcast<{kind}>(u64(workspace[p]) | (u64(workspace[p + 1]) << 32u))"
            put = ("let b = bitcast<u64>(v); workspace[p] = u32(b & 0xfffffffflu);"
                   " workspace[p + 1] = u32(b >> 32u);")  # fmt: skip
        elif kind == "bool":
            get, put = "workspace[p] != 0u", "workspace[p] = u32(v);"
        else:
            get, put = f"bitcast<{kind}>(workspace[p])", "workspace[p] = bitcast<u32>(v);"
        self._functions(name, kind, f"{first} return {get};", f"{first} {put}")

    def _functions(self, name: str, kind: str, get: str, put: str) -> None:
        self.by_function.add(name)
        self.outer.append(f"fn get_{name}(i: i32) -> {kind} {{ {get} }}")
        if put:
            self.outer.append(f"fn put_{name}(i: i32, v: {kind}) {{ {put} }}")

    def index(self, val: Val) -> str:
        return self.value(val) if val.dtype is None or val.dtype.bytes == 4 else \
            f"{int(val.name)}i" if val.literal else f"i32({self.value(val)})"  # fmt: skip

    def read(self, memory: str, place: str, dtype: DType) -> str:
        return f"get_{memory}({place})" if memory in self.by_function else f"{memory}[{place}]"

    def assigned(self, memory: str, place: str, value: str) -> str:
        return f"put_{memory}({place}, {value});" if memory in self.by_function else \
            f"{memory}[{place}] = {value};"  # fmt: skip

    def chosen(self, condition: str, a: str, b: str) -> str:
        return f"select({b}, {a}, {condition})"

    def nothing(self, dtype: DType) -> str:
        return self.number("0", dtype)

    # ---- types and numbers

    def type(self, dtype: DType | None) -> str:
        if dtype is None:
            return "i32"  # a position
        if dtype.name in self.lacks:
            raise Unsupported(f"this device of webgpu has no {dtype}")
        if dtype.bytes >= 4 or dtype.kind == "bool":
            return dtype.name
        return "i32" if dtype.kind == "int" else "u32"

    def number(self, text: str, dtype: DType) -> str:
        kind = self.type(dtype)
        if dtype.name in HALF:
            return f"{half_bits(text, dtype)}u"
        if dtype.is_float:
            return self._float(float(text), dtype)
        if dtype.kind == "bool":
            return "true" if text in ("1", "True") else "false"
        number = int(text)
        end = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[kind]
        if number == -(1 << (8 * dtype.bytes - 1)):
            return f"({number + 1}{end} - 1{end})"
        return f"{number}{end}" if number >= 0 else f"({number}{end})"

    def _float(self, number: float, dtype: DType) -> str:
        number = single(number) if dtype is f32 else number
        if math.isfinite(number):
            return f"({number!r}{'f' if dtype is f32 else 'lf'})"
        special = "bitcast<f32>(infinity | 0x400000u)" if math.isnan(number) else \
            f"{'-' if number < 0 else ''}bitcast<f32>(infinity)"  # fmt: skip
        return f"({special})" if dtype is f32 else f"f64({special})"

    # ---- statements

    def constant(self, kind: str, name: str, value: str) -> str:
        return f"let {name}: {kind} = {value};"

    def variable(self, kind: str, name: str, value: str) -> str:
        return f"var {name}: {kind} = {value};"

    def counted(self, kind: str, name: str, first: str, count: str, step: str) -> str:
        return (f"for (var {name} = {kind}({first}); {name} < {count};"
                f" {name} += {kind}({step})) {{")  # fmt: skip

    def shifted(self, value: str, amount: Val) -> str:
        return f"{value} >> {int(amount.name)}u"

    # ---- elementwise

    def call(self, op: str, dtype: DType) -> str:
        self.type(dtype)
        own = op not in CALLS and (dtype is f64 or op == "exp2")
        return self.helper(f"{op}_{dtype}") if own else op

    def helper_text(self, name: str) -> tuple[str, tuple[str, ...]]:
        return helper(name)

    def wrapped(self, text: str, dtype: DType) -> str:
        """A number in 32 bits, as one of fewer."""
        if dtype.bytes >= 4:
            return text
        return f"extractBits({text}, 0u, {8 * dtype.bytes}u)"

    def scalar(self, op: str, dtype: DType, args: list[str]) -> str:
        if op == "select":
            return self.chosen(*args)
        if dtype.kind == "bool":
            return self._boolean(op, args)
        if op == "recip":
            return f"{self.number('1.0', dtype)} / {args[0]}"
        if op == "less" and dtype.bytes == 8 and not dtype.is_float:
            # Mesa 22.3 compares a number that was widened with a constant, and is wrong
            zero = f"{dtype}(bitcast<u32>(sizes.zero))"
            args = [f"({a} + {zero})" if a.lstrip("(-")[0].isdigit() else a for a in args]
        if op in ("less", "equal"):
            return f"{args[0]} {BINARY[op]} {args[1]}"
        if op in ("add", "mul") and dtype.is_float:
            return self._exactly(op, dtype, args)
        if op in BINARY:
            return self.wrapped(f"{args[0]} {BINARY[op]} {args[1]}", dtype)
        if op in ("max", "min") and not dtype.is_float:
            return f"{op}({', '.join(args)})"
        if op in CALLS_32:
            return f"{self.call(op, dtype)}({', '.join(args)})"
        return self.wrapped(f"{self.helper(f'{op}_{self.type(dtype)}')}({', '.join(args)})", dtype)

    def _exactly(self, op: str, dtype: DType, args: list[str]) -> str:
        """Drivers take x * 0.0 for 0, x + 0.0 for x and x + x * -1.0 for 0, whatever x is: zeros
        come from memory, and a sign is a bit."""
        bits, sign = ("u32", "0x80000000u") if dtype is f32 else ("u64", "0x8000000000000000lu")
        zero, minus = self.number("0", dtype), self.number("-1", dtype)
        if op == "mul" and minus in args:
            (other,) = [a for a in args if a != minus] or [minus]
            return f"bitcast<{dtype}>(bitcast<{bits}>({other}) ^ {sign})"
        args = [f"{dtype}(sizes.zero)" if a == zero else a for a in args]
        return f"{args[0]} {BINARY[op]} {args[1]}"

    def _boolean(self, op: str, args: list[str]) -> str:
        if op in ("less", "xor"):
            return f"!{args[0]} & {args[1]}" if op == "less" else f"{args[0]} != {args[1]}"
        sign = OF_BOOLS.get(op) or BINARY.get(op)
        if sign is not None:
            return f"{args[0]} {sign} {args[1]}"
        inside = ", ".join(f"u32({a})" for a in args)
        return f"({self.helper(f'{op}_u32')}({inside}) & 255u) != 0u"

    def truth(self, a: str, source: DType) -> str:
        return f"({a} & 0x7fffu) != 0u" if source.name in HALF else \
            f"!({a} == {self.number('0', source)})"  # fmt: skip

    def converted(self, a: str, source: DType, result: DType) -> str:
        if source.kind == "bool":
            return self.chosen(a, self.number("1", result), self.number("0", result))
        return self.wrapped(f"{self.type(result)}({a})", result)
