"""What denoisers and autoencoders are made of, under diffusers' names."""

from __future__ import annotations

import math

import numpy as np

from ... import nn, ops
from ...graph import Graph, Tensor

MAX_PERIOD = 10_000
RENAMES = (  # diffusers' names of attention as ours; an autoencoder's also by its first versions
    (r"(mid_block\.attentions\.\d)\.(?:to_q|query)\.", r"\1.attn.q_proj."),
    (r"(mid_block\.attentions\.\d)\.(?:to_k|key)\.", r"\1.attn.k_proj."),
    (r"(mid_block\.attentions\.\d)\.(?:to_v|value)\.", r"\1.attn.v_proj."),
    (r"(mid_block\.attentions\.\d)\.(?:to_out\.0|proj_attn)\.", r"\1.attn.out_proj."),
    (r"\.to_([qkv])\.", r".\1_proj."),
    (r"\.to_out\.0\.", ".out_proj."),
)


def sinusoids(steps: Tensor, width: int, cos_first: bool = True, shift: float = 0) -> Tensor:
    """Sines and cosines of times (n,) at `width` / 2 frequencies: (n, width)."""
    half = width // 2
    rates = np.exp(-math.log(MAX_PERIOD) * np.arange(half) / (half - shift)).astype(np.float32)
    angles = steps.cast("f32").unsqueeze(-1) * steps.graph.constant(rates)
    parts = [ops.cos(angles), ops.sin(angles)]
    return ops.cat(parts if cos_first else parts[::-1], -1)


class TimestepEmbedding(nn.Module):
    """Two linear layers around SiLU."""

    def __init__(self, graph: Graph, inputs: int, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(graph, inputs, width)
        self.linear_2 = nn.Linear(graph, width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(ops.silu(self.linear_1(x)))


class ResnetBlock(nn.Module):
    """Two convolutions after group norms; the time (batch, width) is added between them."""

    def __init__(
        self, graph: Graph, inputs: int, outputs: int, groups: int, eps: float,
        time: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm1 = nn.GroupNorm(graph, groups, inputs, eps)
        self.conv1 = nn.Conv2d(graph, inputs, outputs, 3, padding=1)
        self.time_emb_proj = None if time is None else nn.Linear(graph, time, outputs)
        self.norm2 = nn.GroupNorm(graph, groups, outputs, eps)
        self.conv2 = nn.Conv2d(graph, outputs, outputs, 3, padding=1)
        same = inputs == outputs
        self.conv_shortcut = None if same else nn.Conv2d(graph, inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.conv1(ops.silu(self.norm1(x)))
        if time is not None and self.time_emb_proj is not None:
            y = y + self.time_emb_proj(ops.silu(time)).unsqueeze(-1).unsqueeze(-1)
        y = self.conv2(ops.silu(self.norm2(y)))
        return y + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Downsample(nn.Module):
    """Half the size. uneven: zeros stand only below and to the right."""

    def __init__(self, graph: Graph, channels: int, uneven: bool = False) -> None:
        super().__init__()
        self.uneven = uneven
        self.conv = nn.Conv2d(graph, channels, channels, 3, 2, 0 if uneven else 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(ops.pad(x, (0, 1, 0, 1)) if self.uneven else x)


class Upsample(nn.Module):
    """Twice the size, or that of a shape."""

    def __init__(self, graph: Graph, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(graph, channels, channels, 3, padding=1)

    def forward(self, x: Tensor, like: Tensor | None = None) -> Tensor:
        if like is None:
            return self.conv(ops.interpolate(x, scale_factor=2.0))
        return self.conv(ops.interpolate(x, size=(like.shape[2], like.shape[3])))


class Projected(nn.Module):
    """The first layer of a feed-forward part: one matrix, and what is made of its result."""

    def __init__(self, graph: Graph, width: int, inner: int, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        self.proj = nn.Linear(graph, width, inner * (2 if gated else 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        if not self.gated:
            return ops.gelu(y, approximate="tanh")
        value, gate = ops.chunk(y, 2, -1)
        return value * ops.gelu(gate)


class FeedForward(nn.Module):
    """To four times the width and back, gated by GELU or through its approximation."""

    def __init__(self, graph: Graph, width: int, gated: bool = True) -> None:
        super().__init__()
        first, last = Projected(graph, width, 4 * width, gated), nn.Linear(graph, 4 * width, width)
        self.net = nn.Sequential(first, nn.Identity(), last)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TransformerBlock(nn.Module):
    """Attention to the picture itself, to the prompt, and a feed-forward part."""

    def __init__(self, graph: Graph, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(graph, width)
        self.attn1 = nn.Attention(graph, width, heads, bias=False, out_bias=True)
        self.norm2 = nn.LayerNorm(graph, width)
        self.attn2 = nn.Attention(
            graph, width, heads, context=context, bias=False, out_bias=True
        )
        self.norm3 = nn.LayerNorm(graph, width)
        self.ff = FeedForward(graph, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), context=context)
        return x + self.ff(self.norm3(x))


class SpatialTransformer(nn.Module):
    """Transformer blocks over the pixels of (batch, channels, height, width)."""

    def __init__(
        self, graph: Graph, channels: int, heads: int, context: int, depth: int, groups: int,
        linear: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm = nn.GroupNorm(graph, groups, channels, 1e-6)
        self.linear = linear
        self.proj_in, self.proj_out = (_mixing(graph, channels, linear) for _ in range(2))
        self.transformer_blocks = nn.ModuleList(
            TransformerBlock(graph, channels, heads, context) for _ in range(depth)
        )

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        y = self.norm(x)
        y = tokens(y) if self.linear else tokens(self.proj_in(y))
        y = self.proj_in(y) if self.linear else y
        for block in self.transformer_blocks:
            y = block(y, context)
        if self.linear:
            return pixels(self.proj_out(y), x) + x
        return self.proj_out(pixels(y, x)) + x


def _mixing(graph: Graph, channels: int, linear: bool) -> nn.Module:
    """A matrix on each pixel, in one form or the other."""
    if linear:
        return nn.Linear(graph, channels, channels)
    return nn.Conv2d(graph, channels, channels, 1)


def tokens(x: Tensor) -> Tensor:
    """(batch, channels, height, width) as (batch, pixels, channels)."""
    return x.flatten(2, 3).transpose(1, 2)


def pixels(x: Tensor, like: Tensor) -> Tensor:
    """(batch, pixels, channels) as an image of the size of another."""
    return x.transpose(1, 2).unflatten(2, (like.shape[2], like.shape[3]))
