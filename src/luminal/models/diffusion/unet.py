"""The UNet of Stable Diffusion 1, 2 and XL (Rombach et al. 2022, https://arxiv.org/abs/2112.10752;
Podell et al. 2023, https://arxiv.org/abs/2307.01952), under diffusers' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import nn, ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from ...weights.fields import Fields
from .blocks import (
    Downsample,
    ResnetBlock,
    SpatialTransformer,
    TimestepEmbedding,
    Upsample,
    sinusoids,
)  # fmt: skip

DOWN = {"DownBlock2D": False, "CrossAttnDownBlock2D": True}  # whether there is attention
UP = {"UpBlock2D": False, "CrossAttnUpBlock2D": True}
MIDDLE = ("UNetMidBlock2DCrossAttn",)
FIXED = {  # fields that must be as they usually are
    "act_fn": "silu", "center_input_sample": False, "dual_cross_attention": False,
    "only_cross_attention": False, "class_embed_type": None, "time_embedding_type": "positional",
    "resnet_time_scale_shift": "default", "encoder_hid_dim": None, "time_cond_proj_dim": None,
    "conv_in_kernel": 3, "conv_out_kernel": 3, "mid_block_scale_factor": 1,
    "resnet_skip_time_act": False, "resnet_out_scale_factor": 1, "timestep_post_act": None,
    "cross_attention_norm": None, "attention_type": "default", "dropout": 0,
    "downsample_padding": 1,
}  # fmt: skip


def fixed(given: Fields, usual: dict[str, Any]) -> None:
    """Raises WeightsError for a field that says something else than what is built."""
    for name, value in usual.items():
        found = given.values.get(name, value)
        if found != value and not (found is None and value in (False, 0, "default")):
            raise given.wrong(name, f"{value!r}, which alone is built")


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a UNet; lists have an entry for each resolution."""

    in_channels: int
    out_channels: int
    channels: tuple[int, ...]
    down: tuple[bool, ...]
    up: tuple[bool, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    depth: tuple[int, ...]
    context: int
    groups: int
    eps: float
    linear: bool
    cos_first: bool
    shift: float
    added: tuple[int, int] | None  # widths of each size's sinusoids and of all that is added
    sample_size: int

    @staticmethod
    def read(given: Fields) -> UNetConfig:
        """Raises WeightsError where it describes another net."""
        fixed(given, FIXED)
        given.text("mid_block_type", MIDDLE[0], among=MIDDLE)
        channels = tuple(given.counts("block_out_channels"))
        down, up = given.texts("down_block_types"), given.texts("up_block_types")
        if not channels or not len(channels) == len(down) == len(up):
            raise given.wrong("block_out_channels", "as many as there are blocks down and up")
        heads = "num_attention_heads" if given.has("num_attention_heads") else "attention_head_dim"
        size = given.values.get("sample_size")
        return UNetConfig(
            given.count("in_channels"), given.count("out_channels"), channels,
            _kinds(given, "down_block_types", DOWN), _kinds(given, "up_block_types", UP),
            _each(given, "layers_per_block", 2, len(channels)),
            _each(given, heads, 8, len(channels)),
            _each(given, "transformer_layers_per_block", 1, len(channels)),
            given.count("cross_attention_dim"), given.count("norm_num_groups", 32),
            given.number("norm_eps", 1e-5), given.flag("use_linear_projection"),
            given.flag("flip_sin_to_cos", True), given.number("freq_shift", 0),
            _added(given), size if isinstance(size, int) else 64,
        )  # fmt: skip


def _kinds(given: Fields, name: str, known: dict[str, bool]) -> tuple[bool, ...]:
    found = given.texts(name)
    if any(kind not in known for kind in found):
        raise given.wrong(name, f"a list of {', '.join(known)}")
    return tuple(known[kind] for kind in found)


def _each(given: Fields, name: str, usual: int, count: int) -> tuple[int, ...]:
    """A number for each resolution, or one for all."""
    if isinstance(given.values.get(name), list):
        return tuple(given.counts(name, count))
    return (given.count(name, usual),) * count


def _added(given: Fields) -> tuple[int, int] | None:
    if not given.has("addition_embed_type"):
        return None
    given.text("addition_embed_type", among=("text_time",))
    return (
        given.count("addition_time_embed_dim"), given.count("projection_class_embeddings_input_dim")
    )  # fmt: skip


class Level(nn.Module):
    """Residual blocks of one resolution, transformers among them, and a change of size."""

    def __init__(
        self, graph: Graph, config: UNetConfig, place: int, inputs: Sequence[int],
        attention: bool, resample: nn.Module | None, name: str,
    ) -> None:  # fmt: skip
        super().__init__()
        outputs, time = config.channels[place], 4 * config.channels[0]
        self.resnets = nn.ModuleList(
            ResnetBlock(graph, n, outputs, config.groups, config.eps, time) for n in inputs
        )
        if attention:
            self.attentions = nn.ModuleList(
                _transformer(graph, config, place) for _ in range(len(inputs))
            )
        self.attention, self.resampled = attention, resample is not None
        if resample is not None:
            setattr(self, name, nn.ModuleList([resample]))

    def layer(self, n: int, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """The n-th residual block with its transformer."""
        x = self.resnets[n](x, time)
        return self.attentions[n](x, context) if self.attention else x


class Middle(nn.Module):
    """Two residual blocks around a transformer."""

    def __init__(self, graph: Graph, config: UNetConfig) -> None:
        super().__init__()
        width, time = config.channels[-1], 4 * config.channels[0]
        self.resnets = nn.ModuleList(
            ResnetBlock(graph, width, width, config.groups, config.eps, time) for _ in range(2)
        )
        self.attentions = nn.ModuleList([_transformer(graph, config, -1)])

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x, time), context), time)


