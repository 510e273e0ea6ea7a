"""Which eyes a model has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...errors import Unsupported
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from ..llm.pictures import Pictures
from .anyres import LlavaNext
from .gemma import GemmaSight
from .images import processor
from .internvl import InternSight
from .moondream import MoondreamSight
from .pixtral import PixtralSight
from .qwen import QwenSight
from .sight import Eyes, Idefics, Llava, Sight

SIGHTS: dict[str, type[Sight]] = {  # by the type of the tower, or of the whole
    "pixtral": PixtralSight, "llava": Llava, "llava_next": LlavaNext, "idefics3": Idefics,
    "smolvlm": Idefics, "qwen2_vl": QwenSight, "qwen2_5_vl": QwenSight, "qwen3_vl": QwenSight,
    "qwen3_vl_moe": QwenSight, "qwen3_5": QwenSight, "qwen3_5_moe": QwenSight,
    "gemma3": GemmaSight, "internvl": InternSight, "moondream1": MoondreamSight,
}  # fmt: skip


def sight_of(directory: Path, given: Fields, pictures: Pictures) -> Sight:
    """The eyes of a folder with this config.json. Raises Unsupported, WeightsError."""
    kinds = given.fields("vision_config").text("model_type", ""), given.text("model_type")
    found = next((SIGHTS[kind] for kind in kinds if kind in SIGHTS), None)
    if found is None:
        raise Unsupported(f"{directory}: pictures for {kinds[1]!r}; there are {', '.join(SIGHTS)}")
    return found(Eyes(given, processor(directory), partial(read_tensors, directory)), pictures)
