"""Layers that mix tokens by other means than attention; each file is one kind: what a config says
of it (`Mixer`), and its module. A family names the mixer of each layer, `DecoderConfig.mixers`."""

from .convolution import ShortConvolution
from .delta import GatedDelta
from .mamba import Mamba
from .mamba2 import Mamba2
from .rwkv import ChannelMix, TimeMix
from .rwkv6 import TimeMix6

__all__ = [
    "ChannelMix",
    "GatedDelta",
    "Mamba",
    "Mamba2",
    "ShortConvolution",
    "TimeMix",
    "TimeMix6",
]
