"""Every device function of the prelude beside its specification, on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import ml_dtypes
import numpy as np

from ...graph.dtype import i64, u8
from ...graph.index import Index
from ...kernel.kernel import Buffer
from ...kernel.program import Parallel, Program, Tile, Val
from .. import text
from ..contract import Accelerator
from ..text.helpers import helper
from .matrices import COLUMNS, STREAMED, STREAMED_BY_WGMMA, TILED
from .prelude import FUNCTIONS, LANES, text_of

PRODUCTS = {
    "mma_bf16": ml_dtypes.bfloat16, "mma_f16": np.float16, "mma_tf32": np.float32,
    "mma_s8": np.int8, "mma_e4m3": ml_dtypes.float8_e4m3fn, "mma_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
TYPES = "".join(f"typedef {kind} {name};\n" for name, kind in text.CUDA.types.items())


@dataclass(frozen=True)
class Check:
    """A kernel `name` of one block on these arrays, of which the last is as `wanted` afterwards.
    arch: the first that it runs on; one with an "a" the only."""

    name: str
    text: str
    arrays: Sequence[np.ndarray]
    wanted: np.ndarray
    arch: str
    threads: int = LANES
    shared: int = 1024

    def runs_on(self, arch: str) -> bool:
        own = self.arch.endswith("a")
        return self.arch == arch if own else _number(self.arch) <= _number(arch)

    @property
    def program(self) -> Program:
        """What a launch needs to know."""
        one, warp = (Val(str(n), i64, literal=True) for n in (1, self.threads))
        threads = Parallel(Val("%thread", i64), warp, [], "threads")
        buffers = tuple(
            Buffer(f"B{n}", u8, (Index.of(array.nbytes),)) for n, array in enumerate(self.arrays)
        )
        tiles = (Tile("S", u8, self.shared, "shared"),)
        return Program(self.name, buffers, (), [Parallel(Val("%u", i64), one, [threads])], tiles)


def complete(body: str, names: Sequence[str]) -> str:
    """The text of a kernel and of the functions that it calls."""
    return TYPES + text.CUDA.header + text_of(names) + body


def checks(arch: str, seed: int = 0) -> Iterator[Check]:
    """Those that an architecture has."""
    rng = np.random.default_rng(seed)
    made = (*_products(rng), *_matrices(rng), _exchange(rng), _copy(rng), *_staged(rng),
            *_tiled(rng), *_streamed(rng), *_conversions(rng))  # fmt: skip
    yield from (check for check in made if check.runs_on(arch))


def differences(device: Accelerator, arch: str) -> dict[str, float]:
    """Of each check, the largest difference from what is wanted. Raises as the device does."""
    made, target = list(checks(arch)), device.target(1)
    codes = [kept.code for kept in device.build([check.text for check in made], target)]
    kernels = device.kernels(codes, [check.program for check in made])
    found = {}
    for check, kernel in zip(made, kernels):
        buffers = [device.allocate(array.nbytes) for array in check.arrays]
        for buffer, array in zip(buffers, check.arrays):
            device.write(buffer, array)
        device.launch(kernel, buffers, [], device.allocate(64))
        result = np.empty_like(check.arrays[-1])
        device.read(buffers[-1], result)
        apart = np.abs(result.astype(np.float64) - check.wanted.astype(np.float64))
        found[check.name] = float(np.nan_to_num(apart, nan=np.inf).max())
    return found


def _number(arch: str) -> int:
    return int(arch.strip("smaf_"))


def _check(
    name: str, parameters: str, body: str, names: Sequence[str], arrays: Sequence[np.ndarray],
    wanted: np.ndarray, before: str = "",
) -> Check:  # fmt: skip
    head = f'{before}extern "C" __global__ void check_{name}({parameters}, buffer<u8> workspace)'
    made = complete(f"{head} {{ int lane = threadIdx.x; {body} }}", names)
    arch = FUNCTIONS[names[0]].arch if names else "sm_75"
    return Check(f"check_{name}", made, arrays, wanted, arch)


def _products(rng: np.random.Generator) -> Iterator[Check]:
    for name, kind in PRODUCTS.items():
        dtype, whole = np.dtype(kind), name == "mma_s8"
        sizes = [n * 4 // dtype.itemsize for n in (4, 2)]
        made = [(3 * rng.standard_normal((LANES, size))).astype(dtype) for size in sizes]
        if name in ("mma_f16", "mma_e4m3", "mma_e5m2"):  # numbers below the normal ones
            made[0][::3] = (made[0][::3].astype(np.float32) * 2e-3).astype(dtype)
        a, b = (m.view(np.uint32) for m in made)
        c = (rng.standard_normal((LANES, 4)) * 9).astype(np.int32 if whole else np.float32)
        number = "i32" if whole else "f32"
        yield _check(
            name, f"buffer<u32> A, buffer<u32> B, buffer<{number}> C",
            f"""u32 a[4], b[2]; {number} c[4];
            for (int n = 0; n < 4; n++) {{ a[n] = A[lane * 4 + n]; c[n] = C[lane * 4 + n]; }}
            for (int n = 0; n < 2; n++) b[n] = B[lane * 2 + n];
            {name}(c, a, b);
            for (int n = 0; n < 4; n++) C[lane * 4 + n] = c[n];""",
            [name], [a, b, c], FUNCTIONS[name].specification(c, a, b),
        )  # fmt: skip


def _matrices(rng: np.random.Generator) -> Iterator[Check]:
    memory = rng.integers(0, 1 << 16, 512).astype(np.uint16)
    starts = (8 * rng.permutation(64)[:LANES]).astype(np.int32)
    for count in (1, 2, 4):
        for name in (f"ldmatrix_{count}", f"ldmatrix_{count}_turned"):
            yield _check(
                name, "buffer<u16> M, buffer<i32> S, buffer<u32> R",
                f"""buffer<u16> m = shared_part<u16>(0, 512); u32 r[{count}];
                for (int n = lane; n < 512; n += 32) m[n] = (u16)M[n];
                __syncwarp(); {name}(r, m + (i32)S[lane]);
                for (int n = 0; n < {count}; n++) R[lane * {count} + n] = r[n];""",
                [name], [memory, starts, np.zeros((LANES, count), np.uint32)],
                FUNCTIONS[name].specification(memory, starts),
            )  # fmt: skip


def _staged(rng: np.random.Generator) -> Iterator[Check]:
    """A product of tiles that lie in shared memory, by four warps."""
    for kind, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        for n, turned in product(COLUMNS, (False, True)):
            name, count = f"wgmma_{kind}_{n}" + "_turned" * turned, n // 2
            a, b = (rng.standard_normal(rows * 64).astype(dtype).view(np.uint16)
                    for rows in (64, n))  # fmt: skip
            c = rng.standard_normal((128, count)).astype(np.float32)
            made = _check(
                name, "buffer<u16> A, buffer<u16> B, buffer<f32> C",
                f"""buffer<u16> a = shared_part<u16>(0, 4096), b = shared_part<u16>(8192, {64 * n});
                f32 c[{count}];
                for (int n = lane; n < 4096; n += 128) a[n] = (u16)A[n];
                for (int n = lane; n < {64 * n}; n += 128) b[n] = (u16)B[n];
                for (int n = 0; n < {count}; n++) c[n] = C[lane * {count} + n];
                copies_fence(); __syncthreads(); {name}(c, a, b); products_done(c);
                for (int n = 0; n < {count}; n++) C[lane * {count} + n] = c[n];""",
                [name, "copies_fence", "products_done"], [a, b, c],
                FUNCTIONS[name].specification(c, a, b),
            )  # fmt: skip
            yield replace(made, threads=128, shared=8192 + 128 * n)


def _tiled(rng: np.random.Generator) -> Iterator[Check]:
    """The same by a warp."""
    for made in (i for i in TILED if i.name == i.part):
        name, sums = made.function, made.rows * made.columns // LANES
        kind, of, most = ("i8", "i32", 9) if made.first.is_integer else ("u16", "f32", 1)
        a, b = ((most * rng.standard_normal(rows * made.collapse)).astype(made.first.numpy)
                for rows in (made.rows, made.columns))  # fmt: skip
        a, b = (side.view(np.int8 if kind == "i8" else np.uint16) for side in (a, b))
        c = (most * rng.standard_normal((LANES, sums))).astype(made.accumulator.numpy)
        check = _check(
            name, f"buffer<{kind}> A, buffer<{kind}> B, buffer<{of}> C",
            f"""buffer<{kind}> a = shared_part<{kind}>(0, {a.size});
            buffer<{kind}> b = shared_part<{kind}>({a.nbytes}, {b.size}); {of} c[{sums}];
            for (int n = lane; n < {a.size}; n += 32) a[n] = ({kind})A[n];
            for (int n = lane; n < {b.size}; n += 32) b[n] = ({kind})B[n];
            for (int n = 0; n < {sums}; n++) c[n] = C[lane * {sums} + n];
            __syncwarp(); {name}(c, a, b);
            for (int n = 0; n < {sums}; n++) C[lane * {sums} + n] = c[n];""",
            [name], [a, b, c], FUNCTIONS[name].specification(c, a, b),
        )  # fmt: skip
        yield replace(check, shared=a.nbytes + b.nbytes)


def _streamed(rng: np.random.Generator) -> Iterator[Check]:
    """A product of what threads have with a tile that lies in shared memory, by eight warps."""
    for made in (i for i in (*STREAMED, *STREAMED_BY_WGMMA) if i.threads == 256):
        name, dtype = made.function, made.first.numpy
        a, b = (rng.standard_normal(count).astype(dtype) for count in (256 * 32, 4096))
        c = rng.standard_normal((256, 32)).astype(np.float32)
        given = a.view(np.uint32).reshape(256, 16), b.view(np.uint16)
        check = _check(
            name, "buffer<u32> A, buffer<u16> B, buffer<f32> C",
            f"""buffer<u16> b = shared_part<u16>(0, 4096); u32 a[16]; f32 c[32];
            for (int n = lane; n < 4096; n += 256) b[n] = (u16)B[n];
            for (int n = 0; n < 16; n++) a[n] = A[lane * 16 + n];
            for (int n = 0; n < 32; n++) c[n] = C[lane * 32 + n];
            copies_fence(); __syncthreads(); {name}(c, a, b);
            for (int n = 0; n < 32; n++) C[lane * 32 + n] = c[n];""",
            [name, "copies_fence"], [*given, c], FUNCTIONS[name].specification(c, *given),
        )  # fmt: skip
        yield replace(check, threads=256, shared=8192)


def _exchange(rng: np.random.Generator) -> Check:
    values, bits = rng.standard_normal(LANES).astype(np.float32), (0, 1, 5, 16, 31)
    wanted = np.stack([FUNCTIONS["lane_xor"].specification(values, n) for n in bits])
    return _check(
        "lane_xor", "buffer<f32> X, buffer<i32> N, buffer<f32> Y",
        f"""f32 x = X[lane];
        for (int n = 0; n < {len(bits)}; n++) Y[n * 32 + lane] = lane_xor(x, (i32)N[n]);""",
        ["lane_xor"], [values, np.array(bits, np.int32), np.zeros_like(wanted)], wanted,
    )  # fmt: skip


def _conversions(rng: np.random.Generator) -> Iterator[Check]:
    """Numbers of all sizes, ties and infinities, rounded and back."""
    count = 32 * LANES
    wide = (rng.standard_normal(count) * 2.0 ** rng.integers(-45, 40, count)).astype(np.float32)
    wide[: 2 * LANES] = (rng.integers(0, 1 << 12, 2 * LANES) * 2.0**-3).astype(np.float32)
    wide[-2:] = np.inf, -np.inf
    with np.errstate(over="ignore"):
        f16, bf16 = (wide.astype(kind) for kind in (np.float16, ml_dtypes.bfloat16))
    for op, function in (("max", np.maximum), ("min", np.minimum)):
        pairs = np.stack([wide, np.roll(wide, 1)])
        pairs[0, :LANES] = np.nan
        wanted, own = function(*pairs), text.CUDA.native(f"{op}_f32", helper(f"{op}_f32")[0])
        yield _check(
            f"{op}_f32", "buffer<f32> X, buffer<u32> Y",
            f"""for (int n = lane; n < {count}; n += 32) {{
            const f32 y = {op}_f32(X[n], X[n + {count}]);
            Y[n] = y != y ? 0x7fc00000u : bits_f32(y); }}""",
            [], [pairs, np.zeros(count, np.uint32)], wanted.view(np.uint32),
            f"{text.CUDA.function} {own}\n",
        )  # fmt: skip
    for name, of, given, wanted in (
        ("f16_of_f32", "f32", wide, f16.view(np.uint16)),
        ("bf16_of_f32", "f32", wide, bf16.view(np.uint16)),
        ("f32_of_f16", "u16", f16.view(np.uint16), f16.astype(np.float32).view(np.uint32)),
    ):
        kind = "u32" if wanted.itemsize == 4 else "u16"
        made = "bits_f32(f32_of_f16(x))" if kind == "u32" else f"{name}(x)"
        own = text.CUDA.native(name, helper(name)[0])
        yield _check(
            name, f"buffer<{of}> X, buffer<{kind}> Y",
            f"""for (int n = lane; n < {count}; n += 32) {{
            const {of} x = X[n]; Y[n] = {made}; }}""",
            [], [given, np.zeros_like(wanted)], wanted, f"{text.CUDA.function} {own}\n",
        )  # fmt: skip


def _copy(rng: np.random.Generator) -> Check:
    """Of 0 to 16 bytes, the rest zero."""
    source = rng.integers(1, 256, (LANES, 16)).astype(np.uint8)
    counts, empty = rng.integers(0, 17, LANES).astype(np.int32), np.zeros(16, np.uint8)
    spec = FUNCTIONS["copy_16"].specification
    return _check(
        "copy_16", "buffer<u8> X, buffer<i32> N, buffer<u8> Y",
        """buffer<u8> s = shared_part<u8>(0, 512);
        copy_16(s + 16 * lane, X + 16 * lane, (i32)N[lane]); copies_commit(); copies_wait<0>();
        for (int n = 0; n < 16; n++) Y[16 * lane + n] = (u8)s[16 * lane + n];""",
        ["copy_16", "copies_commit", "copies_wait"],
        [source, counts, np.zeros((LANES, 16), np.uint8)],
        np.stack([spec(empty, row, n) for row, n in zip(source, counts)]),
    )  # fmt: skip
