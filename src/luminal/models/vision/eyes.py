"""Which eyes a model has."""

from __future__ import annotations

from pathlib import Path

from ...errors import Unsupported
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .gemma import GemmaSight
from .internvl import InternSight
from .moondream import MoondreamSight
from .qwen import QwenSight
from .sight import Idefics, Llava, Sight

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
    return SIGHTS[kind](directory, given, pictures)
