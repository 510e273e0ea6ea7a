"""Where a model comes from: a directory as Hugging Face writes it, or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ...errors import WeightsError
from .checkpoint import float_kind, read_config, read_state
from .config import DecoderConfig
from .gguf_source import GGUFSource
from .storage import FLOATS, Storage
from .text import Tokenizer, load_tokenizer
from .weights import Deferred


class Source(Protocol):
    """A checkpoint that can be loaded."""

    config: DecoderConfig

    @property
    def files(self) -> list[Path]:
        """All that the tensors come from."""

    def load(self, quant: str | None) -> tuple[Deferred, Storage]:
        """The tensors of `Decoder` and how its matrices are stored; quant: a kind for all
        matrices, None for that of the checkpoint. Raises WeightsError."""

    def tokenizer(self) -> Tokenizer:
        """Raises WeightsError where there is none."""


class DirectorySource:
    """config.json, *.safetensors, tokenizer.json."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._family, self.config = read_config(directory)

    @property
    def files(self) -> list[Path]:
        return [*self.directory.glob("*.safetensors*"), self.directory / "config.json"]

    def load(self, quant: str | None) -> tuple[Deferred, Storage]:
        state = read_state(self.directory, self._family, self.config)
        return Deferred.of(state), storage_for(quant or float_kind(state))

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.directory)


def storage_for(kind: str) -> Storage:
    """Matrices of one kind; with 4 bits, the table of tokens and the head keep 8."""
    if kind in FLOATS or kind == "q8":
        return Storage(kind)
    return Storage(kind, {"model.embed_tokens": "q8", "lm_head": "q8"})


def open_source(path: Path) -> Source:
    """The checkpoint at a path. Raises WeightsError or Unsupported."""
    if path.is_dir():
        return DirectorySource(path)
    if path.suffix == ".gguf":
        return GGUFSource(path)
    raise WeightsError(f"{path}: neither a directory with a config.json nor a .gguf file")
