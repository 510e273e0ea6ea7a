"""Families of language models: config.json -> DecoderConfig, names of a checkpoint -> ours.

A new family is one short file with a `Family` in it, and its line here.
"""

from __future__ import annotations

from ....errors import Unsupported
from ....weights.fields import Fields
from .deepseek import DEEPSEEK_V2, DEEPSEEK_V3, GLM4_MOE, GLM4_MOE_LITE, KIMI_K2
from .family import Family
from .gemma import GEMMA, GEMMA2, GEMMA3_TEXT
from .gemma3n import GEMMA3N, GEMMA3N_TEXT, GEMMA4, GEMMA4_TEXT
from .glm import GLM, GLM4
from .gpt2 import GPT2
from .gpt_oss import GPT_OSS
from .granite import GRANITE, GRANITE_HYBRID, GRANITE_MOE, GRANITE_MOE_SHARED
from .lfm2 import LFM2, LFM2_MOE
from .llama import BITNET, LLAMA, MINISTRAL, MINISTRAL3, MISTRAL, SMOLLM3
from .llama4 import LLAMA4, LLAMA4_TEXT
from .mamba import BAMBA, FALCON_MAMBA, JAMBA, MAMBA, MAMBA2
from .mixtral import MIXTRAL
from .moondream import MOONDREAM
from .olmo import OLMO, OLMO2, OLMO3, OLMOE
from .parallel import COHERE, COHERE2, FALCON, GPT_NEOX, PHI, STABLELM, STARCODER2
from .phi import PHI3
from .qwen import QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE, QWEN_VL
from .qwen_next import QWEN3_5_MOE_TEXT, QWEN3_5_TEXT, QWEN3_NEXT
from .rwkv import RWKV7
from .rwkv6 import RWKV6

FAMILIES = {
    family.name: family
    for family in (
        LLAMA, MISTRAL, MINISTRAL, MIXTRAL, QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE, PHI, PHI3, GEMMA,
        GEMMA2, GEMMA3_TEXT, GPT2, SMOLLM3, OLMO, OLMO2, OLMO3, OLMOE, GRANITE, GRANITE_MOE,
        GRANITE_MOE_SHARED, GLM, GLM4, COHERE, COHERE2, FALCON, GPT_NEOX, STABLELM, STARCODER2,
        GPT_OSS, DEEPSEEK_V2, DEEPSEEK_V3, KIMI_K2, GLM4_MOE, GLM4_MOE_LITE, BITNET,
        GRANITE_HYBRID, LFM2, LFM2_MOE, MAMBA, FALCON_MAMBA, MAMBA2, JAMBA, BAMBA, QWEN3_NEXT,
        QWEN3_5_TEXT, QWEN3_5_MOE_TEXT, RWKV6, RWKV7, MINISTRAL3, LLAMA4, LLAMA4_TEXT,
        GEMMA3N, GEMMA3N_TEXT, GEMMA4, GEMMA4_TEXT, MOONDREAM, *QWEN_VL,
    )
}  # fmt: skip


def family_of(values: Fields) -> Family:
    """The family that a config.json names by model_type. Raises Unsupported."""
    name = values.text("model_type")
    if name not in FAMILIES:
        raise Unsupported(
            f"{values.where}: unknown architecture {name!r}; there are {', '.join(FAMILIES)}"
        )
    return FAMILIES[name]


__all__ = ["FAMILIES", "Family", "family_of"]
