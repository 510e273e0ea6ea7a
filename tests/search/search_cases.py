"""Small prepared kernels for tests of the search."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
import default_cases as cases

from luminal.backend import cpu
from luminal.scheduling.prepare import prepare

TARGET = cpu.host(1)
KERNELS = {
    "gemm": cases.gemm(24, 64, 128),
    "softmax": cases.softmax(40, 96),
    "gated": cases.gated(20, 48, 64),
    "attention": cases.attention(2, 24, 24, 32),
    "convolution": cases.convolution(8, 12, 16, 3),
    "gemm with a run-time size": cases.gemm("s", 48, 64, sizes={"s": (1, 64)}),
    "gemm int8": cases.gemm_int8(16, 32, 64),
    "embedding": cases.embedding(6, 50, 24),
}


def prepared(name):
    (part,) = prepare(KERNELS[name], TARGET)
    return part
