"""Which eyes a model has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...errors import Unsupported
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .gemma import GemmaSight
from .images import processor
from .internvl import InternSight
from .moondream import MoondreamSight
from .qwen import QwenSight
from .sight import Eyes, Idefics, Llava, Sight

SIGHTS: dict[str, type[Sight]] = {
    "llava": Llava, "idefics3": Idefics, "smolvlm": Idefics, "qwen2_vl": QwenSight,
    "qwen2_5_vl": QwenSight, "qwen3_vl": QwenSight, "gemma3": GemmaSight,
    "internvl": InternSight, "moondream1": MoondreamSight,
}  # fmt: skip


def sight_of(directory: Path, given: Fields, pictures: Pictures) -> Sight:
    """The eyes of a folder with this config.json. Raises Unsupported, WeightsError."""
    kind = given.text("model_type")
    if kind not in SIGHTS:
        raise Unsupported(f"{directory}: pictures for {kind!r}; there are {', '.join(SIGHTS)}")
    eyes = Eyes(given, processor(directory), partial(read_tensors, directory))
    return SIGHTS[kind](eyes, pictures)
