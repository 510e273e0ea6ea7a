"""What a pipeline's family says: which encoders read a prompt, and which net predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...graph import Graph
from ...weights.fields import Fields
from .folder import Folder
from .sampler import Denoiser
from .text import ClipEncoder, T5Prompts

Conditions = dict[str, np.ndarray]  # of one picture: each (1, ...)


class Encoders:
    """Text encoders of a folder by their numbers, each made when first asked for."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._clips: dict[str, ClipEncoder] = {}
        self._t5: T5Prompts | None = None

    @property
    def programs(self) -> list[Any]:
        """Of those that were made."""
        return [each.program for each in (*self._clips.values(), self._t5) if each is not None]

    def clip(self, number: str = "", **compiling: Any) -> ClipEncoder:
        if number not in self._clips:
            self._clips[number] = ClipEncoder(self.folder, number, **compiling)
        return self._clips[number]

    def t5(self, number: str, length: int, **compiling: Any) -> T5Prompts:
        if self._t5 is None:
            self._t5 = T5Prompts(self.folder, number, length, **compiling)
        return self._t5


class Family(ABC):
    """channels: of latents. extra: channels that stand beside them. patch: latent pixels of a side
    that the net sees as one. size: usual latent pixels of a side. steps, guidance: usual ones.
    distilled: there is no second run without the prompt."""

    channels: int
    encoders: Encoders
    extra: int = 0
    patch: int = 1
    distilled: bool = False
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

    def told(self, guidance: float) -> Conditions:
        """The guidance, for a net that is told it."""
        return {}

    def scheduler(self, given: Fields) -> Fields:
        """The scheduler's configuration as this family reads it."""
        return given

    def kept(self, steps: int, strength: float) -> int:
        """Steps that are left out where a picture is changed by strength (0 .. 1)."""
        return steps - int(steps * strength)

    @abstractmethod
    def denoiser(self, graph: Graph) -> Denoiser:
        """The net in a graph, with its weights."""

    def flowing(self, height: int, width: int) -> Mapping[str, Any]:
        """What `schedule.flow` is told for latents of this size."""
        return {}
