"""Transformers over latents and prompts together: Stable Diffusion 3 (Esser et al. 2024,
https://arxiv.org/abs/2403.03206) and Flux, under diffusers' names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ... import nn, ops
from ...errors import InputError
from ...graph import Graph, Tensor
from ...nn import init
from ...nn.attention import PROJECTIONS, merged
from ...weights.fields import Fields
from ..vision.layers import Rotary
from .blocks import RENAMES, FeedForward, TimestepEmbedding, sinusoids

EPS = 1e-6
TIMES = 256  # sinusoids of a time
THOUSAND = 1000.0  # what a guidance is multiplied by, as a time is
JOINT_RENAMES = (
    (r"\.attn\.add_([qkv])_proj\.", r".added.\1_proj."),
    (r"\.attn\.to_add_out\.", ".added.out_proj."),
    (r"\.attn\.norm_added_([qk])\.", r".added.\1_norm."),
    (r"\.norm_([qk])\.", r".\1_norm."),
    *RENAMES,
)


@dataclass(frozen=True)
class DiTConfig:
    """Sizes of a transformer of either kind."""

    channels: int  # of latents
    patch: int
    heads: int
    width: int
    layers: int
    context: int
    pooled: int
    norm: float | None  # the epsilon of norms of queries and keys
    sample_size: int = 128
    positions: int = 0  # SD3: patches of a side of the table of positions
    dual: tuple[int, ...] = ()  # SD3.5: layers with a second attention to the picture alone
    single: int = 0  # Flux: layers over one sequence
    axes: tuple[int, ...] = ()  # Flux: features that turn with each coordinate
    distilled: bool = False  # Flux: the guidance is an input

    @staticmethod
    def sd3(given: Fields) -> DiTConfig:
        """Raises WeightsError."""
        heads, head = given.count("num_attention_heads"), given.count("attention_head_dim")
        norm = given.has("qk_norm")
        if norm:
            given.text("qk_norm", among=("rms_norm",))
        width = heads * head
        if given.count("caption_projection_dim", width) != width:
            raise given.wrong("caption_projection_dim", f"{width}, the width of the blocks")
        return DiTConfig(
            given.count("in_channels", 16), given.count("patch_size", 2), heads, width,
            given.count("num_layers"), given.count("joint_attention_dim"),
            given.count("pooled_projection_dim"), EPS if norm else None,
            given.count("sample_size", 128), given.count("pos_embed_max_size", 96),
            tuple(given.counts("dual_attention_layers"))
            if given.has("dual_attention_layers") else (),
        )  # fmt: skip

    @staticmethod
    def flux(given: Fields) -> DiTConfig:
        """Raises WeightsError."""
        heads, head = given.count("num_attention_heads"), given.count("attention_head_dim")
        axes = given.counts("axes_dims_rope", 3) if given.has("axes_dims_rope") else (16, 56, 56)
        if sum(axes) != head or any(axis % 2 for axis in axes):
            raise given.wrong("axes_dims_rope", f"even numbers whose sum is {head}")
        return DiTConfig(
            given.count("in_channels", 64) // 4, 2, heads, heads * head, given.count("num_layers"),
            given.count("joint_attention_dim"), given.count("pooled_projection_dim"), EPS,
            single=given.count("num_single_layers", low=0), axes=tuple(axes),
            distilled=given.flag("guidance_embeds"),
        )  # fmt: skip


def _norm(x: Tensor) -> Tensor:
    return ops.layer_norm(x, (x.shape[-1],), eps=EPS)


def _moved(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x (batch, tokens, width), the others (batch, width)."""
    return x * (scale.unsqueeze(1) + 1) + shift.unsqueeze(1)


def _norms(config: DiTConfig) -> Callable[[Graph, int], nn.Module] | None:
    """Of queries and keys."""
    if config.norm is None:
        return None
    return lambda graph, width: nn.RMSNorm(graph, width, config.norm)


