"""The tensors that a config asks for, so that a checkpoint is refused before a program is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ... import nn
from ...errors import WeightsError
from ...graph import Graph
from ...nn.module import check_names
from .config import DecoderConfig
from .decoder import Decoder
from .projection import Blocks, Dense
from .storage import Storage

Shape = tuple[int, ...]


def check_shapes(config: DecoderConfig, given: Mapping[str, Shape], where: str) -> None:
    """Raises WeightsError where tensors are missing, left over or of another shape."""
    if config.layers > len(given):  # before so many are made
        raise WeightsError(f"{where}: {len(given)} tensors for {config.layers} layers")
    wanted = shapes(config)
    try:
        check_names(set(wanted), set(given))
    except WeightsError as error:
        raise WeightsError(f"{where}: {error}") from None
    for name, shape in wanted.items():
        if given[name] != shape:
            raise WeightsError(f"{where}: {name}: expected shape {shape}, got {given[name]}")


def matrices(config: DecoderConfig) -> frozenset[str]:
    """The names of the modules that can be stored in any kind."""
    found = _decoder(config).named_modules()
    return frozenset(name for name, module in found if isinstance(module, (Dense, Blocks)))


def shapes(config: DecoderConfig) -> dict[str, Shape]:
    """Of every parameter of `Decoder` under its name, before it is quantised."""
    parameters = _decoder(config).named_parameters()
    return {name: tuple(map(int, p.shape)) for name, p in parameters}


def _decoder(config: DecoderConfig) -> Decoder:
    still = replace(config, rotary=(None,) * config.layers)  # tables are no parameters
    with nn.uninitialised():
        return Decoder(Graph(), still, 1, Storage())
