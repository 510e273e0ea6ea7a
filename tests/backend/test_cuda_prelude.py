"""Every device function beside its specification, on the simulator; a matrix product of all of
them, with faults planted; NVRTC takes the same texts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from luminal.backend.cuda import nvrtc
from luminal.backend.cuda.checks import checks, complete, differences
from luminal.backend.cuda.prelude import FUNCTIONS
from luminal.backend.cuda.simulator import Simulator, found_compiler
from luminal.backend.text import CUDA
from luminal.errors import WrongResult

from .sim_text import Kernels

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
RNG = np.random.default_rng(0)


def test_functions_are_what_they_say() -> None:
    found = differences(Simulator(), "sm_90a")
    single = len(FUNCTIONS) - 5  # copies: three in one; waits and fences in others
    assert len(found) == single + len(CUDA.natives[1])
    exact = {name: error for name, error in found.items() if "mma" not in name or "s8" in name}
    assert not any(exact.values()), exact
    assert max(found.values()) < 1e-4, found


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
    texts = {"product": complete(PRODUCT, (*NAMES, "ldmatrix_2"))}
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
    texts = [check.text for check in checks(arch)]
    texts.append(complete(PRODUCT, (*NAMES, "ldmatrix_2")))
    for built in nvrtc.all_compiled(texts, arch):
        assert built.spilled == 0
