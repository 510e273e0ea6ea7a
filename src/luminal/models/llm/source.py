"""Where a model comes from: a directory as Hugging Face writes it, or a GGUF file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ...errors import WeightsError
from ...weights.checkpoints import tensor_files
from ...weights.gguf import gguf_file
from ...weights.packed import Packed
from ...weights.quants import Quants
from .adapters import Adapter
from .checkpoint import adapted, float_kind, read_config, read_state, read_values
from .config import DecoderConfig
from .gguf_adapter import read_adapter
from .gguf_source import GGUFSource
from .pictures import Pictures, pictures_for
from .shapes import matrices
from .storage import FLOATS, Storage, block_fields, block_makers
from .text import Tokenizer, load_tokenizer
from .weights import Deferred, Maker


class Source(Protocol):
    """A checkpoint that can be loaded."""

    config: DecoderConfig
    pictures: Pictures | None  # of a model that sees

    @property
    def files(self) -> list[Path]:
        """All that the tensors come from."""

    def load(self, quant: str | None) -> tuple[Deferred, Storage]:
        """The tensors of `Decoder` and how its matrices are stored; quant: a kind for all
        matrices, None for that of the checkpoint. Raises WeightsError."""

    def as_they_are(self) -> set[str]:
        """Tensors that `Decoder` has under the checkpoint's names, row for row."""

    def tokenizer(self) -> Tokenizer:
        """Raises WeightsError where there is none."""


class DirectorySource:
    """config.json, *.safetensors or *.bin, tokenizer.json. lora: what is added to its weights."""

    lora: Adapter | None = None

    def __init__(self, directory: Path) -> None:
        self.directory, self._values = directory, read_values(directory)
        self._family, self.config = read_config(directory, self._values)
        self.pictures = pictures_for(directory, self.config) if self.config.pictures else None

    @property
    def files(self) -> list[Path]:
        own = [*tensor_files(self.directory), self.directory / "config.json"]
        return own if self.lora is None else [*own, *self.lora.files]

    def load(self, quant: str | None) -> tuple[Deferred, Storage]:
        state = read_state(self.directory, self._values, self.lora)
        state = adapted(state, self._family, self.config)
        packed = {name: value for name, value in state.items() if isinstance(value, Packed)}
        plain = {name: value for name, value in state.items() if name not in packed}
        storage = storage_for(quant or float_kind(plain))
        if not packed:
            return Deferred.of(state), storage
        keep = matrices(self.config) if quant is None else frozenset[str]()
        return with_packed(state, keep, storage)

    def as_they_are(self) -> set[str]:
        state = read_state(self.directory, self._values)
        ours = adapted(dict(state), self._family, self.config)
        return {name for name, value in ours.items() if state.get(name) is value}

    def tokenizer(self) -> Tokenizer:
        text = load_tokenizer(self.directory)
        if self.pictures is not None:
            from ..vision.eyes import sight_of

            text.sight = sight_of(self.directory, self._values, self.pictures)
        return text


def storage_for(kind: str) -> Storage:
    """Matrices of one kind; with 4 bits, the table of tokens and the head keep 8."""
    if kind in FLOATS or kind == "q8":
        return Storage(kind)
    return Storage(kind, {"model.embed_tokens": "q8", "lm_head": "q8"})


def with_packed(
    state: Mapping[str, Any], keep: Collection[str], storage: Storage
) -> tuple[Deferred, Storage]:
    """Tensors some of which are `Packed`. keep: matrices that are stored as they are packed; the
    others become f32."""
    makers: dict[str, Maker] = {}
    exact = dict(storage.exact)
    for name, value in state.items():
        path = name.rpartition(".")[0]
        if not isinstance(value, Packed) or path not in keep:
            makers[name] = partial(np.asarray, value)
        else:
            exact[path] = value.kind
            makers |= _makers(path, value)
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    size = sum(value.nbytes for value in state.values())
    return Deferred(makers, size, shapes), replace(storage, exact=exact)


def _makers(path: str, value: Packed) -> dict[str, Maker]:
    """Of one matrix."""
    if value.kind in FLOATS:
        return {f"{path}.weight": cast(Maker, value.make)}

    def fields() -> dict[str, np.ndarray]:
        made = value.make()
        assert isinstance(made, Quants)
        return block_fields(made, value.kind)

    return cast(dict[str, Maker], block_makers(path, value.kind, fields))


def open_source(path: Path, lora: Path | None = None, mmproj: Path | None = None) -> Source:
    """The checkpoint at a path. lora: an adapter's folder or GGUF file. mmproj: the eyes of a GGUF
    file. Raises WeightsError or Unsupported."""
    source: DirectorySource | GGUFSource
    if (file := gguf_file(path)) is not None:
        source = GGUFSource(file, mmproj)
    elif mmproj is not None:
        raise WeightsError(f"{mmproj}: an mmproj file is for a model in a GGUF file")
    elif path.is_dir():
        source = DirectorySource(path)
    else:
        raise WeightsError(f"{path}: neither a directory with a config.json nor a .gguf file")
    if lora is not None:
        source.lora = read_adapter(lora, source.config)
    return source
