"""What NVIDIA's GPUs can do at most, by their data sheets: dense rates, no sparsity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """clock: cycles a second, boosted. bandwidth: bytes a second of memory. tensor: bf16
    operations a cycle of a multiprocessor's tensor cores, with sums in f32. lanes: multiply-adds
    of a multiprocessor in f32. sync: share of the tensor cores' peak that `mma.sync` reaches."""

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float
    tensor: int
    lanes: int = 128
    sync: float = 1.0

    def peaks(self) -> dict[str, float]:
        """Operations a second, by what is multiplied."""
        rate = self.multiprocessors * self.clock
        f32, bf16 = 2 * self.lanes * rate, self.tensor * rate
        return {"f32": f32, "tf32": bf16 / 2, "bf16": bf16, "int8": 2 * bf16, "fp8": 2 * bf16}

    def rates(self) -> dict[str, float]:
        """As `Backend.rates` tells: Giga-operations and GB a second."""
        peaks = self.peaks()
        found = {"fma": peaks["f32"], "mma": peaks["bf16"], "read": self.bandwidth}
        return {name: rate / 1e9 for name, rate in (found | {"cache": self.bandwidth}).items()}


WGMMA = 0.62  # share that is left without it, or what came after it, which has not been looked at
KNOWN = {  # one of each architecture: what is compiled without a GPU is cut to it
    "sm_75": Gpu("T4", 40, 1.59e9, 320e9, 1024, 64),
    "sm_80": Gpu("A100 80GB", 108, 1.41e9, 2039e9, 2048, 64),
    "sm_86": Gpu("RTX 3090 Ti", 84, 1.86e9, 1008e9, 512),
    "sm_89": Gpu("RTX 4090", 128, 2.52e9, 1008e9, 512),
    "sm_90": Gpu("H100 SXM", 132, 1.83e9, 3350e9, 4096, sync=WGMMA),
    "sm_100": Gpu("B200", 148, 1.85e9, 8000e9, 8192, sync=WGMMA),
    "sm_103": Gpu("B300", 160, 1.85e9, 8000e9, 8192, sync=WGMMA),
    "sm_120": Gpu("RTX 5090", 170, 2.41e9, 1792e9, 512),
}


SHARED = {  # KiB of a block at most (CUDA C++ guide, "Compute capabilities")
    "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227,
    "sm_103": 227, "sm_120": 99,
}  # fmt: skip


def shared_bytes(arch: str) -> int:
    """That the threads of a block may share."""
    return SHARED.get(arch.rstrip("af"), 48) << 10


def like(arch: str) -> Gpu:
    """The one known of an architecture; something modest where none is."""
    plain = arch.rstrip("af")
    return KNOWN.get(plain, Gpu(plain, 80, 1.5e9, 600e9, 512))