class Modulation(nn.Module):
    """Shifts, scales and gates that follow from the time and the prompt."""

    def __init__(self, graph: Graph, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear = nn.Linear(graph, width, count * width)

    def forward(self, time: Tensor) -> list[Tensor]:
        return ops.chunk(self.linear(ops.silu(time)), self.count, 1)


class JointBlock(nn.Module):
    """Picture and prompt with weights of their own, and one attention over both. last: nothing is
    made of the prompt any more."""

    def __init__(
        self, graph: Graph, config: DiTConfig, last: bool = False, dual: bool = False
    ) -> None:
        super().__init__()
        width, heads, norm = config.width, config.heads, _norms(config)
        self.last, self.dual = last, dual
        self.norm1 = Modulation(graph, width, 9 if dual else 6)
        self.norm1_context = Modulation(graph, width, 2 if last else 6)
        self.attn = nn.Attention(graph, width, heads, norm=norm)
        names = PROJECTIONS[:3] if last else PROJECTIONS
        self.added = nn.Attention(graph, width, heads, norm=norm, names=names)
        self.ff = FeedForward(graph, width, gated=False)
        if dual:
            self.attn2 = nn.Attention(graph, width, heads, norm=norm)
        if not last:
            self.ff_context = FeedForward(graph, width, gated=False)

    def forward(
        self, x: Tensor, prompt: Tensor, time: Tensor, rotary: Rotary | None = None
    ) -> tuple[Tensor, Tensor]:
        shift, scale, gate, *rest = self.norm1(time)
        of_prompt = self.norm1_context(time)
        near = _moved(_norm(x), shift, scale)
        if self.last:
            told = _moved(_norm(prompt), of_prompt[1], of_prompt[0])
        else:
            told = _moved(_norm(prompt), of_prompt[0], of_prompt[1])
        parts = zip(self.added.project(told), self.attn.project(near))
        q, k, v = (ops.cat([theirs, ours], 2) for theirs, ours in parts)
        if rotary is not None:
            q, k = rotary(q), rotary(k)
        mixed = merged(ops.scaled_dot_product_attention(q, k, v))
        words = int(prompt.shape[1])
        of_words, of_picture = mixed[:, :words], mixed[:, words:]
        y = x + self.attn.result(of_picture) * gate.unsqueeze(1)
        if self.dual:
            shift2, scale2, gate2 = rest[3:]
            y = y + self.attn2(_moved(_norm(x), shift2, scale2)) * gate2.unsqueeze(1)
        x = y + self.ff(_moved(_norm(y), rest[0], rest[1])) * rest[2].unsqueeze(1)
        if self.last:
            return x, prompt
        prompt = prompt + self.added.result(of_words) * of_prompt[2].unsqueeze(1)
        moved = _moved(_norm(prompt), of_prompt[3], of_prompt[4])
        return x, prompt + self.ff_context(moved) * of_prompt[5].unsqueeze(1)


class SingleBlock(nn.Module):
    """Attention and a feed-forward part side by side, over prompt and picture as one sequence."""

    def __init__(self, graph: Graph, config: DiTConfig) -> None:
        super().__init__()
        width = config.width
        self.norm = Modulation(graph, width, 3)
        self.proj_mlp = nn.Linear(graph, width, 4 * width)
        self.proj_out = nn.Linear(graph, 5 * width, width)
        self.attn = nn.Attention(
            graph, width, config.heads, norm=_norms(config), names=PROJECTIONS[:3]
        )

    def forward(self, x: Tensor, time: Tensor, rotary: Rotary) -> Tensor:
        shift, scale, gate = self.norm(time)
        y = _moved(_norm(x), shift, scale)
        q, k, v = self.attn.project(y)
        mixed = merged(ops.scaled_dot_product_attention(rotary(q), rotary(k), v))
        wide = ops.gelu(self.proj_mlp(y), approximate="tanh")
        return x + self.proj_out(ops.cat([mixed, wide], -1)) * gate.unsqueeze(1)


class TimeEmbedding(nn.Module):
    """Of a time, a pooled prompt, and a guidance if the net is told one: their sum."""

    def __init__(self, graph: Graph, config: DiTConfig) -> None:
        super().__init__()
        width = config.width
        self.timestep_embedder = TimestepEmbedding(graph, TIMES, width)
        self.text_embedder = TimestepEmbedding(graph, config.pooled, width)
        if config.distilled:
            self.guidance_embedder = TimestepEmbedding(graph, TIMES, width)

    def forward(self, times: Tensor, pooled: Tensor, told: Tensor | None) -> Tensor:
        found = self.timestep_embedder(sinusoids(times, TIMES)) + self.text_embedder(pooled)
        if told is None:
            return found
        return found + self.guidance_embedder(sinusoids(told * THOUSAND, TIMES))


class Table(nn.Module):
    """Patches (batch, patches, width) and their places, out of the middle of a square table."""

    def __init__(self, graph: Graph, config: DiTConfig) -> None:
        super().__init__()
        self.side, patch = config.positions, config.patch
        self.proj = nn.Conv2d(graph, config.channels, config.width, patch, patch)
        self.pos_embed = init.normal(graph, (1, self.side**2, config.width), 1.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        height, width = int(y.shape[2]), int(y.shape[3])
        if max(height, width) > self.side:
            raise InputError(f"{height} x {width} patches; this model knows {self.side} a side")
        top, left = (self.side - height) // 2, (self.side - width) // 2
        table = self.pos_embed.unflatten(1, (self.side, self.side))
        places = table[:, top : top + height, left : left + width].flatten(1, 2)
        return y.flatten(2, 3).transpose(1, 2) + places


class Transformer(nn.Module):
    """What both kinds share: latents (batch, channels, height, width) at times (batch,) under a
    prompt (batch, tokens, context) and a pooled one to velocities of the same shape."""

    def __init__(self, graph: Graph, config: DiTConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.flux = bool(config.axes)
        inputs = config.channels * config.patch**2
        if self.flux:
            self.x_embedder = nn.Linear(graph, inputs, width)
        else:
            self.pos_embed = Table(graph, config)
        self.time_text_embed = TimeEmbedding(graph, config)
        self.context_embedder = nn.Linear(graph, config.context, width)
        ends = [n == config.layers - 1 and not self.flux for n in range(config.layers)]
        self.transformer_blocks = nn.ModuleList(
            JointBlock(graph, config, end, n in config.dual) for n, end in enumerate(ends)
        )
        if self.flux:
            singles = (SingleBlock(graph, config) for _ in range(config.single))
            self.single_transformer_blocks = nn.ModuleList(singles)
        self.norm_out = Modulation(graph, width, 2)
        self.proj_out = nn.Linear(graph, width, inputs)

    def forward(
        self, x: Tensor, times: Tensor, context: Tensor, pooled: Tensor, told: Tensor | None = None
    ) -> Tensor:
        """told: the guidance (batch,), of a net that is given one."""
        patch = self.config.patch
        height, width = int(x.shape[2]) // patch, int(x.shape[3]) // patch
        time = self.time_text_embed(times, pooled, told)
        prompt = self.context_embedder(context)
        y = self.x_embedder(packed(x, patch)) if self.flux else self.pos_embed(x)
        words = int(prompt.shape[1])
        rotary = _turning(x.graph, self.config.axes, words, height, width) if self.flux else None
        for block in self.transformer_blocks:
            y, prompt = block(y, prompt, time, rotary)
        if self.flux:
            both = ops.cat([prompt, y], 1)
            for block in self.single_transformer_blocks:
                both = block(both, time, rotary)
            y = both[:, words:]
        scale, shift = self.norm_out(time)
        y = self.proj_out(_moved(_norm(y), shift, scale))
        if self.flux:
            return unpacked(y, height, width, patch)
        # (batch, height, width, patch, patch, channels) to (batch, channels, ...)
        whole = y.unflatten(1, (height, width)).unflatten(3, (patch, patch, -1))
        return whole.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def packed(x: Tensor, patch: int) -> Tensor:
    """(batch, channels, height, width) as patches (batch, patches, channels patch patch)."""
    cut = x.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3, 5).flatten(1, 2)


def unpacked(x: Tensor, height: int, width: int, patch: int) -> Tensor:
    """Back again, from so many patches."""
    cut = x.unflatten(1, (height, width)).unflatten(3, (-1, patch, patch))
    return cut.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def _turning(graph: Graph, axes: Sequence[int], words: int, height: int, width: int) -> Rotary:
    """Words stand at 0; a patch turns with its row and its column."""
    rows, columns = np.divmod(np.arange(height * width), width)
    places = np.zeros((words + height * width, 3))
    places[words:, 1], places[words:, 2] = rows, columns
    angles = np.concatenate(
        [places[:, n : n + 1] * 10_000.0 ** -(np.arange(0, size, 2) / size)
         for n, size in enumerate(axes)], 1
    )  # fmt: skip
    cos, sin = (graph.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    return lambda x: ops.apply_rotary_pairs(x, cos, sin)
