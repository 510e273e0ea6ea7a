"""Every device function beside its specification, on the simulator; a matrix product of all of
them, with faults planted; NVRTC takes the same texts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from luminal.backend.cuda import nvrtc
from luminal.backend.cuda.prelude import FUNCTIONS
from luminal.backend.cuda.simulator import found_compiler
from luminal.errors import WrongResult

from .sim_text import Kernels, complete

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
RNG = np.random.default_rng(0)
LANE = "int lane = threadIdx.x;"


def product_text(name: str) -> str:
    kind = "i32" if name == "mma_s8" else "f32"
    head = f'extern "C" __global__ void k(buffer<u32> A, buffer<u32> B, buffer<{kind}> C)'
    return complete(f"""{head} {{
      {LANE} u32 a[4], b[2]; {kind} c[4];
      for (int n = 0; n < 4; n++) {{ a[n] = A[lane * 4 + n]; c[n] = C[lane * 4 + n]; }}
      for (int n = 0; n < 2; n++) b[n] = B[lane * 2 + n];
      {name}(c, a, b);
      for (int n = 0; n < 4; n++) C[lane * 4 + n] = c[n]; }}""", [name])  # fmt: skip


DTYPES = {
    "mma_bf16": ml_dtypes.bfloat16, "mma_f16": np.float16, "mma_tf32": np.float32,
    "mma_s8": np.int8, "mma_e4m3": ml_dtypes.float8_e4m3fn, "mma_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_products(name: str, kernels: Kernels) -> None:
    dtype = np.dtype(DTYPES[name])
    made = [(RNG.standard_normal((32, n * 4 // dtype.itemsize)) * 3).astype(dtype) for n in (4, 2)]
    if name in ("mma_f16", "mma_e4m3", "mma_e5m2"):  # numbers below the normal ones
        made[0][::3] = (made[0][::3].astype(np.float32) * 2e-3).astype(dtype)
    a, b = (m.view(np.uint32) for m in made)
    c = (RNG.standard_normal((32, 4)) * 9).astype(np.int32 if name == "mma_s8" else np.float32)
    wanted = FUNCTIONS[name].specification(c, a, b)
    kernels.run(name, [a, b, c])
    np.testing.assert_allclose(c, wanted, rtol=1e-5, atol=1e-5)


def matrices_text(count: int, turned: bool) -> str:
    name = f"ldmatrix_{count}" + "_turned" * turned
    return complete(f"""extern "C" __global__ void k(buffer<u16> M, buffer<i32> S, buffer<u32> R) {{
      {LANE} buffer<u16> m = shared_part<u16>(0, 512); u32 r[{count}];
      for (int n = lane; n < 512; n += 32) m[n] = (u16)M[n];
      __syncwarp(); {name}(r, m + (i32)S[lane]);
      for (int n = 0; n < {count}; n++) R[lane * {count} + n] = r[n]; }}""", [name])  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_matrices_from_shared_memory(count: int, turned: bool, kernels: Kernels) -> None:
    name = f"ldmatrix_{count}" + "_turned" * turned
    memory = RNG.integers(0, 1 << 16, 512).astype(np.uint16)
    starts = (8 * RNG.permutation(64)[:32]).astype(np.int32)
    found = np.zeros((32, count), np.uint32)
    kernels.run(name, [memory, starts, found], shared=1024)
    np.testing.assert_array_equal(found, FUNCTIONS[name].specification(memory, starts))


LANES = ("lane_xor", "lane_down", "lane_up", "lane_of")


def lanes_text(name: str) -> str:
    return complete(f"""extern "C" __global__ void k(buffer<f32> X, buffer<i32> N) {{
      {LANE} f32 x = X[lane]; X[lane] = {name}(x, (i32)N[0]); }}""", [name])  # fmt: skip


@pytest.mark.parametrize("name", LANES)
def test_values_of_other_lanes(name: str, kernels: Kernels) -> None:
    for n in (0, 1, 5, 16, 31):
        values = RNG.standard_normal(32).astype(np.float32)
        wanted = FUNCTIONS[name].specification(values, n)
        kernels.run(name, [values, np.array([n], np.int32)])
        np.testing.assert_array_equal(values, wanted)


COPY = """extern "C" __global__ void k(buffer<u8> X, buffer<u8> Y, buffer<i32> N) {
  int lane = threadIdx.x; buffer<u8> s = shared_part<u8>(0, 512);
  copy_16(s + 16 * lane, X + 16 * lane, (i32)N[lane]); copies_commit(); copies_wait<0>();
  for (int n = 0; n < 16; n++) Y[16 * lane + n] = (u8)s[16 * lane + n]; }"""


def test_copies(kernels: Kernels) -> None:
    source, counts = RNG.integers(1, 256, (32, 16)).astype(np.uint8), RNG.integers(0, 17, 32)
    found, empty = np.zeros((32, 16), np.uint8), np.zeros(16, np.uint8)
    kernels.run("copy", [source, found, counts.astype(np.int32)], shared=512)
    spec = FUNCTIONS["copy_16"].specification
    wanted = np.stack([spec(empty, row, n) for row, n in zip(source, counts)])
    np.testing.assert_array_equal(found, wanted)


# ---- all of them together: C = A B for bf16, 32 x 16 for a block of two warps, K in steps of 16,
# the next step's tiles on their way while this one is computed with

M, N, K = 64, 32, 64
NAMES = ("mma_bf16", "ldmatrix_4", "ldmatrix_2_turned", "copy_16", "copies_commit", "copies_wait")
PRODUCT = """
extern "C" __global__ void k(buffer<u16> A, buffer<u16> B, buffer<f32> C) {
  const int M = 64, N = 32, K = 64, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int m0 = blockIdx.x / (N / 16) * 32, n0 = blockIdx.x % (N / 16) * 16;
  buffer<u16> a = shared_part<u16>(0, 2 * 32 * 16), b = shared_part<u16>(2048, 2 * 16 * 16);
  f32 c[2][4] = {};
  for (int k = 0; k <= K; k += 16) {
    int stage = k / 16 % 2;
    if (k < K) {
      copy_16(a + stage * 512 + thread / 2 * 16 + thread % 2 * 8,
              A + ((m0 + thread / 2) * K + k + thread % 2 * 8), 16);
      if (thread < 32)
        copy_16(b + stage * 256 + thread / 2 * 16 + thread % 2 * 8,
                B + ((k + thread / 2) * N + n0 + thread % 2 * 8), 16);
    }
    copies_commit();
    if (k == 0) continue;
    copies_wait<1>();
    __syncthreads();  // what all threads have copied is there
    int now = 1 - stage;
    u32 x[4], y[2];
    ldmatrix_4(x, a + now * 512 + (warp * 16 + lane % 16) * 16 + lane / 16 * 8);
    for (int half = 0; half < 2; half++) {
      ldmatrix_2_turned(y, b + now * 256 + lane % 16 * 16 + half * 8);
      mma_bf16(c[half], x, y);
    }
    __syncthreads();  // nobody overwrites what somebody reads
  }
  for (int half = 0; half < 2; half++)
    for (int r = 0; r < 4; r++)
      C[(m0 + warp * 16 + lane / 4 + 8 * (r / 2)) * N + n0 + half * 8 + 2 * (lane % 4) + r % 2]
        = c[half][r];
}
"""
FAULTS = {  # what is changed, and into what
    "waits for too few": ("copies_wait<1>", "copies_wait<2>"),
    "waits for nothing": ("copies_wait<1>();", ""),
    "no barrier after the wait": ("__syncthreads();  // what", "// what"),
    "no barrier before the next copy": ("__syncthreads();  // nobody", "// nobody"),
    "the other stage": ("int now = 1 - stage", "int now = stage"),
    "B is not turned": ("ldmatrix_2_turned(y", "ldmatrix_2(y"),
    "rows of B one off": ("lane % 16 * 16 + half", "(lane + 1) % 16 * 16 + half"),
    "a tile one row short": ("2 * 32 * 16)", "2 * 32 * 16 - 16)"),
    "shared memory one line short": ("(2048, 2 * 16", "(2112, 2 * 16"),
    "a barrier in a branch": ("__syncthreads();  // what", "if (warp) __syncthreads();  // what"),
    "columns of C swapped": ("+ r % 2]", "+ 1 - r % 2]"),
    "a row beyond the end": ("m0 + warp * 16 + lane / 4 + 8", "m0 + 1 + warp * 16 + lane / 4 + 8"),
    "the last step is left out": ("k <= K", "k < K"),
    "a read that begins in between": ("half * 8);", "half * 7);"),
    "two warps write one row": ("C[(m0 + warp * 16", "C[(m0"),
}


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    texts = {name: product_text(name) for name in DTYPES} | {n: lanes_text(n) for n in LANES}
    for count in (1, 2, 4):
        texts[f"ldmatrix_{count}"] = matrices_text(count, False)
        texts[f"ldmatrix_{count}_turned"] = matrices_text(count, True)
    texts |= {"copy": complete(COPY, NAMES), "product": complete(PRODUCT, (*NAMES, "ldmatrix_2"))}
    for fault, (before, after) in FAULTS.items():
        assert before in PRODUCT
        texts[fault] = texts["product"].replace(before, after, 1)
    return Kernels(texts)


def right(kernels: Kernels, name: str, order: int) -> bool:
    """What the product is, or WrongResult."""
    a = RNG.standard_normal((M, K)).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal((K, N)).astype(ml_dtypes.bfloat16)
    c = np.full((M, N), np.nan, np.float32)
    arrays = [a.view(np.uint16), b.view(np.uint16), c]
    kernels.run(name, arrays, blocks=4, threads=64, shared=3072, order=order)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    return bool(np.allclose(c, wanted, rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize("order", range(4))
def test_a_product_of_tiles(order: int, kernels: Kernels) -> None:
    assert right(kernels, "product", order)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str, kernels: Kernels) -> None:
    """A wrong result, or an error that says which thread does what; in every order."""
    for order in range(3):
        try:
            assert not right(kernels, fault, order)
        except WrongResult:
            continue


# ---- the same texts


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_nvrtc_takes_them(arch: str) -> None:
    number = int(arch[3:].strip("a"))
    texts = [product_text(n) for n in DTYPES if int(FUNCTIONS[n].arch[3:]) <= number]
    texts += [complete(PRODUCT, (*NAMES, "ldmatrix_2")), complete(COPY, NAMES)]
    for built in nvrtc.all_compiled(texts, arch):
        assert built.spilled == 0
