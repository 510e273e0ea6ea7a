"""Operations of the suite. Sizes are those that people quote; weights are fixed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..graph import Tensor
from ..models.llm.projection import Blocks
from ..models.llm.storage import FORMATS
from .case import Case, Mark, operation


def all_ops() -> Iterator[Case]:
    """Every case, in order of printing."""
    yield from gemms()
    yield from fused_gemms()
    yield from gemvs()
    yield from rows()
    yield from elementwise()
    yield from attentions()
    yield from convolutions()


GEMM = (
    Mark("torch", 1.25),
    Mark("peak", 0.95, threads=1),
    Mark("torch", 1.1, "bf16"),
    Mark("peak", 0.95, "bf16", threads=1),
)
FUSED = (Mark("torch", 1.2), Mark("plain", 0.95))
READ = "plain read"
GEMV = (Mark(READ, 1.0), Mark(READ, 1.0, threads=1), Mark(READ, 1.0, "bf16"))
BLOCKS = (Mark(READ, 1.0, "int8"), Mark(READ, 1.0, "int8", threads=1))
ROWS = (Mark("inductor", 1.5),)
CHAIN = (Mark("inductor", 1.2), Mark("copy", 0.9))
CONV = (Mark("openvino", 1.05), Mark("openvino", 1.05, "bf16"))


def attention_marks(causal: bool) -> tuple[Mark, ...]:
    """Against PyTorch's fused attention."""
    ratio = 1.5 if causal else 1.2
    return Mark("torch", ratio), Mark("torch", ratio, "bf16")


def gemms() -> Iterator[Case]:
    for m, k, n in ((128, 2048, 2048), (512, 2048, 8192), (1024, 1024, 1024)):
        yield operation(
            f"gemm int8 {m}x{k}x{n}",
            lambda x, w: ops.linear(x.cast("i32"), w.cast("i32")),
            lambda F, x, w: integer_product(x, w),
            [partial(_bytes, m, k)],
            [partial(_bytes, n, k)],
            flops=2 * m * n * k,
            marks=(Mark("torch", 1.2, "int8"),),
        )
        yield operation(
            f"gemm {m}x{k}x{n}",
            ops.linear,
            lambda F, x, w: F.linear(x, w),
            [(m, k)],
            [(n, k)],
            flops=2 * m * n * k,
            short=(m == 128),
            marks=GEMM,
        )


def fused_gemms() -> Iterator[Case]:
    m, k, n = 128, 2048, 2048
    plain = next(case.make for case in gemms() if case.name == f"gemm {m}x{k}x{n}")

    yield operation(
        f"rms norm + gemm {m}x{k}x{n}",
        lambda x, gain, w: ops.linear(ops.rms_norm(x, (k,), gain, 1e-5), w),
        lambda F, x, gain, w: F.linear(F.rms_norm(x, (k,), gain, 1e-5), w),
        [(m, k)],
        [(k,), (n, k)],
        flops=2 * m * n * k,
        marks=FUSED,
        plain=plain,
    )
    yield operation(
        f"gemm + bias + silu + residual {m}x{k}x{n}",
        lambda x, rest, w, b: ops.silu(ops.linear(x, w, b)) + rest,
        lambda F, x, rest, w, b: F.silu(F.linear(x, w, b)) + rest,
        [(m, k), (m, n)],
        [(n, k), (n,)],
        flops=2 * m * n * k,
        short=True,
        marks=FUSED,
        plain=plain,
    )
    yield operation(
        f"gated gemm (SwiGLU) {m}x{k}x{n}",
        lambda x, gate, up: ops.silu(ops.linear(x, gate)) * ops.linear(x, up),
        lambda F, x, gate, up: F.silu(F.linear(x, gate)) * F.linear(x, up),
        [(m, k)],
        [(n, k), (n, k)],
        flops=4 * m * n * k,
        marks=FUSED,
        plain=plain,
    )


def gemvs() -> Iterator[Case]:
    for k, n in ((2048, 8192), (8192, 2048)):
        yield operation(
            f"gemv f32 {n}x{k}",
            ops.linear,
            lambda F, x, w: F.linear(x, w),
            [(1, k)],
            [(n, k)],
            flops=2 * n * k,
            short=(k == 2048),
            marks=GEMV,
        )
    n = k = 8192
    yield operation(
        f"gemv int8 {n}x{k}",
        lambda x, w, scale: ops.linear(x, w.cast("f32")) * scale,
        lambda F, x, w, scale: F.linear(x, w.to(x.dtype)) * scale,
        [(1, k)],
        [partial(_bytes, n, k), (n,)],
        flops=2 * n * k,
        short=True,
        marks=GEMV[:2],
    )
    for kind, bits in (("q8", 8), ("q4", 4)):
        for k, n in ((2048, 65536), (8192, 16384)):  # no cache holds these
            yield block_gemv(kind, bits, n, k)


