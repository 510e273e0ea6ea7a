"""A barrier of all blocks of a launch, and what is wrong without a part of it."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backend import text
from luminal.backend.cuda.simulator import found_compiler
from luminal.errors import WrongResult

from .sim_text import Kernels

pytestmark = pytest.mark.skipif(found_compiler() is None, reason="no C++ compiler")
BLOCKS, THREADS = 3, 64
TYPES = "typedef unsigned u32; typedef long long i64;\n"
KERNEL = """extern "C" __global__ void k(buffer<int> X, buffer<int> Y, buffer<u32> counter) {
  for (int turn = 0; turn < 3; turn++) {
    X[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x + turn;
    meet_all(counter);
    int sum = 0;
    for (int n = 0; n < gridDim.x; n++) sum += X[n * blockDim.x + (threadIdx.x + n) % blockDim.x];
    Y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    meet_all(counter);
  }
}"""
MEETING = TYPES + text.meeting(text.CUDA)
WRONG = r"(reads|writes) what thread|do not come"
SPLIT = "const u32 mine = blockIdx.x ? 1u : 0x80000000u - (u32)(gridDim.x - 1);"
FAULTS = {
    "no barrier": (MEETING, KERNEL.replace("meet_all(counter);", "__syncthreads();", 1)),
    "none before the next turn": (MEETING, "".join(KERNEL.rsplit("meet_all(counter);", 1))),
    "no release": (MEETING.replace("add_release(counter", "add_relaxed(counter"), KERNEL),
    "no acquire": (MEETING.replace("load_acquire(counter", "load_relaxed(counter"), KERNEL),
    "others do not wait for the first": (MEETING.replace("__syncthreads();\n}", "}"), KERNEL),
    "the first does not wait": (MEETING.replace("{\n  __syncthreads();", "{", 1), KERNEL),
    "one too few": (MEETING.replace("(gridDim.x - 1)", "(gridDim.x - 2)"), KERNEL),
    "one too many": (MEETING.replace("(gridDim.x - 1)", "gridDim.x"), KERNEL),
    "not reset": (MEETING.replace(SPLIT, "const u32 mine = 0x80000000u / gridDim.x;"), KERNEL),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    texts = {name: head + body for name, (head, body) in FAULTS.items()}
    assert len({*texts.values(), MEETING + KERNEL}) == len(FAULTS) + 1  # each is planted
    return Kernels(texts | {"right": MEETING + KERNEL})


def launched(kernels: Kernels, name: str, order: int, counter: np.ndarray) -> np.ndarray:
    made = np.zeros((2, BLOCKS * THREADS), np.int32)
    kernels.run(name, [*made, counter], BLOCKS, THREADS, order=order, together=True)
    return made[1]


@pytest.mark.parametrize("order", range(4))
def test_blocks_meet_launch_after_launch(kernels: Kernels, order: int) -> None:
    """The counter of one launch serves the next one as it is left."""
    counter = np.zeros(1, np.uint32)
    for _ in range(3):
        assert (launched(kernels, "right", order, counter) == 2 * BLOCKS + 3).all()
        assert counter[0] << 1 == 0


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("order", range(3))
def test_planted_faults_are_found(kernels: Kernels, fault: str, order: int) -> None:
    counter = np.zeros(1, np.uint32)
    with pytest.raises(WrongResult, match=WRONG):
        for _ in range(2):
            launched(kernels, fault, order, counter)


def test_a_counter_that_is_not_zero_at_first(kernels: Kernels) -> None:
    for garbage in (1, 0xFFFFFFFF):
        with pytest.raises(WrongResult, match=WRONG):
            launched(kernels, "right", 2, np.array([garbage], np.uint32))
