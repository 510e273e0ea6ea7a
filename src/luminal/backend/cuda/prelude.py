"""Device functions of generated text: what a GPU's instructions mean, in NumPy, and how CUDA says
them. The simulator has bodies of its own under the same names (`simulated/instructions.hpp` and
`staged.hpp`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ...graph.dtype import bf16, f32
from .. import text
from .matrices import (
    COLUMNS,
    INSTRUCTIONS,
    STAGED,
    STREAMED,
    STREAMED_BY_WGMMA,
    TILED,
    fragments,
    staged_instruction,
    streamed_instruction,
    tiled_instruction,
)

LANES = 32
GROUP, IN_GROUP = np.arange(LANES) // 4, np.arange(LANES) % 4


@dataclass(frozen=True)
class Function:
    """text: CUDA C++, where u32 and the like are known. specification: NumPy arrays of all lanes,
    lanes first -> what it returns or leaves in its first argument. arch: the first that has it.
    needs: functions that it calls. own: the simulator has one, too; else it takes this text."""

    name: str
    text: str
    specification: Callable[..., Any]
    arch: str = "sm_80"
    needs: tuple[str, ...] = ()
    own: bool = True


# ---- what they mean


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


def staged_product(dtype: Any, turned: bool = False) -> Callable[..., np.ndarray]:
    """(c, a, b) -> c + A B: c (128, n), tiles a and b of 64 and 2 n rows, 64 elements in each;
    turned: rows of b are 64 for each 64 columns of B."""

    def specification(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (unswizzled(side.view(dtype)).astype(c.dtype) for side in (a, b))
        b = b.reshape(-1, 64, 64).swapaxes(1, 2).reshape(-1, 64) if turned else b
        places = staged_instruction("", bf16, 1, len(b)).fragments[0].places()
        return c + (a @ b.T)[places]

    return specification


def tiled_product(
    dtype: Any, rows: int, columns: int, turned: bool
) -> Callable[..., np.ndarray]:
    """(c, a, b) -> c + A B of a warp: c (32, rows columns / 32), tiles with rows of 128 bytes."""

    def specification(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (unswizzled(side.view(dtype)).astype(c.dtype) for side in (a, b))
        places = tiled_instruction("", bf16, f32, (rows, columns)).fragments[0].places()
        return c + (a @ (b if turned else b.T))[places]

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
    """Rows of 128 bytes in their order."""
    blocks = tile.reshape(-1, 8, 16 // tile.itemsize)
    rows = np.arange(len(blocks))[:, None]
    return blocks[rows, np.arange(8) ^ rows % 8].reshape(len(blocks), -1)


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


_FENCE = """void copies_fence() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}"""
_PRODUCTS_WAIT = """template <int N> __device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }"""
# Whoever reads the sums afterwards reads them from here: ptxas moves conversions of them, and movs,
# up over the wait. No sum is -0, which an addition of 0 would change.
_PRODUCTS_DONE = """template <int N> __device__ inline void products_done(f32 (&c)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int n = 0; n < N; n++)
    asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(c[n]) :: "memory"); }"""


def _staged(name: str, types: str, columns: int, turned: bool) -> str:
    """Four products along a row, of b turned over down 16 rows each; a descriptor says where a tile
    begins, that 8 rows of it are 1024 bytes, and 64 of them, which hold 64 columns, 8192, and how
    it is swizzled, and counts in 16 bytes."""
    count = columns // 2
    kinds, c = f"f32.{types}.{types}", ", ".join(f'"+f"(c[{n}])' for n in range(count))
    out = ", ".join(f"%{n}" for n in range(count))
    steps = "\n".join(
        f'  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.{kinds} '
        f'{{{out}}}, %{count}, %{count + 1}, 1, 1, 1, 0, {int(turned)};"\n    : {c} : '
        f'"l"(of_a + {2 * k}), "l"(of_b + {(128 if turned else 2) * k}));'
        for k in range(4)
    )  # fmt: skip
    return (
        f"void {name}(f32 (&c)[{count}], buffer<u16> a, buffer<u16> b) {{\n"
        "  const u64 rows = (u64)1 << 62 | (u64)64 << 32, near = (u64)1 << 16;\n"
        "  const u64 of_a = rows | near | ((u32)__cvta_generic_to_shared(a) & 0x3ffff) >> 4;\n"
        f"  const u64 of_b = rows | {'(u64)512 << 16' if turned else 'near'}\n"
        "    | ((u32)__cvta_generic_to_shared(b) & 0x3ffff) >> 4;\n"
        '  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n' + steps +
        '\n  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }'
    )  # fmt: skip


def _by_loads(
    name: str, product: str, rows: int, columns: int, turned: bool, streamed: bool = False
) -> str:
    """Of 16 rows a load makes a first operand, of 16 columns second operands of two products.
    streamed: registers have the first operands of 16 rows."""
    down, count = rows // 16, rows * columns // 32
    kind, of = ("i32", "i8") if "s8" in product else ("f32", "u16")
    near, far, end = "lane / 8 % 2", "lane / 16", "_turned" * turned
    second = (f"16 * k + 8 * ({near})", f"2 * n + {far}") if turned else (
        f"16 * n + 8 * ({far})", f"2 * k + {near}")
    given = f"buffer<{of}> in_a, buffer<{of}> in_b"
    first = (
        f"    u32 first[{down}][4];\n    #pragma unroll\n    for (i32 i = 0; i < {down}; i++)\n"
        "      ldmatrix_4(first[i], (buffer<u16>)in_a + (64 * (16 * i + lane % 16)"
        " + 8 * (2 * k + lane / 16 ^ row)));\n"
    )
    if streamed:
        given = "const u32 (&a)[16], buffer<u16> in_b, bool on = false"
        words = ", ".join(f"a[4 * k + {n}]" for n in range(4))
        first = f"    const u32 first[1][4] = {{{{{words}}}}};\n"
    return (
        f"void {name}({kind} (&c)[{count}], {given}) {{\n"
        "  const buffer<u16> b = (buffer<u16>)in_b;\n"
        "  const i32 lane = threadIdx.x % 32, row = lane % 8;\n"
        "  #pragma unroll\n  for (i32 k = 0; k < 4; k++) {\n" + first +
        f"    #pragma unroll\n    for (i32 n = 0; n < {columns // 16}; n++) {{\n      u32 r[4];\n"
        f"      ldmatrix_4{end}(r, b + (64 * ({second[0]} + row) + 8 * ({second[1]} ^ row)));\n"
        "      #pragma unroll\n      for (i32 m = 0; m < 2; m++) {\n"
        "        const u32 second[2] = {r[2 * m], r[2 * m + 1]};\n"
        f"        #pragma unroll\n        for (i32 i = 0; i < {down}; i++) {{\n"
        f"          const i32 at = 4 * ({columns // 8} * i + 2 * n + m);\n"
        f"          {kind} sums[4] = {{c[at], c[at + 1], c[at + 2], c[at + 3]}};\n"
        f"          {product}(sums, first[i], second);\n"
        "          for (i32 e = 0; e < 4; e++) c[at + e] = sums[e]; } } } } }"
    )  # fmt: skip


def _streamed_by_wgmma(name: str, types: str, turned: bool) -> str:
    """Four products along a row, or down 16 rows each, and the wait for them unless others go on.
    8 rows are 1024 bytes along the columns, or along what is summed; nothing is wider than a row.
    """
    c, out = (", ".join(form.format(n) for n in range(32)) for form in ('"+f"(c[{0}])', "%{0}"))
    steps = "\n".join(
        f'  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.{types}.{types} {{{out}}}, '
        f'{{%32, %33, %34, %35}}, %36, 1, 1, 1, {int(turned)};"\n    : {c} : '
        + ", ".join(f'"r"(a[{4 * k + n}])' for n in range(4))
        + f', "l"(of_b + {(128 if turned else 2) * k}));'
        for k in range(4)
    )  # fmt: skip
    return (
        f"void {name}(f32 (&c)[32], const u32 (&a)[16], buffer<u16> b, bool on = false) {{\n"
        f"  const u64 of_b = (u64)1 << 62 | (u64)64 << 32 | (u64){64 if turned else 1} << 16\n"
        "    | ((u32)__cvta_generic_to_shared(b) & 0x3ffff) >> 4;\n"
        '  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n' + steps +
        '\n  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n'
        "  if (!on) products_done(c); }"
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
        for turned in (False, True):
            end = "_turned" * turned
            for n in COLUMNS:
                name = f"wgmma_{types}_{n}{end}"
                made, spec = _staged(name, types, n, turned), staged_product(dtype, turned)
                yield Function(name, made, spec, "sm_90a")
            name = f"mma_{types}_rows" + end
            made = _by_loads(name, f"mma_{types}", 16, 64, turned, streamed=True)
            needs = (f"mma_{types}", "ldmatrix_4" + end)
            yield Function(name, made, streamed_product(dtype, turned), needs=needs, own=False)
            name = f"wgmma_{types}_rows" + end
            made, spec = _streamed_by_wgmma(name, types, turned), streamed_product(dtype, turned)
            yield Function(name, made, spec, "sm_90a", ("products_done",))
    for i in (i for i in TILED if i.name == i.part):
        one, kind = "_".join(i.function.split("_")[:2]), (i.rows, i.columns, i.turned)
        of_tiles, called = tiled_product(i.first.numpy, *kind), (one, "ldmatrix_4" + end * i.turned)
        text = _by_loads(i.function, one, *kind)
        yield Function(i.function, text, of_tiles, needs=("ldmatrix_4", *called), own=False)
    yield Function("copies_fence", _FENCE, unchanged)
    yield Function("products_wait", _PRODUCTS_WAIT, unchanged, "sm_90a")
    yield Function("products_done", _PRODUCTS_DONE, unchanged, "sm_90a")
    yield Function("lane_xor", _EXCHANGE, exchanged, "sm_75")


FUNCTIONS = {made.name: made for made in _functions()}


def text_of(names: Iterable[str]) -> str:
    """The text of these functions, to stand before what calls them."""
    made = texts_of(names).values()
    return "".join(made)


def texts_of(names: Iterable[str]) -> dict[str, str]:
    """By name, with those that they need before them."""
    found = dict[str, str]()
    for function in (FUNCTIONS[name] for name in names):
        made = function.text
        made = made if made.startswith("template") else f"static __device__ inline {made}"
        made = f"#ifndef LUMINAL_SIMULATED\n{made}\n#endif\n" if function.own else f"{made}\n"
        found |= {**texts_of(function.needs), function.name: made}
    return found


DIALECT = replace(
    text.CUDA,
    header=text.CUDA.header + text_of(["lane_xor"]),
    matrices={i.part: (i.function, texts_of([i.function]))
              for i in (*INSTRUCTIONS, *STAGED, *TILED, *STREAMED, *STREAMED_BY_WGMMA)},
    staging={
        op: (form, texts_of(re.findall(r"\w+_\w+", form)))
        for op, form in (
            ("copy", "copy_16({to}, {source}, {bytes});"), ("commit", "copies_commit();"),
            ("await", "copies_wait<{n}>(); copies_fence();"), ("settle", "products_wait<{n}>();"),
            ("settled", "products_done({value});"),
        )
    },
)  # fmt: skip

