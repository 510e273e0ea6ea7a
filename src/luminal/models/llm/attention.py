"""Attention as configs describe it, over a cache."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...graph import Graph, Tensor
from .config import DecoderConfig
from .norms import HeadNorms, norm, plain_norm
from .projection import projections
from .rotary import Rotary
from .storage import Storage


def attention(
    graph: Graph, config: DecoderConfig, layer: int, rotary: Rotary | None, storage: Storage,
    heat: Tensor | None = None,
) -> nn.Attention:  # fmt: skip
    """Of a layer. One that has no keys of its own (`DecoderConfig.sources`) takes those of another.
    heat: (context, 1), what queries at each position are multiplied by."""
    kv_heads, size = config.shape(layer)
    keys = "k_proj" if config.source(layer) == layer else None
    values = keys if layer in config.keys_as_values else keys and "v_proj"
    made = nn.Attention(
        graph, config.width, config.heads, kv_heads=kv_heads, head_dim=size,
        bias=config.attention_bias, out_bias=config.output_bias,
        names=("q_proj", keys, values, "o_proj"), linear=projections(storage),
        norm=None if config.qk_norm in (None, "turned")
        else lambda graph, width: _norm(graph, config, width),
        whole_norm=config.qk_norm in ("whole", "heads"),
        gate=config.attention_gate, sinks=config.sinks,
        rotary=Normed(rotary, config.eps) if rotary and config.qk_norm == "turned" else rotary,
        layer=layer,
    )  # fmt: skip
    made.heat = heat
    if config.value_norm and values is not None:
        made.v_norm = nn.RMSNorm(graph, size, config.eps, elementwise_affine=False)
    if config.sub_norms:
        made.attn_sub_norm = norm(graph, config, config.heads * size)
    return made


def _norm(graph: Graph, config: DecoderConfig, width: int) -> nn.Module:
    """Of queries or keys."""
    if config.qk_norm == "heads":
        return HeadNorms(graph, width, config.head_dim, config.eps)
    return norm(graph, config, width)


class Normed:
    """Queries and keys normed after they are turned."""

    def __init__(self, rotary: Rotary, eps: float) -> None:
        self.rotary, self.eps = rotary, eps

    def turn(self, x: Tensor, cache: Any) -> Tensor:
        return plain_norm(self.rotary.turn(x, cache), self.eps)