def block_gemv(kind: str, bits: int, n: int, k: int) -> Case:
    """Weights as integers of so many bits, a scale for each 32 of a row."""
    format = FORMATS[kind]

    def ours(x: Tensor, quants: Tensor, scales: Tensor) -> Tensor:
        module = Blocks(x.graph, k, n, False, format)
        module.quants, module.scales = quants, scales
        return module(x)

    def theirs(F: Any, x: Any, quants: Any, scales: Any) -> Any:
        import torch

        if bits == 4:
            quants = torch.cat((quants & 15, quants >> 4), -1)
        wide = (quants.to(x.dtype) - format.shift) * scales.to(x.dtype).unsqueeze(-1)
        return F.linear(x, wide.flatten(1, 2))

    return operation(
        f"gemv {kind} {n}x{k}", ours, theirs, [(1, k)],
        [partial(_quants, n, k, bits), partial(_scales, n, k)], flops=2 * n * k, marks=BLOCKS,
    )  # fmt: skip


def _quants(n: int, k: int, bits: int) -> np.ndarray:
    shape = n, k // 32, 4 * bits
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _scales(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.001, 0.002, (n, k // 32)).astype(np.float16)


def integer_product(x: Any, w: Any) -> Any:
    """PyTorch's product of i8 matrices, exact in i32."""
    import torch

    return torch._int_mm(x, w.T)


def _bytes(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, (rows, columns), dtype=np.int8)


def rows() -> Iterator[Case]:
    m, n = 512, 2048
    yield operation(
        f"softmax {m}x{n}",
        lambda x: ops.softmax(x, -1),
        lambda F, x: F.softmax(x, -1),
        [(m, n)],
        short=True,
        marks=ROWS,
    )
    yield operation(
        f"rms norm {m}x{n}",
        lambda x, w: ops.rms_norm(x, (n,), w, 1e-5),
        lambda F, x, w: F.rms_norm(x, (n,), w, 1e-5),
        [(m, n)],
        [(n,)],
        marks=ROWS,
    )
    yield operation(
        f"layer norm {m}x{n}",
        lambda x, w, b: ops.layer_norm(x, (n,), w, b),
        lambda F, x, w, b: F.layer_norm(x, (n,), w, b),
        [(m, n)],
        [(n,), (n,)],
        short=True,
        marks=ROWS,
    )


def elementwise() -> Iterator[Case]:
    def special(x: Any) -> Any:
        """Ten operations with special functions, written the same in both libraries."""
        y = (x * 1.1 + 0.5).tanh() * x
        return (y.exp() + 1.0).log() * 0.3 + (x - y)

    def arithmetic(x: Any) -> Any:
        """Ten operations that memory must wait for."""
        y = (x * 1.1 + 0.5) * x
        return (y - 1.0) * (y + x) * 0.3 + (x - y) * 0.7

    for n, short in ((1024, True), (4096, False)):
        for name, ten, marks in (
            ("special functions", special, CHAIN[:1]),
            ("elementwise", arithmetic, CHAIN),
        ):
            yield operation(
                f"chain of 10 {name} {n}x{n}", ten, lambda F, x, ten=ten: ten(x), [(n, n)],
                short=short, marks=marks,
            )  # fmt: skip


def attentions() -> Iterator[Case]:
    heads = 8
    for depth in (64, 128):
        for length in (128, 512, 2048):
            for causal in (True, False):
                flops = 4 * heads * length * length * depth

                def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal) -> Tensor:
                    return ops.scaled_dot_product_attention(q, k, v, is_causal=causal)

                def theirs(F: Any, q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                yield operation(
                    f"attention {heads}x{length}x{depth}" + " causal" * causal,
                    ours,
                    theirs,
                    [(1, heads, length, depth)] * 3,
                    flops=flops / 2 if causal else flops,
                    short=(length, depth) == (512, 64),
                    marks=attention_marks(causal),
                )


def convolutions() -> Iterator[Case]:
    shapes = (  # name, channels in and out, size, kernel, stride, groups, short
        ("conv 3x3 64", 64, 64, 56, 3, 1, 1, True),
        ("conv 3x3 128", 128, 128, 28, 3, 1, 1, False),
        ("conv 3x3 256", 256, 256, 14, 3, 1, 1, False),
        ("conv 3x3 512", 512, 512, 7, 3, 1, 1, False),
        ("conv 1x1 256 to 64", 256, 64, 56, 1, 1, 1, True),
        ("conv 1x1 1024 to 256", 1024, 256, 14, 1, 1, 1, False),
        ("conv 3x3 stride 2 128", 128, 128, 56, 3, 2, 1, False),
        ("conv 3x3 depthwise 128", 128, 128, 56, 3, 1, 128, False),
        ("conv 7x7 stride 2 3 to 64", 3, 64, 224, 7, 2, 1, False),
    )
    for name, inputs, outputs, size, kernel, stride, groups, short in shapes:
        options = {"stride": stride, "padding": kernel // 2, "groups": groups}
        end = -(-size // stride)
        yield operation(
            f"{name}, {size}x{size}",
            lambda x, w, b, options=options: ops.conv2d(x, w, b, **options),
            lambda F, x, w, b, options=options: F.conv2d(x, w, b, **options),
            [(1, inputs, size, size)],
            [(outputs, inputs // groups, kernel, kernel), (outputs,)],
            flops=2 * outputs * end * end * (inputs // groups) * kernel * kernel,
            short=short,
            marks=CONV,
        )
