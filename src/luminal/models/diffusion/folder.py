"""Folders as diffusers writes them: model_index.json, and a folder for each part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import WeightsError
from ...weights import Safetensors
from ...weights.checkpoints import read_pickle
from ...weights.fields import Fields, exists

INDEX = "model_index.json"
NAMES = ("diffusion_pytorch_model", "pytorch_model")  # of files of weights


class Folder:
    """A pipeline's folder. kind: the class of its index. Raises WeightsError."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not exists(self.path) or not self.path.is_dir():
            raise WeightsError(f"{self.path}: no such folder")
        if not exists(self.path / INDEX):
            raise WeightsError(
                f"{self.path}: no {INDEX}; a folder of diffusers is needed (save_pretrained)"
            )
        self.index = Fields.load(self.path / INDEX)
        self.kind = self.index.text("_class_name")

    def has(self, part: str) -> bool:
        """Whether the index names a part that is not left out."""
        named = self.index.values.get(part)
        return isinstance(named, list) and len(named) == 2 and named[1] is not None

    def part(self, name: str) -> Path:
        """The folder of a part."""
        place = self.path / name
        if not self.has(name) or not exists(place):
            raise WeightsError(f"{self.path}: no part {name!r}")
        return place

    def config(self, part: str, file: str = "config.json") -> Fields:
        """The configuration of a part."""
        return Fields.load(self.part(part) / file)

    def weights(self, part: str) -> Mapping[str, np.ndarray]:
        """The tensors of a part; full precision where there are variants."""
        return weights_of(self.part(part))


def weights_of(place: Path) -> Mapping[str, np.ndarray]:
    """The tensors of a folder: of a sharded model, of the file of the usual name, or of the only
    variant; without safetensors those of PyTorch's file. Raises WeightsError."""
    pickles = [place / f"{name}.bin" for name in NAMES if exists(place / f"{name}.bin")]
    if pickles and not any(place.glob("*.safetensors*")):
        return read_pickle(pickles[0])
    files = [file for file in sorted(place.glob("*.safetensors")) if file.stem.count(".") == 0]
    plain = [file for file in files if file.stem in ("model", NAMES[0])]
    if sorted(place.glob("*.safetensors.index.json")) or not plain:
        variants = sorted(place.glob("*.fp16.safetensors"))
        many = list(place.glob("*.index.json"))
        return Safetensors(variants[0] if variants and not many and not files else place)
    return Safetensors(plain[0])


def f32(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A state in which floats have 32 bits."""
    return {name: np.asarray(value, np.float32) for name, value in state.items()}
