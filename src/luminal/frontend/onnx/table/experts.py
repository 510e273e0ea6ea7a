"""Mixtures of experts of com.microsoft, as ONNX Runtime's model builder writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import f32
from ....graph.tensor import Tensor
from ....nn.experts import READING, mixture
from ....ops.base import extent
from .base import MICROSOFT, op
from .quantised import unpacked

if TYPE_CHECKING:
    from ..record import Recorder

UNPACKING = 1  # for `nn.mixture`: what unpacks a weight costs as much as what multiplies it
Layer = Callable[[Tensor, Tensor], Tensor]  # of rows and their experts: `nn.mixture`'s networks
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu, "gelu": lambda x: ops.gelu(x, "tanh"), "silu": ops.silu,
    "identity": lambda x: x, "relu2": lambda x: ops.square(ops.relu(x)),
}  # fmt: skip


def gated(gate: Tensor, up: Tensor, alpha: float, beta: float, limit: float) -> Tensor:
    """The clamped SwiGLU of gpt-oss."""
    if math.isfinite(limit):
        gate, up = ops.clamp(gate, None, limit), ops.clamp(up, -limit, limit)
    return ops.mul(ops.mul(gate, ops.sigmoid(ops.mul(gate, alpha))), ops.add(up, beta))


@op("SwiGLU", domain=MICROSOFT)
def swiglu(
    at: Recorder, gate: Tensor, up: Tensor | None = None, *, activation_alpha: float = 1.0,
    activation_beta: float = 0.0, limit: float = 0.0, round_activation: int = 0,
) -> Tensor:  # fmt: skip
    if up is None:
        gate, up = ops.chunk(gate, 2, -1)
    most = limit if limit > 0 else math.inf
    wide = gated(gate.cast(f32), up.cast(f32), activation_alpha, activation_beta, most)
    return wide.cast(gate.dtype)


def _mixed(
    x: Tensor, router: Tensor, layers: Sequence[Layer | None], mixing: Tensor | None = None, *,
    reading: int = READING, k: int = 1, normalize_routing_weights: int = 0,
    use_sparse_mixer: int = 0, **attributes: Any,
) -> Tensor:  # fmt: skip
    """Each token (.., width) through the k experts whose scores (tokens, experts) are largest,
    their results weighed by the softmax of the scores, or by `mixing`."""
    if use_sparse_mixer:
        raise Unsupported("experts with a sparse mixer")
    scores = router.cast(f32)
    chosen = ops.topk(scores, k, -1)[1]
    shares = ops.softmax(scores, -1) if mixing is None else mixing.cast(f32)
    shares = ops.gather(shares, -1, chosen)
    if normalize_routing_weights:
        shares = ops.div(shares, ops.sum(shares, -1, True))
    first, second, third = layers
    assert first is not None and second is not None

    def network(rows: Tensor, asked: Tensor) -> Tensor:
        up = None if third is None else third(rows, asked)
        return second(_activated(first(rows, asked), up, **attributes), asked)

    each = x.cast(f32).reshape((extent(router, 0), extent(x, x.ndim - 1)))
    found = mixture(network, each, chosen, shares, int(extent(router, 1)), reading)
    return found.reshape(x.shape).cast(x.dtype)


def _activated(
    x: Tensor, up: Tensor | None, *, activation_type: str = "relu", activation_alpha: float = 1.0,
    activation_beta: float = 0.0, swiglu_fusion: int = 0, swiglu_limit: float = math.inf,
    swiglu_limit_after_activation: int = 0,
) -> Tensor:  # fmt: skip
    """x, or x and what gates it: apart, or in one, in turns (1) or in halves (2)."""
    if activation_type in PLAIN:
        found = PLAIN[activation_type](x)
        return found if up is None else ops.mul(found, up)
    if activation_type not in ("swiglu", "geglu") or swiglu_limit_after_activation:
        raise Unsupported(f"experts with activation {activation_type!r} or a limit after it")
    if swiglu_fusion == 1:
        pairs = x.unflatten(-1, (-1, 2))
        x, up = pairs.select(-1, 0), pairs.select(-1, 1)
    elif swiglu_fusion == 2:
        x, up = ops.chunk(x, 2, -1)
    if up is None:
        raise Unsupported(f"experts with activation {activation_type!r} and nothing that is gated")
    if activation_type == "geglu":
        return ops.mul(ops.gelu(x, "tanh"), up)
    return gated(x, up, activation_alpha, activation_beta, swiglu_limit)


def _layer(rows: Callable[[Tensor], Tensor], bias: Tensor | None) -> Layer:
    """rows: the matrices (groups, rows or 1, out, in) of those who are chosen."""

    def layer(x: Tensor, chosen: Tensor) -> Tensor:
        found = ops.sum(ops.mul(rows(chosen).cast(f32), x.unsqueeze(-2)), -1)
        return found if bias is None else ops.add(found, ops.embedding(chosen, bias.cast(f32)))

    return layer


def _taken(table: Tensor, chosen: Tensor) -> Tensor:
    """table (experts, ..) at (tokens, chosen)."""
    found = ops.embedding(chosen, table.flatten(1))
    return found.reshape((*chosen.shape, *table.shape[1:]))


@op("MoE", domain=MICROSOFT)
def moe(
    at: Recorder, x: Tensor, router: Tensor, *operands: Tensor | None, **attributes: Any
) -> Tensor:
    def layer(table: Tensor | None, bias: Tensor | None) -> Layer | None:
        return None if table is None else _layer(lambda chosen: _taken(table, chosen), bias)

    held = [*operands, *[None] * (6 - len(operands))]
    return _mixed(x, router, [layer(*held[n : n + 2]) for n in (0, 2, 4)], **attributes)


@op("QMoE", domain=MICROSOFT)
def qmoe(
    at: Recorder, x: Tensor, router: Tensor, *operands: Tensor | None,
    expert_weight_bits: int = 4, block_size: int = 0, quant_type: str = "int",
    accuracy_level: int = 0, weights_prepacked: int = 0, fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0, fc3_expert_weight_bits: int = 0, **attributes: Any,
) -> Tensor:  # fmt: skip
    """With weights of a few bits, taken for the chosen experts before they are unpacked. Without
    shares given apart, those of the chosen experts are 1 together, as in ONNX Runtime on CPUs."""
    held = [*operands, *[None] * (19 - len(operands))]
    bits = [each or expert_weight_bits for each in
            (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]  # fmt: skip
    if quant_type != "int" or weights_prepacked == 1 or not set(bits) <= {2, 4, 8}:
        raise Unsupported(f"QMoE with weights of {quant_type!r} of {bits} bits, or packed for a "
                          "device: export it with quant_type='int' and 2, 4 or 8 bits")  # fmt: skip

    def layer(number: int) -> Layer | None:
        codes, scales, bias = held[3 * number : 3 * number + 3]
        zero, size = held[9 + number], bits[number]
        if codes is None or scales is None:
            return None
        return _layer(lambda at: _unpacked(codes, scales, zero, size, block_size, at), bias)

    if held[12] is None:
        attributes["normalize_routing_weights"] = 1
    layers = [layer(number) for number in range(3)]
    return _mixed(x, router, layers, held[12], reading=UNPACKING, **attributes)


def _unpacked(
    codes: Tensor, scales: Tensor, zero: Tensor | None, bits: int, block: int, chosen: Tensor
) -> Tensor:
    """codes (experts, out, bytes), scales (experts, out) or (experts, out, blocks)."""
    values = unpacked(_taken(codes, chosen), bits)
    width = extent(values, 3)

    def each(numbers: Tensor) -> Tensor:  # (tokens, chosen, out, in or 1)
        if numbers.ndim == 3:
            return numbers.unsqueeze(-1).cast(f32)
        return ops.repeat_interleave(numbers.cast(f32), block, 3).narrow(3, 0, width)

    middle: Any = float(1 << (bits - 1))
    if zero is not None:
        points = unpacked(_taken(zero, chosen), bits)
        middle = each(points.narrow(-1, 0, extent(scales, scales.ndim - 1)))
    return ops.mul(ops.sub(values.cast(f32), middle), each(_taken(scales, chosen)))


@op("MoEGroupRouter", domain=MICROSOFT)
def moe_group_router(
    at: Recorder, logits: Tensor, correction: Tensor, projection: Tensor | None = None, *,
    top_k: int, n_group: int = 1, topk_group: int = 1, group_topk: int = 2,
    router_sentinel: float = -10000.0,
) -> Any:  # fmt: skip
    """DeepSeek V3's: (log of the shares of chosen experts, the choice's scores, shares)."""
    scores = logits.cast(f32).flatten(0, -2) if logits.ndim > 2 else logits.cast(f32)
    if projection is not None:
        scores = ops.matmul(scores, projection.cast(f32).T)
    shares = ops.sigmoid(scores)
    choice = ops.add(shares, correction)
    grouped = choice.unflatten(-1, (n_group, -1))
    best = ops.sum(ops.topk(grouped, min(group_topk, int(extent(grouped, 2))), -1)[0], -1)
    allowed = _among(best, topk_group).unsqueeze(-1)
    kept = ops.where(allowed, grouped, float("-inf")).flatten(-2, -1)
    found = ops.where(_among(kept, top_k), ops.log(ops.clamp(shares, 1e-20)), router_sentinel)
    return found.cast(logits.dtype), choice, shares


def _among(scores: Tensor, count: int) -> Tensor:
    """Which of the last dimension are among the largest, the first of equal ones before others."""
    chosen = ops.topk(scores, count, -1)[1]
    places = ops.arange(scores.graph, extent(scores, scores.ndim - 1))
    return ops.any(ops.eq(chosen.unsqueeze(-1), places), -2)
