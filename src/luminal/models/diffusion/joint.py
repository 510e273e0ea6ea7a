"""Families of transformers over latents: Stable Diffusion 3 and Flux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import nn
from ...graph import Graph
from ..vision.layers import renamed
from .dit import JOINT_RENAMES, DiTConfig, Transformer
from .family import Conditions, Encoders, Family
from .folder import Folder
from .sampler import Denoiser

SHORT, LONG = 256, 512  # tokens that T5 makes of a prompt
LENGTHS = (256, 4096)  # patches between which a picture's shift is drawn as a line
SHIFTS = (0.5, 1.15)


class Joint(Family):
    """What both share. Their schedules are straight lines; latents are cut in patches."""

    patch = 2
    steps = 28
    config: DiTConfig

    def __init__(self, folder: Folder, config: DiTConfig) -> None:
        self.folder, self.config = folder, config
        self.channels, self.size = config.channels, config.sample_size
        self.encoders = Encoders(folder)

    def kept(self, steps: int, strength: float) -> int:
        return int(steps - steps * strength)

    def denoiser(self, graph: Graph) -> Denoiser:
        with nn.uninitialised():
            net = Transformer(graph, self.config)
        net.load_state_dict(renamed(self.folder.weights("transformer"), JOINT_RENAMES))
        return net

    def flowing(self, height: int, width: int) -> Mapping[str, Any]:
        """Larger pictures are shifted more towards noise."""
        given = self.folder.config("scheduler", "scheduler_config.json")
        low, high = (given.number(f"{name}_image_seq_len", usual)
                     for name, usual in zip(("base", "max"), LENGTHS))  # fmt: skip
        first, last = (given.number(f"{name}_shift", usual)
                       for name, usual in zip(("base", "max"), SHIFTS))  # fmt: skip
        patches = height * width // self.patch**2
        return {"shift": first + (patches - low) * (last - first) / (high - low)}


class StableDiffusion3(Joint):
    """Two CLIP encoders and T5, or nothing in its place."""

    guidance = 7.0

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder, DiTConfig.sd3(folder.config("transformer")))

    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        found = [self.encoders.clip(number, **compiling)(prompt) for number in ("", "_2")]
        both = np.concatenate([part[0] for part in found], -1)
        width = self.config.context
        both = np.pad(both, ((0, 0), (0, 0), (0, width - both.shape[-1])))
        if self.folder.has("text_encoder_3"):
            more = self.encoders.t5("_3", SHORT, **compiling)(prompt)
        else:
            more = np.zeros((1, SHORT, width), np.float32)
        pooled = np.concatenate([part[2] for part in found], -1)
        return {"context": np.concatenate([both, more], 1), "pooled": pooled}


class Flux(Joint):
    """T5, and a CLIP encoder for the prompt as a whole; distilled nets are told the guidance."""

    guidance = 3.5

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder, DiTConfig.flux(folder.config("transformer")))
        self.distilled = True

    def encode(self, prompt: str, **compiling: Any) -> Conditions:
        return {"context": self.encoders.t5("_2", LONG, **compiling)(prompt),
                "pooled": self.encoders.clip("", **compiling)(prompt)[2]}  # fmt: skip

    def told(self, guidance: float) -> Conditions:
        if not self.config.distilled:
            return {}
        return {"told": np.array([guidance], np.float32)}

    def flowing(self, height: int, width: int) -> Mapping[str, Any]:
        return {**super().flowing(height, width), "even": True}
