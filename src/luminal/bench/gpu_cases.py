"""What `luminal bench gpu` compiles: functions of operands that a library of functions computes,
ours or PyTorch's, which has the same names."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..graph import Graph
from ..graph.dtype import DType, bf16, f32
from ..graph.tensor import Tensor

Function: TypeAlias = Callable[..., Any]  # library, operands -> result


@dataclass(frozen=True)
class Case:
    """flops: of a run. fixed: the last operand is a weight."""

    name: str
    function: Function
    shapes: tuple[tuple[int, ...], ...]
    dtype: DType = f32
    flops: float = 0.0
    fixed: bool = False

    def operands(self, graph: Graph) -> list[Tensor]:
        *given, last = self.shapes
        made = [graph.tensor(shape, self.dtype) for shape in given]
        more = graph.parameter if self.fixed else graph.tensor
        return [*made, more(last, self.dtype, name="last")]

    def arrays(self) -> list[np.ndarray]:
        """Values for the operands, normal."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape, np.float32).astype(self.dtype.numpy)
                for shape in self.shapes]  # fmt: skip


def cases(small: bool) -> Sequence[Case]:
    """Of usual sizes, or of tiny ones."""
    n, heads, tokens, wide = (32, 2, 64, 32) if small else (4096, 16, 4096, 128)
    attended = ((2, heads, tokens, wide),) * 3
    shorter = ((1, 8, tokens // 2, 64),) * 3

    def product(dtype: DType, rows: int, n: int, text: str) -> Case:
        shapes, flops = ((rows, n), (n, n)), 2.0 * rows * n * n
        return Case(f"{text} {dtype.name}", lambda _, a, b: a @ b, shapes, dtype, flops, True)

    def attention(dtype: DType, shapes: tuple[tuple[int, ...], ...]) -> Case:
        batch, heads, tokens, wide = shapes[0]
        flops = 2.0 * batch * heads * tokens * tokens * wide
        return Case(f"attention {dtype.name}", _causal, shapes, dtype, flops)

    return (
        Case("sum of rows", lambda _, x: x.sum(1), ((n, 4 * n),)),
        Case("softmax", lambda library, x: library.softmax(x, -1), ((n, n),)),
        Case("layer norm", lambda library, x: library.layer_norm(x, (n,)), ((2 * n, n),)),
        *(product(dtype, n, n, "product") for dtype in (f32, bf16)),
        *(product(dtype, 1, 2 * n, "one row") for dtype in (f32, bf16)),
        product(bf16, 8, 2 * n, "eight rows"),
        attention(f32, shorter), attention(bf16, attended),
    )  # fmt: skip


def _causal(library: Any, q: Any, k: Any, v: Any) -> Any:
    return library.scaled_dot_product_attention(q, k, v, is_causal=True)


# ---- the same by PyTorch


def torch_seconds(case: Case, repeat: int) -> float | None:
    """Of PyTorch's own kernels on the first GPU, by its events; None where there is no such."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    from ..frontend.torch.arrays import TO_TORCH

    if not torch.cuda.is_available():
        return None
    kind, times = TO_TORCH[case.dtype], []
    operands = [torch.randn(shape, device="cuda", dtype=kind) for shape in case.shapes]
    for _ in range(repeat):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(repeat):
            case.function(torch.nn.functional, *operands)
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / repeat * 1e-3)
    return min(times)
