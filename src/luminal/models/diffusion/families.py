"""What tells pipelines apart: which encoders read a prompt, and which net predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import nn
from ...errors import Unsupported
from ...graph import Graph
from ...weights.fields import Fields
from ..vision.layers import renamed
from .blocks import RENAMES
from .folder import Folder
from .sampler import Denoiser
from .text import ClipEncoder
from .unet import UNet, UNetConfig

Conditions = dict[str, np.ndarray]  # of one picture: each (1, ...)


class Family(ABC):
    """channels: of latents. extra: channels that stand beside them. size: usual pixels of a side,
    over those of a latent pixel. steps, guidance: usual ones."""

    channels: int
    extra: int = 0
    size: int
    steps = 50
    guidance = 7.5

    @abstractmethod
    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        """What the net is given of a prompt."""

    def unprompted(self, negative: str | None, **compiling: Any) -> Conditions:
        """What the net is given without the prompt."""
        return self.encode(negative or "", **compiling)

    def sized(self, height: int, width: int) -> Conditions:
        """What else it is given for pictures of this size."""
        return {}

    def scheduler(self, given: Fields) -> Fields:
        """The scheduler's configuration as this family reads it."""
        return given

    @abstractmethod
    def denoiser(self, graph: Graph) -> Denoiser:
        """The net in a graph, with its weights."""

    def flowing(self, height: int, width: int) -> Mapping[str, Any]:
        """What `schedule.flow` is told for latents of this size."""
        return {}


class StableDiffusion(Family):
    """Versions 1 and 2: one CLIP encoder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = UNetConfig.read(folder.config("unet"))
        self.channels, self.size = self.config.out_channels, self.config.sample_size
        self.extra = self.config.in_channels - self.config.out_channels
        self._encoders: dict[str, ClipEncoder] = {}

    def encoder(self, number: str = "", **compiling: Any) -> ClipEncoder:
        """Made when first asked for."""
        if number not in self._encoders:
            self._encoders[number] = ClipEncoder(self.folder, number, **compiling)
        return self._encoders[number]

    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        return {"context": self.encoder(**compiling)(prompt)[1]}

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
        found = [self.encoder(number, **compiling)(prompt) for number in numbers]
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
}


def family_of(folder: Folder) -> Family:
    """Raises Unsupported for a pipeline that is not built."""
    if folder.kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise Unsupported(f"{folder.path}: a pipeline {folder.kind!r}; there are {known}")
    return FAMILIES[folder.kind](folder)  # type: ignore[call-arg]
