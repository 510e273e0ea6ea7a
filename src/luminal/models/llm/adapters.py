"""LoRA adapters (Hu and others, 2021) as the `peft` package writes them, merged."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
           "trainable_token_indices", "alora_invocation_tokens", "use_qalora", "use_bdlora",
           "arrow_config")  # fmt: skip
MOVING = ("pissa", "olora", "loftq", "corda", "lora_ga")  # begins of adapters whose base moves too
PART = re.compile(r"(?:base_model\.model\.)?(.+?)\.lora_(A|B)(?:\.\w+)?\.weight")
SAVED = re.compile(r"(?:base_model\.model\.)?(.+?)(?:\.modules_to_save(?:\.\w+)?)?\.(weight|bias)")


@dataclass(frozen=True)
class Pair:
    """What is added to a matrix (out, in): factor * b a, of a (rank, in) and b (out, rank)."""

    a: np.ndarray
    b: np.ndarray
    factor: float

    def sum(self, name: str, weight: np.ndarray, turned: bool = False) -> np.ndarray:
        """Of the weight and this, f32. turned: the weight is stored (in, out)."""
        self.check(name, weight.shape, turned)
        more = np.float32(self.factor) * (self.b.astype(np.float32) @ self.a.astype(np.float32))
        found: np.ndarray = weight.astype(np.float32) + (more.T if turned else more)
        return found

    def check(self, name: str, shape: Sequence[int], turned: bool = False) -> None:
        """Raises WeightsError where they do not fit each other."""
        a, b = self.a, self.b
        if a.ndim != 2 or b.ndim != 2 or b.shape[1] != len(a):
            raise WeightsError(f"the halves of {name!r} are of shapes {a.shape} and {b.shape}")
        own = (b.shape[0], a.shape[-1])
        if tuple(shape) != (own[::-1] if turned else own):
            raise WeightsError(f"{name!r} is of shape {tuple(shape)}, its adapter of {own}")


@dataclass(frozen=True)
class Adapter:
    """pairs: by the matrix's name. saved: tensors that are put in the place of others. turned:
    matrices are stored (in, out)."""

    where: Path
    files: list[Path]
    pairs: Mapping[str, Pair]
    saved: Mapping[str, np.ndarray]
    turned: bool = False

    def check(self, names: Collection[str]) -> None:
        """Raises WeightsError for a matrix that a model with these tensors has not."""
        for name in self.pairs:
            if name not in names:
                raise WeightsError(f"{self.where}: {name!r} is not in the model")


def read_peft(adapter: Path) -> Adapter:
    """Of a folder that `peft` has written. Raises WeightsError or Unsupported."""
    config, saved = Fields.load(adapter / CONFIG), dict[str, np.ndarray]()
    if config.text("peft_type", "LORA").upper() != "LORA":
        raise Unsupported(f"{config.where}: adapters of type {config.text('peft_type')!r}")
    for name in REFUSED:
        if config.values.get(name):
            raise Unsupported(f"{config.where}: {name}")
    begin = config.values.get("init_lora_weights")
    if isinstance(begin, str) and begin.lower().startswith(MOVING):
        raise Unsupported(f"{config.where}: init_lora_weights={begin!r}: the weights under this "
                          "adapter are not the model's own; peft can convert it")  # fmt: skip
    halves: dict[str, dict[str, np.ndarray]] = {}
    for name, value in read_tensors(adapter, "adapter_model").items():
        if (part := PART.fullmatch(name)) is not None:
            halves.setdefault(part[1], {})[part[2]] = value
        elif (whole := SAVED.fullmatch(name)) is not None:
            saved[f"{whole[1]}.{whole[2]}"] = value
        else:
            raise Unsupported(f"{adapter}: tensor {name!r} of an adapter")
    factors = {
        module: _factor(config, module, len(pair.get("A", ()))) for module, pair in halves.items()
    }
    files = [*adapter.glob("adapter_*")]
    turned = config.flag("fan_in_fan_out")
    return Adapter(adapter, files, paired(adapter, halves, factors), saved, turned)


def paired(
    where: Path, halves: Mapping[str, Mapping[str, np.ndarray]], factors: Mapping[str, float]
) -> dict[str, Pair]:
    """By the names of matrices, of halves by those of modules. Raises WeightsError."""
    for module, pair in halves.items():
        if pair.keys() != {"A", "B"}:
            raise WeightsError(f"{where}: one half of {module!r} is missing")
    return {f"{module}.weight": Pair(pair["A"], pair["B"], factors[module])
            for module, pair in halves.items()}  # fmt: skip


def merged(state: Mapping[str, Any], adapter: Adapter, floats: str) -> dict[str, Any]:
    """weight + factor * B A, under the names of the checkpoint, made when they are asked for; the
    type of each weight stays, and what was packed becomes `floats`. Raises WeightsError or
    Unsupported."""
    found = dict(state)
    for name, value in adapter.saved.items():
        if name not in found:
            raise Unsupported(f"{adapter.where}: tensor {name!r} of an adapter")
        found[name] = value
    adapter.check(found)
    for name, pair in adapter.pairs.items():
        found[name] = _packed(name, found[name], pair, floats, adapter.turned)
    return found


def _factor(config: Fields, module: str, rank: int) -> float:
    """alpha / r, or alpha / sqrt(r); some modules have an alpha of their own: that of the first
    pattern which is the end of their name."""
    alpha, patterns = config.number("lora_alpha", 8), config.fields("alpha_pattern")
    for pattern in patterns.values:
        try:
            found = re.match(rf"(?:.*\.)?(?:{pattern})$", module)
        except re.error as error:
            raise WeightsError(f"{config.where}: alpha_pattern {pattern!r}: {error}") from None
        if found:
            alpha = patterns.number(pattern)
            break
    rank = max(rank, 1)
    return alpha / (math.sqrt(rank) if config.flag("use_rslora") else rank)


def _packed(name: str, weight: Any, pair: Pair, floats: str, turned: bool) -> Packed:
    pair.check(name, weight.shape, turned)
    kind = floats if isinstance(weight, Packed) else KINDS.get(weight.dtype.name, "f32")

    def make() -> np.ndarray:
        found: np.ndarray = pair.sum(name, np.asarray(weight), turned).astype(DTYPES[kind])
        return found

    return Packed(tuple(weight.shape), kind, make)
