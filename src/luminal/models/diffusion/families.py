"""What tells pipelines apart: which encoders read a prompt, and which net predicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import nn
from ...errors import Unsupported
from ...graph import Graph
from ...weights.fields import Fields
from ..vision.layers import renamed
from .blocks import RENAMES
from .family import Conditions, Encoders, Family
from .folder import Folder
from .joint import Flux, StableDiffusion3
from .sampler import Denoiser
from .unet import UNet, UNetConfig


class StableDiffusion(Family):
    """Versions 1 and 2: one CLIP encoder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = UNetConfig.read(folder.config("unet"))
        self.channels, self.size = self.config.out_channels, self.config.sample_size
        self.extra = self.config.in_channels - self.config.out_channels
        self.encoders = Encoders(folder)

    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        return {"context": self.encoders.clip(**compiling)(prompt)[1]}

    def scheduler(self, given: Fields) -> Fields:
        """Latents are never clipped; times are counted from 1."""
        return Fields({**given.values, "clip_sample": False, "steps_offset": 1}, given.where)

    def denoiser(self, graph: Graph) -> Denoiser:
        with nn.uninitialised():
            net = UNet(graph, self.config)
        net.load_state_dict(renamed(self.folder.weights("unet"), RENAMES))
        return net


class StableDiffusionXL(StableDiffusion):
    """Two CLIP encoders side by side, and the size of the picture in the time."""

    guidance = 5.0

    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        numbers = ["", "_2"] if self.folder.has("text_encoder") else ["_2"]
        found = [self.encoders.clip(number, **compiling)(prompt) for number in numbers]
        return {"context": np.concatenate([part[0] for part in found], -1), "pooled": found[-1][2]}

    def unprompted(self, negative: str | None, **compiling: Any) -> Conditions:
        if negative is None and self.folder.index.flag("force_zeros_for_empty_prompt", True):
            return {n: np.zeros_like(v) for n, v in self.encode("", **compiling).items()}
        return self.encode(negative or "", **compiling)

    def scheduler(self, given: Fields) -> Fields:
        return given

    def sized(self, height: int, width: int) -> Conditions:
        if self.folder.index.flag("requires_aesthetics_score"):
            raise Unsupported(f"{self.folder.path}: a refiner, which is told a score of beauty")
        return {"sizes": np.array([[height, width, 0, 0, height, width]], np.float32)}


FAMILIES: dict[str, type[Family]] = {
    "StableDiffusionPipeline": StableDiffusion,
    "StableDiffusionImg2ImgPipeline": StableDiffusion,
    "StableDiffusionInpaintPipeline": StableDiffusion,
    "StableDiffusionXLPipeline": StableDiffusionXL,
    "StableDiffusionXLImg2ImgPipeline": StableDiffusionXL,
    "StableDiffusionXLInpaintPipeline": StableDiffusionXL,
    "StableDiffusion3Pipeline": StableDiffusion3,
    "FluxPipeline": Flux,
}


def family_of(folder: Folder) -> Family:
    """Raises Unsupported for a pipeline that is not built."""
    if folder.kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Unsupported(f"{folder.path}: a pipeline {folder.kind!r}; there are {known}")
    return FAMILIES[folder.kind](folder)  # type: ignore[call-arg]
