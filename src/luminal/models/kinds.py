"""What a folder holds, by its config.json alone: nothing else is imported or read."""

from __future__ import annotations

from pathlib import Path

from ..weights.fields import Fields


def is_t5(directory: Path) -> bool:
    """A model that makes a text of a text (`seq2seq.T5`). Raises WeightsError for damaged JSON."""
    file = directory / "config.json"
    return file.is_file() and Fields.load(file).values.get("model_type") in ("t5", "mt5")