def _transformer(graph: Graph, config: UNetConfig, place: int) -> SpatialTransformer:
    return SpatialTransformer(
        graph, config.channels[place], config.heads[place], config.context, config.depth[place],
        config.groups, config.linear,
    )  # fmt: skip


class UNet(nn.Module):
    """(batch, in, height, width) at times (batch,) under a prompt (batch, tokens, context) to what
    the noise is, or another prediction: (batch, out, height, width)."""

    def __init__(self, graph: Graph, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        channels, time = config.channels, 4 * config.channels[0]
        self.conv_in = nn.Conv2d(graph, config.in_channels, channels[0], 3, padding=1)
        self.time_embedding = TimestepEmbedding(graph, channels[0], time)
        if config.added:
            self.add_embedding = TimestepEmbedding(graph, config.added[1], time)
        self.down_blocks = nn.ModuleList(_down(graph, config, n) for n in range(len(channels)))
        self.mid_block = Middle(graph, config)
        self.up_blocks = nn.ModuleList(_up(graph, config, n) for n in range(len(channels)))
        self.conv_norm_out = nn.GroupNorm(graph, config.groups, channels[0], config.eps)
        self.conv_out = nn.Conv2d(graph, channels[0], config.out_channels, 3, padding=1)

    def forward(
        self, x: Tensor, times: Tensor, context: Tensor, pooled: Tensor | None = None,
        sizes: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """pooled (batch, features) and sizes (batch, 6): what XL adds to the time."""
        config = self.config
        time = self.time_embedding(self._sinusoids(times, config.channels[0]))
        if config.added:
            assert pooled is not None and sizes is not None
            flat = self._sinusoids(sizes.flatten(), config.added[0])
            placed = flat.unflatten(0, (sizes.shape[0], -1)).flatten(1, 2)
            time = time + self.add_embedding(ops.cat([pooled, placed], -1))
        x = self.conv_in(x)
        kept = [x]
        for level in self.down_blocks:
            for n in range(len(level.resnets)):
                x = level.layer(n, x, time, context)
                kept.append(x)
            if level.resampled:
                x = level.downsamplers[0](x)
                kept.append(x)
        x = self.mid_block(x, time, context)
        for level in self.up_blocks:
            for n in range(len(level.resnets)):
                x = level.layer(n, ops.cat([x, kept.pop()], 1), time, context)
            if level.resampled:
                x = level.upsamplers[0](x, kept[-1])
        return self.conv_out(ops.silu(self.conv_norm_out(x)))

    def _sinusoids(self, values: Tensor, width: int) -> Tensor:
        return sinusoids(values, width, self.config.cos_first, self.config.shift)


def _down(graph: Graph, config: UNetConfig, place: int) -> Level:
    outputs, last = config.channels[place], place == len(config.channels) - 1
    inputs = [config.channels[max(0, place - 1)]] + [outputs] * (config.layers[place] - 1)
    change = None if last else Downsample(graph, outputs)
    return Level(graph, config, place, inputs, config.down[place], change, "downsamplers")


def _up(graph: Graph, config: UNetConfig, n: int) -> Level:
    """The n-th level upwards: each block is also given what a block downwards has made."""
    count = len(config.channels)
    place = count - 1 - n
    outputs, last = config.channels[place], place == 0
    below = config.channels[min(place + 1, count - 1)]
    layers = config.layers[place] + 1
    skips = [outputs] * (layers - 1) + [config.channels[max(0, place - 1)]]
    inputs = [x + skip for x, skip in zip([below] + [outputs] * (layers - 1), skips)]
    if len(inputs) < 2:
        raise WeightsError(f"a UNet has at least one layer in a block, not {config.layers[place]}")
    change = None if last else Upsample(graph, outputs)
    return Level(graph, config, place, inputs, config.up[n], change, "upsamplers")
