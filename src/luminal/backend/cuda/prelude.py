"""Device functions of generated text: what a GPU's instructions mean, in NumPy, and how CUDA says
them. The simulator has bodies of its own under the same names (`simulated/instructions.hpp` and
`staged.hpp`).

A matrix lies in the 32-bit registers of a warp's 32 lanes, `per` elements in each. For
`mma.sync.m16n8k(8 per)` (PTX ISA, "Matrix Fragments for mma"): register r of lane l has, with
g = l / 4 and t = l mod 4,

    of A  row g + 8 (r mod 2), columns t per + 4 per (r / 2) + 0 .. per - 1
    of B  rows t per + 4 per r + 0 .. per - 1, column g
    of C  row g + 8 (r / 2), column 2 t + r mod 2

`wgmma.mma_async.m64nNk16` is executed by four warps, of which warp w has rows 16 w and on: of C as
above, r mod 4 in columns 8 (r / 4) and on. A and the columns of B lie in shared memory, rows of 128
bytes in 128-byte swizzle (PTX ISA, "Asynchronous Warpgroup Level Matrix"): see `Tile.row`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ...graph.dtype import DType, bf16, f16, f32, i8, i32
from ...kernel.target import Fragment, MatrixInstruction
from .. import text

LANES = 32
GROUP, IN_GROUP = np.arange(LANES) // 4, np.arange(LANES) % 4


@dataclass(frozen=True)
class Function:
    """text: CUDA C++, where u32 and the like are known. specification: NumPy arrays of all lanes,
    lanes first -> what it returns or leaves in its first argument. arch: the first that has it.
    needs: functions that it is made of, and nothing else: the simulator takes its text."""

    name: str
    text: str
    specification: Callable[..., Any]
    arch: str = "sm_80"
    needs: tuple[str, ...] = ()


# ---- what they mean


def fragments(per: int) -> tuple[Fragment, Fragment, Fragment]:
    """Of C, A and the columns of B, with so many elements in 32 bits."""
    a = tuple((8 * (r % 2), 4 * per * (r // 2) + e) for r in range(4) for e in range(per))
    b = tuple((0, 4 * per * r + e) for r in range(2) for e in range(per))
    c = tuple((8 * (r // 2), r % 2) for r in range(4))
    near = (4, 8), (0, 1), (per, 0)
    return Fragment((4, 8), (0, 1), (2, 0), c), Fragment(*near, a), Fragment(*near, b)


def instruction(
    function: str, dtype: DType, accumulator: DType, cycles: float, down: int, across: int,
    beside: int = 1,
) -> MatrixInstruction:  # fmt: skip
    """One of `FUNCTIONS` as schedules see it: by so many warps below and beside each other, each
    with as many products side by side. Both operands are summed up in another order, in which the
    elements of a thread lie side by side, and so do its columns of several products: as wide as the
    sum, the accumulator lies among threads as a first operand does."""
    per, warps = 4 // dtype.bytes, (across, down)

    def placed(way: Fragment, rows: tuple[int, int], columns: tuple[int, int]) -> Fragment:
        return Fragment((4, 8, *warps), way.rows + rows, way.columns + columns, way.elements)

    def near(way: Fragment) -> Fragment:
        elements = tuple((r, k // (4 * per) * per + k % (4 * per)) for r, k in way.elements)
        return replace(way, columns=(2 * per, 0), elements=elements)

    c, a, b = fragments(per)
    a, b, many = near(a), near(b), range(beside)
    sums = tuple((r, beside * n + m) for m in many for r, n in c.elements)
    c = replace(c, columns=(2 * beside, 0), elements=sums)
    b = replace(b, rows=(0, beside), elements=tuple((m, k) for m in many for _, k in b.elements))
    wide = 8 * beside
    ways = (placed(c, (0, 16), (wide, 0)), placed(a, (0, 16), (0, 0)),
            placed(b, (wide, 0), (0, 0)))  # fmt: skip
    return MatrixInstruction(
        f"{function}_{down}x{across}" + f"_{beside}" * (beside > 1), 8 * per, dtype, dtype,
        accumulator, cycles, rows=16 * down, columns=wide * across, fragments=ways,
        part=f"{function}_1x1", function=function,
    )  # fmt: skip


def product(dtype: Any, wide: Any) -> Callable[..., np.ndarray]:
    """(c, a, b) -> c + A B: registers (32, 4), and (32, 4) and (32, 2) as u32."""

    def specification(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        given = elements(a, dtype), elements(b, dtype)
        out, *ways = fragments(given[0].shape[2])
        sides = []
        for registers, way in zip(given, ways):
            side = np.zeros((16, 8 * registers.shape[2]), wide)
            side[way.places()] = registers.reshape(LANES, -1).astype(wide)
            sides.append(side)
        return c + (sides[0] @ sides[1].T)[out.places()].astype(c.dtype)

    return specification


def elements(registers: np.ndarray, dtype: Any) -> np.ndarray:
    """(lanes, n) u32 -> (lanes, n, per). dtype "tf32": f32 without its last 13 bits."""
    if dtype == "tf32":
        return (registers & np.uint32(0xFFFFE000)).view(np.float32)[..., None]
    words: np.ndarray = np.ascontiguousarray(registers).view(dtype)
    return words.reshape(*registers.shape, -1)


def matrices(count: int, turned: bool) -> Callable[..., np.ndarray]:
    """(memory u16, starts) -> registers (32, count) u32. Lane 8 i + r says where row r of matrix i
    starts, eight elements; lane l receives elements 2 t, 2 t + 1 of row g, or of column g."""

    def specification(memory: np.ndarray, starts: np.ndarray) -> np.ndarray:
        made = np.zeros((LANES, count, 2), np.uint16)
        for i in range(count):
            rows = np.stack([memory[s : s + 8] for s in starts[8 * i : 8 * i + 8]])
            rows = rows.T if turned else rows
            for e in range(2):
                made[:, i, e] = rows[GROUP, 2 * IN_GROUP + e]
        return made.view(np.uint32)[..., 0]

    return specification


def staged_product(dtype: Any) -> Callable[..., np.ndarray]:
    """(c, a, b) -> c + A B: c (128, n), tiles a and b of 64 and 2 n rows, 64 elements in each."""

    def specification(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (unswizzled(side.view(dtype)).astype(c.dtype) for side in (a, b))
        places = staged_instruction("", bf16, 1, len(b)).fragments[0].places()
        return c + (a @ b.T)[places]

    return specification


def streamed_product(dtype: Any, turned: bool) -> Callable[..., np.ndarray]:
    """(c, a, b) -> c + A B: registers (threads, 32), and (threads, 16) of u32; the tile has 64 rows
    of 64 elements, of the columns of B, or turned of B."""

    def specification(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out, first, _ = streamed_instruction("", bf16, len(c) // 128, turned).fragments
        rows, tile = np.zeros((len(c) // 2, 64), c.dtype), unswizzled(b.view(dtype))
        rows[first.places()] = elements(a, dtype).reshape(len(a), -1).astype(c.dtype)
        return c + (rows @ (tile if turned else tile.T).astype(c.dtype))[out.places()]

    return specification


def unchanged(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """What waits or orders computes nothing: what it waits for is there afterwards."""
    return arrays


def unswizzled(tile: np.ndarray) -> np.ndarray:
    """(rows, 64) elements of two bytes as rows."""
    blocks, rows = tile.reshape(-1, 8, 8), np.arange(tile.size // 64)[:, None]
    return blocks[rows, np.arange(8) ^ rows % 8].reshape(-1, 64)


def staged_instruction(function: str, dtype: DType, down: int, columns: int) -> MatrixInstruction:
    """One of `FUNCTIONS`, by so many warpgroups below each other."""
    threads = 128 * down
    ways = _sums(down, columns), brought(64 * down, threads), brought(columns, threads)
    return MatrixInstruction(
        f"{function}_{down}", 64, dtype, dtype, f32, STAGED_CYCLES, rows=64 * down,
        columns=columns, fragments=ways, part=f"{function}_1", function=function, staged=True,
    )  # fmt: skip


def streamed_instruction(
    function: str, dtype: DType, down: int, turned: bool
) -> MatrixInstruction:
    """As `staged_instruction` with 64 columns, but for a, which lies as the sums do: it may have
    been such a moment ago."""
    threads, c = 128 * down, _sums(down, 64)
    steps = ((8 * (r % 2), 16 * k + 8 * (r // 2)) for k in range(4) for r in range(4))
    a = replace(c, elements=tuple((row, column + e) for row, column in steps for e in (0, 1)))
    b = brought(64, threads)
    if turned:
        elements = tuple((e, line) for line, e in b.elements)
        b = Fragment(b.digits, b.columns, b.rows, elements)
    function += "_turned" * turned
    return MatrixInstruction(
        f"{function}_{down}", 64, dtype, dtype, f32, STAGED_CYCLES, rows=64 * down, columns=64,
        fragments=(c, a, b), part=f"{function}_1", function=function, streamed=True, turned=turned,
    )  # fmt: skip


def _sums(down: int, columns: int) -> Fragment:
    """Of so many warpgroups below each other."""
    sums = tuple((8 * h, 8 * j + e) for j in range(columns // 8) for h in (0, 1) for e in (0, 1))
    return Fragment((4, 8, 4, down), (0, 1, 16, 64), (2, 0, 0, 0), sums)


def brought(rows: int, threads: int) -> Fragment:
    """Which elements of a tile's rows each thread copies: 16 bytes side by side."""
    lines = range(0, rows, threads // 8)
    elements = tuple((line, e) for line in lines for e in range(8))
    return Fragment((8, threads // 8), (0, 1), (8, 0), elements)


def exchanged(values: np.ndarray, bit: int) -> np.ndarray:
    """The values of the lanes whose numbers differ in a bit."""
    return values[np.arange(LANES) ^ bit]


def copied(to: np.ndarray, source: np.ndarray, count: int) -> np.ndarray:
    """16 bytes, of which `count` are read and the others zero; seen from the wait on that leaves
    fewer groups open than were committed since."""
    made = to.copy()
    made[:count], made[count:] = source[:count], 0
    return made


# ---- how CUDA says them


def _product(name: str, shape: str, types: str, accumulator: str) -> str:
    letter, kind = ("r", "i32") if accumulator == "s32" else ("f", "f32")
    kinds = f"{accumulator}.{types}.{types}.{accumulator}"
    c = ", ".join(f'"+{letter}"(c[{n}])' for n in range(4))
    ab = ", ".join(f'"r"({m}[{n}])' for m, count in (("a", 4), ("b", 2)) for n in range(count))
    return (
        f"void {name}({kind} (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {{\n"
        f'  asm volatile("mma.sync.aligned.{shape}.row.col.{kinds} '
        '{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
        f"    : {c} : {ab}); }}"
    )


def _matrices(name: str, count: int, turned: bool) -> str:
    out = ", ".join(f"%{n}" for n in range(count))
    registers = ", ".join(f'"=r"(r[{n}])' for n in range(count))
    return (
        f"void {name}(u32 (&r)[{count}], buffer<u16> row) {{\n"
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{".trans" * turned}.shared.b16 '
        f'{{{out}}}, [%{count}];"\n'
        f'    : {registers} : "r"((u32)__cvta_generic_to_shared(row)) : "memory"); }}'
    )


_COPY = """template <class T>
__device__ inline void copy_16(buffer<T> to, buffer<T> from, int count) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(count) : "memory"); }"""
_COMMIT = 'void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }'
_WAIT = """template <int N> __device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }"""


_FENCE = 'void copies_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }'
_PRODUCTS_WAIT = """template <int N> __device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }"""
# Whoever reads the sums afterwards reads them from here: ptxas moves conversions of them, and movs,
# up over the wait. No sum is -0, which an addition of 0 would change.
_PRODUCTS_DONE = """template <int N> __device__ inline void products_done(f32 (&c)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int n = 0; n < N; n++)
    asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(c[n]) :: "memory"); }"""


def _staged(name: str, types: str, columns: int) -> str:
    """Four products along a row; a descriptor says where a tile begins, that 8 rows of it are 1024
    bytes, and how it is swizzled, and counts in 16 bytes."""
    count = columns // 2
    kinds, c = f"f32.{types}.{types}", ", ".join(f'"+f"(c[{n}])' for n in range(count))
    out = ", ".join(f"%{n}" for n in range(count))
    steps = "\n".join(
        f'  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.{kinds} '
        f'{{{out}}}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"\n    : {c} : '
        f'"l"(of_a + {2 * k}), "l"(of_b + {2 * k}));'
        for k in range(4)
    )  # fmt: skip
    return (
        f"void {name}(f32 (&c)[{count}], buffer<u16> a, buffer<u16> b) {{\n"
        "  const u64 rows = (u64)1 << 62 | (u64)64 << 32 | (u64)1 << 16;\n"
        "  const u64 of_a = rows | ((u32)__cvta_generic_to_shared(a) & 0x3ffff) >> 4;\n"
        "  const u64 of_b = rows | ((u32)__cvta_generic_to_shared(b) & 0x3ffff) >> 4;\n"
        '  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n' + steps +
        '\n  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }'
    )  # fmt: skip


def _streamed(name: str, product: str, turned: bool) -> str:
    """Of each 16 by 16 elements a load makes second operands of two products."""
    (down, beside), end = "kn" if turned else "nk", "_turned" * turned
    near, far = "lane / 8 % 2", "lane / 16"
    rows, blocks = (near, far) if turned else (far, near)
    return (
        f"void {name}(f32 (&c)[32], const u32 (&a)[16], buffer<u16> b) {{\n"
        f"  const i32 lane = threadIdx.x % 32, row = lane % 8, rows = 64 * (8 * ({rows}) + row);\n"
        "  #pragma unroll\n  for (i32 k = 0; k < 4; k++) {\n"
        "    const u32 first[4] = {a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]};\n"
        "    #pragma unroll\n    for (i32 n = 0; n < 4; n++) {\n"
        f"      const i32 block = 2 * {beside} + {blocks};\n      u32 r[4];\n"
        f"      ldmatrix_4{end}(r, b + (rows + 8 * (block ^ row) + 1024 * {down}));\n"
        "      #pragma unroll\n      for (i32 m = 0; m < 2; m++) {\n"
        "        const i32 at = 8 * n + 4 * m;\n"
        "        const u32 second[2] = {r[2 * m], r[2 * m + 1]};\n"
        "        f32 sums[4] = {c[at], c[at + 1], c[at + 2], c[at + 3]};\n"
        f"        {product}(sums, first, second);\n"
        "        for (i32 e = 0; e < 4; e++) c[at + e] = sums[e]; } } } }"
    )  # fmt: skip


_EXCHANGE = """template <class T> __device__ inline T lane_xor(T value, int n)
{ return __shfl_xor_sync(0xffffffffu, value, n); }"""


def _functions() -> Iterable[Function]:
    for name, shape, types, accumulator, dtype, wide in (
        ("mma_bf16", "m16n8k16", "bf16", "f32", ml_dtypes.bfloat16, np.float32),
        ("mma_f16", "m16n8k16", "f16", "f32", np.float16, np.float32),
        ("mma_tf32", "m16n8k8", "tf32", "f32", "tf32", np.float32),
        ("mma_s8", "m16n8k32", "s8", "s32", np.int8, np.int32),
        ("mma_e4m3", "m16n8k32", "e4m3", "f32", ml_dtypes.float8_e4m3fn, np.float32),
        ("mma_e5m2", "m16n8k32", "e5m2", "f32", ml_dtypes.float8_e5m2, np.float32),
    ):
        arch = "sm_89" if types.startswith("e") else "sm_80"
        text = _product(name, shape, types, accumulator)
        yield Function(name, text, product(dtype, wide), arch)
    for count in (1, 2, 4):
        for turned in (False, True):
            name = f"ldmatrix_{count}" + "_turned" * turned
            yield Function(name, _matrices(name, count, turned), matrices(count, turned), "sm_75")
    yield Function("copy_16", _COPY, copied)
    yield Function("copies_commit", _COMMIT, copied)
    yield Function("copies_wait", _WAIT, copied)
    for types, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        for n in COLUMNS:
            name = f"wgmma_{types}_{n}"
            yield Function(name, _staged(name, types, n), staged_product(dtype), "sm_90a")
        for turned in (False, True):
            name, end = f"mma_{types}_rows" + "_turned" * turned, "_turned" * turned
            made = _streamed(name, f"mma_{types}", turned)
            needs = (f"mma_{types}", "ldmatrix_4" + end)
            yield Function(name, made, streamed_product(dtype, turned), needs=needs)
    yield Function("copies_fence", _FENCE, unchanged, "sm_90a")
    yield Function("products_wait", _PRODUCTS_WAIT, unchanged, "sm_90a")
    yield Function("products_done", _PRODUCTS_DONE, unchanged, "sm_90a")
    yield Function("lane_xor", _EXCHANGE, exchanged, "sm_75")


COLUMNS = (64, 128, 256)  # of a product of tiles
FUNCTIONS = {made.name: made for made in _functions()}


def text_of(names: Iterable[str]) -> str:
    """The text of these functions, to stand before what calls them."""
    made = texts_of(names).values()
    return "".join(made)


def texts_of(names: Iterable[str]) -> dict[str, str]:
    """By name, with those that they need before them."""
    found = dict[str, str]()
    for function in (FUNCTIONS[name] for name in names):
        made, own = function.text, bool(function.needs)
        made = made if made.startswith("template") else f"static __device__ inline {made}"
        made = f"{made}\n" if own else f"#ifndef LUMINAL_SIMULATED\n{made}\n#endif\n"
        found |= {**texts_of(function.needs), function.name: made}
    return found


CYCLES = 4.0  # of 32 products, whose operands come late: 2,048 in 6.5 at the most
SHAPES = ((1, 1), (2, 2), (2, 4), (4, 1, 2), (4, 1, 4), (1, 1, 2), (1, 1, 4))
INSTRUCTIONS = tuple(
    instruction(function, dtype, accumulator, CYCLES, *shape)
    for function, dtype, accumulator in (
        ("mma_bf16", bf16, f32), ("mma_f16", f16, f32), ("mma_s8", i8, i32),
    )
    for shape in SHAPES
)  # fmt: skip
STAGED_CYCLES = 4.0  # of 64 products: the tensor cores' peak
STAGED = tuple(
    staged_instruction(f"wgmma_{dtype}_{columns}", dtype, down, columns)
    for dtype in (bf16, f16) for columns in COLUMNS for down in (1, 2)
)  # fmt: skip
STREAMED = tuple(
    streamed_instruction(f"mma_{dtype}_rows", dtype, down, turned)
    for dtype in (bf16, f16) for down in (2, 1) for turned in (False, True)
)
DIALECT = replace(
    text.CUDA,
    header=text.CUDA.header + text_of(["lane_xor"]),
    matrices={i.part: (i.function, texts_of([i.function]))
              for i in (*INSTRUCTIONS, *STAGED, *STREAMED)},
    staging={
        op: (form, texts_of(re.findall(r"\w+_\w+", form)))
        for op, form in (
            ("copy", "copy_16({to}, {source}, {bytes});"), ("commit", "copies_commit();"),
            ("await", "copies_wait<{n}>();"), ("fence", "copies_fence();"),
            ("settle", "products_wait<{n}>();"), ("settled", "products_done({value});"),
        )
    },
)  # fmt: skip


def instructions_of(arch: str) -> tuple[MatrixInstruction, ...]:
    """Those that an architecture ("sm_90a") has."""
    had = int(arch.removeprefix("sm_").rstrip("af"))
    return INSTRUCTIONS + STREAMED + STAGED * (arch == "sm_90a") if had >= 80 else ()
