"""The autoencoder between pictures and latents (Kingma & Welling 2013; Rombach et al. 2022,
https://arxiv.org/abs/2112.10752), under diffusers' names."""

from __future__ import annotations

from dataclasses import dataclass

from ... import nn, ops
from ...graph import Graph, Tensor
from ...weights.fields import Fields
from .blocks import Downsample, ResnetBlock, Upsample, pixels, tokens
from .unet import fixed

EPS = 1e-6
LOG_VARIANCE = (-30.0, 20.0)


@dataclass(frozen=True)
class VAEConfig:
    """Sizes of an autoencoder, under the names of its config.json."""

    in_channels: int
    out_channels: int
    latent_channels: int
    channels: tuple[int, ...]
    layers: int
    groups: int
    scaling: float
    shift: float
    quant: bool
    post_quant: bool
    attention: bool

    @staticmethod
    def read(given: Fields) -> VAEConfig:
        """Raises WeightsError where it describes another net."""
        channels = tuple(given.counts("block_out_channels"))
        for name, kind in (("down", "DownEncoderBlock2D"), ("up", "UpDecoderBlock2D")):
            if set(given.texts(f"{name}_block_types", len(channels))) != {kind}:
                raise given.wrong(f"{name}_block_types", f"a list of {kind}")
        fixed(given, {"act_fn": "silu", "latents_mean": None, "latents_std": None})
        return VAEConfig(
            given.count("in_channels", 3), given.count("out_channels", 3),
            given.count("latent_channels", 4), channels, given.count("layers_per_block", 1),
            given.count("norm_num_groups", 32), given.number("scaling_factor", 0.18215),
            given.number("shift_factor", 0), given.flag("use_quant_conv", True),
            given.flag("use_post_quant_conv", True), given.flag("mid_block_add_attention", True),
        )  # fmt: skip

    @property
    def factor(self) -> int:
        """Pixels of a side of one latent pixel."""
        return int(2 ** (len(self.channels) - 1))


class _Attention(nn.Module):
    """One head over all pixels; the input is added."""

    def __init__(self, graph: Graph, channels: int, groups: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(graph, groups, channels, EPS)
        self.attn = nn.Attention(graph, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + pixels(self.attn(tokens(self.group_norm(x))), x)


class Middle(nn.Module):
    """Two residual blocks, with attention between them."""

    def __init__(self, graph: Graph, channels: int, config: VAEConfig) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_resnet(graph, channels, channels, config) for _ in range(2))
        if config.attention:
            self.attentions = nn.ModuleList([_Attention(graph, channels, config.groups)])
        self.attention = config.attention

    def forward(self, x: Tensor) -> Tensor:
        x = self.resnets[0](x)
        return self.resnets[1](self.attentions[0](x) if self.attention else x)


def _resnet(graph: Graph, inputs: int, outputs: int, config: VAEConfig) -> ResnetBlock:
    return ResnetBlock(graph, inputs, outputs, config.groups, EPS)


class Level(nn.Module):
    """Residual blocks of one resolution, then a change of size."""

    def __init__(
        self, graph: Graph, config: VAEConfig, inputs: int, outputs: int, layers: int,
        resample: nn.Module | None, name: str,
    ) -> None:  # fmt: skip
        super().__init__()
        self.resnets = nn.ModuleList(
            _resnet(graph, outputs if n else inputs, outputs, config) for n in range(layers)
        )
        self.resample = name if resample is not None else None
        if resample is not None:
            setattr(self, name, nn.ModuleList([resample]))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.resnets:
            x = block(x)
        return x if self.resample is None else getattr(self, self.resample)[0](x)


class Encoder(nn.Module):
    """Pictures to means and log variances, along the channels."""

    def __init__(self, graph: Graph, config: VAEConfig) -> None:
        super().__init__()
        channels, count = config.channels, len(config.channels)
        self.conv_in = nn.Conv2d(graph, config.in_channels, channels[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(
            Level(graph, config, channels[max(0, n - 1)], channels[n], config.layers,
                  Downsample(graph, channels[n], uneven=True) if n < count - 1 else None,
                  "downsamplers") for n in range(count)
        )  # fmt: skip
        self.mid_block = Middle(graph, channels[-1], config)
        self.conv_norm_out = nn.GroupNorm(graph, config.groups, channels[-1], EPS)
        self.conv_out = nn.Conv2d(graph, channels[-1], 2 * config.latent_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for level in self.down_blocks:
            x = level(x)
        return self.conv_out(ops.silu(self.conv_norm_out(self.mid_block(x))))


class Decoder(nn.Module):
    """Latents to pictures."""

    def __init__(self, graph: Graph, config: VAEConfig) -> None:
        super().__init__()
        channels, count = config.channels[::-1], len(config.channels)
        self.conv_in = nn.Conv2d(graph, config.latent_channels, channels[0], 3, padding=1)
        self.mid_block = Middle(graph, channels[0], config)
        self.up_blocks = nn.ModuleList(
            Level(graph, config, channels[max(0, n - 1)], channels[n], config.layers + 1,
                  Upsample(graph, channels[n]) if n < count - 1 else None, "upsamplers")
            for n in range(count)
        )  # fmt: skip
        self.conv_norm_out = nn.GroupNorm(graph, config.groups, channels[-1], EPS)
        self.conv_out = nn.Conv2d(graph, channels[-1], config.out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mid_block(self.conv_in(x))
        for level in self.up_blocks:
            x = level(x)
        return self.conv_out(ops.silu(self.conv_norm_out(x)))


class VAEEncoder(nn.Module):
    """Pictures (batch, 3, height, width) in -1 .. 1 and noise (batch, latent channels, ...) to
    scaled latents."""

    def __init__(self, graph: Graph, config: VAEConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(graph, config)
        both = 2 * config.latent_channels
        self.quant_conv = nn.Conv2d(graph, both, both, 1) if config.quant else None

    def forward(self, pictures: Tensor, noise: Tensor) -> Tensor:
        moments = self.encoder(pictures)
        moments = moments if self.quant_conv is None else self.quant_conv(moments)
        mean, log_variance = ops.chunk(moments, 2, 1)
        deviation = ops.exp(ops.clamp(log_variance, *LOG_VARIANCE) * 0.5)
        return (mean + deviation * noise - self.config.shift) * self.config.scaling


class VAEDecoder(nn.Module):
    """Scaled latents to pictures in 0 .. 1."""

    def __init__(self, graph: Graph, config: VAEConfig) -> None:
        super().__init__()
        self.config = config
        latent = config.latent_channels
        self.post_quant_conv = nn.Conv2d(graph, latent, latent, 1) if config.post_quant else None
        self.decoder = Decoder(graph, config)

    def forward(self, latents: Tensor) -> Tensor:
        x = latents * (1 / self.config.scaling) + self.config.shift
        x = x if self.post_quant_conv is None else self.post_quant_conv(x)
        return ops.clamp(self.decoder(x) * 0.5 + 0.5, 0, 1)
