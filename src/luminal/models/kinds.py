"""What a folder or a file holds, by its config.json or its first entry alone: nothing else is
imported or read."""

from __future__ import annotations

from pathlib import Path

from ..weights.fields import Fields
from ..weights.gguf import architecture_of, gguf_file

T5_FILES = ("t5", "t5encoder")  # architectures of GGUF files


def is_t5(directory: Path) -> bool:
    """A model that makes a text of a text (`seq2seq.T5`). Raises WeightsError for damaged JSON."""
    if (found := gguf_file(directory)) is not None:
        return architecture_of(found) == "t5"
    file = directory / "config.json"
    return file.is_file() and Fields.load(file).values.get("model_type") in ("t5", "mt5")
