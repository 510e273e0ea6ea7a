"""Models by name: a path, or a repository of the Hugging Face hub, kept in its usual cache."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import WeightsError, to_install
from .fields import exists, regular

WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "pytorch_model*.bin"]
IDENTIFIER = re.compile(r"[\w.-]+/[\w.-]+")
FILE = re.compile(r"([\w.-]+/[\w.-]+)/(.+\.gguf)")
FIRST = re.compile(r"(.+)-00001-(of-\d{5}\.gguf)")  # of a file in parts, all of which are needed


def locate(path_or_id: str | Path) -> Path:
    """The directory or GGUF file: as given if it exists, else downloaded: "owner/name" or
    "owner/name/file.gguf". Downloads resume, show their progress and respect the hub's offline
    mode. Raises WeightsError."""
    path = Path(path_or_id).expanduser()
    if exists(path):
        return path if path.is_dir() else regular(path)
    name = str(path_or_id)
    file = FILE.fullmatch(name)
    if file is None and IDENTIFIER.fullmatch(name) is None:
        raise WeightsError(f"{name}: no such file or directory, and no name on the hub")
    try:
        import huggingface_hub as hub
    except ImportError:
        raise WeightsError(
            f"{name}: no such directory; to download models: {to_install('hub')}"
        ) from None
    try:
        if file is not None:
            parts = FIRST.fullmatch(file[2])
            if parts is None:
                return Path(hub.hf_hub_download(file[1], file[2]))
            every = [f"{parts[1]}-*-{parts[2]}"]
            return Path(hub.snapshot_download(file[1], allow_patterns=every)) / file[2]
        return Path(hub.snapshot_download(name, allow_patterns=WANTED))
    except Exception as error:  # network, rights, unknown names, offline mode: one message for all
        raise WeightsError(f"{name}: no such directory, and the hub says: {error}") from None
