"""Adapters in GGUF files (general.type = adapter), as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import Unsupported, WeightsError
from ...weights.fields import Fields
from ...weights.gguf import GGUF
from .adapters import Adapter, paired, read_peft
from .config import DecoderConfig
from .gguf_architectures import ARCHITECTURES
from .gguf_source import our_name, unpermuted

SHAPED = ("mistral", "ministral", "mixtral", "smollm3")  # families whose files are called llama's


def read_adapter(path: Path, config: DecoderConfig) -> Adapter:
    """Of a folder of `peft`, or of a GGUF file, whose tensors get our names and order; config: of
    the model. Raises WeightsError or Unsupported."""
    return _of_gguf(path, config) if path.suffix == ".gguf" else read_peft(path)


def _of_gguf(path: Path, config: DecoderConfig) -> Adapter:
    file = GGUF(path)
    given = Fields(file.metadata, str(path))
    if given.text("general.type", "model") != "adapter":
        raise WeightsError(f"{path}: a GGUF file of a model, not of an adapter")
    if given.text("adapter.type", "lora") != "lora":
        raise Unsupported(f"{path}: adapters of type {given.text('adapter.type')!r}")
    architecture = given.text("general.architecture")
    own = ARCHITECTURES.get(architecture)
    known = {own and own.family, *(SHAPED if architecture == "llama" else ())}
    if own is None or config.family not in known:
        raise WeightsError(f"{path}: for {architecture!r}, the model is of {config.family!r}")
    halves: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in file.items():
        stem, _, half = name.rpartition(".lora_")
        if half not in ("a", "b"):
            raise Unsupported(f"{path}: tensor {name!r} of an adapter")
        module = our_name(stem, own, str(path)).removesuffix(".weight")
        value = tensor.array()
        if half == "b":
            value = unpermuted(f"{module}.weight", value, own.turned, config)
        halves.setdefault(module, {})[half.upper()] = value
    alpha = given.number("adapter.lora.alpha", 0.0)
    ranks = {module: len(pair.get("A", (0,))) for module, pair in halves.items()}
    factors = {module: alpha / rank if alpha else 1.0 for module, rank in ranks.items()}
    return Adapter(path, [path], paired(path, halves, factors), {})
