"""Instructions that multiply matrices on a GPU of NVIDIA, as schedules see them.

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

from dataclasses import replace

from ...graph.dtype import DType, bf16, f16, f32, i8, i32
from ...kernel.target import Fragment, MatrixInstruction


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


def staged_instruction(
    function: str, dtype: DType, down: int, columns: int, turned: bool = False
) -> MatrixInstruction:
    """One of `FUNCTIONS`, by so many warpgroups below each other."""
    function += "_turned" * turned
    threads = 128 * down
    b = turned_over(columns, threads) if turned else brought(columns, threads)
    ways = _sums(down, columns), brought(64 * down, threads), b
    return MatrixInstruction(
        f"{function}_{down}", 64, dtype, dtype, f32, STAGED_CYCLES, rows=64 * down,
        columns=columns, fragments=ways, part=f"{function}_1", function=function, staged=True,
        late=True, turned=turned,
    )  # fmt: skip


def tiled_instruction(
    function: str, dtype: DType, accumulator: DType, tile: tuple[int, int],
    warps: tuple[int, int] = (1, 1), turned: bool = False,
) -> MatrixInstruction:  # fmt: skip
    """As `staged_instruction`, by so many warps below and beside each other, each with so many rows
    and columns of its own; done when it ends."""
    function += "_turned" * turned
    (rows, columns), (down, across) = tile, warps
    threads, each = 32 * down * across, 16 // dtype.bytes
    sums = tuple((16 * i + 8 * h, 8 * j + e) for i in range(rows // 16)
                 for j in range(columns // 8) for h in (0, 1) for e in (0, 1))  # fmt: skip
    c = Fragment((4, 8, across, down), (0, 1, 0, rows), (2, 0, columns, 0), sums)
    rows, columns = rows * down, columns * across
    b = turned_over(columns, threads) if turned else brought(columns, threads, each)
    ways = c, brought(rows, threads, each), b
    return MatrixInstruction(
        f"{function}_{down}x{across}", 8 * each, dtype, dtype, accumulator, TILED_CYCLES,
        rows=rows, columns=columns, fragments=ways, part=f"{function}_1x1", function=function,
        staged=True, turned=turned,
    )  # fmt: skip


def streamed_instruction(
    function: str, dtype: DType, down: int, turned: bool, cycles: float = 0.0
) -> MatrixInstruction:
    """As `staged_instruction` with 64 columns, but for a, which lies as the sums do: it may have
    been such a moment ago."""
    threads, c = 128 * down, _sums(down, 64)
    steps = ((8 * (r % 2), 16 * k + 8 * (r // 2)) for k in range(4) for r in range(4))
    a = replace(c, elements=tuple((row, column + e) for row, column in steps for e in (0, 1)))
    b = turned_over(64, threads) if turned else brought(64, threads)
    function += "_turned" * turned
    return MatrixInstruction(
        f"{function}_{down}", 64, dtype, dtype, f32, cycles, rows=64 * down, columns=64,
        fragments=(c, a, b), part=f"{function}_1", function=function, streamed=True, turned=turned,
    )  # fmt: skip


def _sums(down: int, columns: int) -> Fragment:
    """Of so many warpgroups below each other."""
    sums = tuple((8 * h, 8 * j + e) for j in range(columns // 8) for h in (0, 1) for e in (0, 1))
    return Fragment((4, 8, 4, down), (0, 1, 16, 64), (2, 0, 0, 0), sums)


def brought(rows: int, threads: int, each: int = 8) -> Fragment:
    """Which elements of a tile's rows each thread copies: 16 bytes, so many, side by side."""
    lines = range(0, rows, threads // 8)
    elements = tuple((line, e) for line in lines for e in range(each))
    return Fragment((8, threads // 8), (0, 1), (each, 0), elements)


def turned_over(columns: int, threads: int) -> Fragment:
    """The same of 64 rows along the columns of a product, 64 at a time."""
    b = brought(64, threads)
    pieces = range(0, columns, 64)
    elements = tuple((piece + e, line) for piece in pieces for line, e in b.elements)
    return Fragment(b.digits, b.columns, b.rows, elements)


# ---- those that there are


COLUMNS = (64, 128, 256)  # of a product of tiles
CYCLES = 4.0  # of 32 products, whose operands come late: 2,048 in 6.5 at the most
PRODUCTS = (("mma_bf16", bf16, f32), ("mma_f16", f16, f32), ("mma_s8", i8, i32))
SHAPES = ((1, 1), (2, 2), (2, 4), (4, 1, 2), (4, 1, 4), (1, 1, 2), (1, 1, 4))
INSTRUCTIONS = tuple(
    instruction(function, dtype, accumulator, CYCLES, *shape)
    for function, dtype, accumulator in PRODUCTS for shape in SHAPES
)
STAGED_CYCLES = 4.0  # of 64 products: the tensor cores' peak
STAGED = tuple(
    staged_instruction(f"wgmma_{dtype}_{columns}", dtype, down, columns, turned)
    for turned in (False, True)
    for dtype in (bf16, f16) for columns in COLUMNS for down in (1, 2)
)  # fmt: skip
TILED_CYCLES = 8.0  # of 64 products: the tensor cores' peak on sm_80
TILES = ((64, 64), (64, 32), (32, 64), (32, 32))  # of a warp
WARPS = (  # with them, each shape once
    ((64, 64), (2, 4)), ((64, 64), (4, 2)), ((64, 64), (2, 2)), ((64, 32), (2, 2)),
    ((32, 64), (2, 2)), ((64, 32), (4, 2)), ((32, 64), (2, 4)), ((32, 32), (2, 2)),
    *((tile, (1, 1)) for tile in TILES),
)
TILED = tuple(
    tiled_instruction("{}_{}x{}".format(function, *tile), dtype, accumulator, tile, warps, turned)
    for turned in (False, True)
    for function, dtype, accumulator in PRODUCTS[: 2 if turned else 3]
    for tile, warps in WARPS if not turned or tile[1] == 64
)  # fmt: skip
STREAMED, STREAMED_BY_WGMMA = (
    tuple(streamed_instruction(f"{kind}_{dtype}_rows", dtype, down, turned, cycles)
          for dtype in (bf16, f16) for down in (2, 1) for turned in (False, True))
    for kind, cycles in (("mma", 4 * CYCLES), ("wgmma", STAGED_CYCLES))
)  # fmt: skip


def instructions_of(arch: str) -> tuple[MatrixInstruction, ...]:
    """Those that an architecture ("sm_90a") has."""
    had = int(arch.removeprefix("sm_").rstrip("af"))
    own = STAGED + STREAMED_BY_WGMMA if arch == "sm_90a" else TILED + STREAMED
    return INSTRUCTIONS + own if had >= 80 else ()
