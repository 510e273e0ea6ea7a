"""LoRA adapters (Hu and others, 2021) as the `peft` package writes them, merged."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.checkpoints import read_tensors
from ...weights.fields import Fields
from ...weights.packed import Packed

CONFIG = "adapter_config.json"
KINDS = {"float16": "f16", "bfloat16": "bf16"}
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
REFUSED = ("use_dora", "lora_bias", "megatron_config", "layer_replication",
           "trainable_token_indices")  # fmt: skip
PART = re.compile(r"(?:base_model\.model\.)?(.+?)\.lora_(A|B)(?:\.\w+)?\.weight")
SAVED = re.compile(r"(?:base_model\.model\.)?(.+?)(?:\.modules_to_save(?:\.\w+)?)?\.(weight|bias)")


def files_of(adapter: Path) -> list[Path]:
    """All that an adapter consists of."""
    return [*adapter.glob("adapter_*")]


def merged(state: Mapping[str, Any], adapter: Path, floats: str) -> dict[str, Any]:
    """weight + factor * B A, under the names of the checkpoint, made when they are asked for; the
    type of each weight stays, and what was packed becomes `floats`. Raises WeightsError or
    Unsupported."""
    config, found = Fields.load(adapter / CONFIG), dict(state)
    if config.text("peft_type", "LORA").upper() != "LORA":
        raise Unsupported(f"{config.where}: adapters of type {config.text('peft_type')!r}")
    for name in REFUSED:
        if config.values.get(name):
            raise Unsupported(f"{config.where}: {name}")
    halves: dict[str, dict[str, np.ndarray]] = {}
    for name, value in read_tensors(adapter, "adapter_model").items():
        if (part := PART.fullmatch(name)) is not None:
            halves.setdefault(part[1], {})[part[2]] = value
        elif (saved := SAVED.fullmatch(name)) is not None and f"{saved[1]}.{saved[2]}" in found:
            found[f"{saved[1]}.{saved[2]}"] = value
        else:
            raise Unsupported(f"{adapter}: tensor {name!r} of an adapter")
    for module, pair in halves.items():
        name = f"{module}.weight"
        if name not in found or pair.keys() != {"A", "B"}:
            raise WeightsError(f"{adapter}: {name!r} is not in the model, or one half is missing")
        found[name] = _sum(name, found[name], pair, _factor(config, module, len(pair["A"])), floats,
                           config.flag("fan_in_fan_out"))  # fmt: skip
    return found


def _factor(config: Fields, module: str, rank: int) -> float:
    """alpha / r, or alpha / sqrt(r); some modules have an alpha of their own."""
    alpha = config.number("lora_alpha", 8)
    for pattern, own in config.fields("alpha_pattern").values.items():
        if re.fullmatch(rf"(?:.*\.)?{pattern}", module):
            alpha = float(own)
    return alpha / (math.sqrt(rank) if config.flag("use_rslora") else rank)


def _sum(
    name: str, weight: Any, pair: Mapping[str, np.ndarray], factor: float, floats: str, turned: bool
) -> Packed:
    a, b = pair["A"], pair["B"]
    shape = (b.shape[0], a.shape[-1])
    if a.ndim != 2 or b.ndim != 2 or b.shape[1] != len(a):
        raise WeightsError(f"the halves of {name!r} are of shapes {a.shape} and {b.shape}")
    if tuple(weight.shape) != (shape[::-1] if turned else shape):
        raise WeightsError(f"{name!r} is of shape {tuple(weight.shape)}, its adapter of {shape}")
    kind = floats if isinstance(weight, Packed) else KINDS.get(weight.dtype.name, "f32")

    def make() -> np.ndarray:
        more = np.float32(factor) * (b.astype(np.float32) @ a.astype(np.float32))
        whole = np.asarray(weight).astype(np.float32) + (more.T if turned else more)
        found: np.ndarray = whole.astype(DTYPES[kind])
        return found

    return Packed(tuple(weight.shape), kind, make)
