"""The tensors of a folder, whatever kind of files it has: safetensors, or PyTorch's pickles."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import WeightsError
from .fields import Fields, read_json, regular
from .safetensors import Safetensors, shards

PICKLES = (".bin", ".pt", ".pth")


def tensor_files(directory: Path, stem: str = "") -> list[Path]:
    """The files that the tensors are in; stem: what their names begin with."""
    plain = sorted(directory.glob(f"{stem}*.safetensors*"))
    return plain or sorted(directory.glob(f"{stem or 'pytorch_model'}*.bin*"))


def read_tensors(directory: Path, stem: str = "") -> Mapping[str, np.ndarray]:
    """Names to arrays. Raises WeightsError."""
    files = tensor_files(directory, stem)
    if not any(file.name.endswith(PICKLES) or ".bin.index" in file.name for file in files):
        return Safetensors(files[0] if stem and len(files) == 1 else directory)
    index = [file for file in files if file.name.endswith(".index.json")]
    found: dict[str, np.ndarray] = {}
    if index:
        files = shards(index[0], Fields(read_json(index[0]), str(index[0])))
    for file in [each for each in files if each.name == "pytorch_model.bin"] or files:
        found |= read_pickle(file)
    return found


def read_pickle(file: Path) -> dict[str, np.ndarray]:
    """A file of `torch.save`, through `torch.load` with weights_only: it runs no code of the file.
    Raises WeightsError."""
    try:
        import torch
    except ImportError:
        raise WeightsError(
            f"{file}: PyTorch's files are read by PyTorch: pip install torch; or take the "
            "checkpoint as safetensors"
        ) from None
    try:
        if zipfile.is_zipfile(regular(file)):
            with zipfile.ZipFile(file) as parts:
                if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
                    raise ValueError("it is compressed, and would be mapped as if it were not")
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # pickle's, zip's and torch's own; one message for all
        raise WeightsError(f"{file}: not a file of plain tensors: {error}") from None
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise WeightsError(f"{file}: not a dictionary of tensors")
    try:
        return {str(name): _array(value) for name, value in state.items()}
    except (TypeError, RuntimeError) as error:  # sparse, quantised, without memory
        raise WeightsError(f"{file}: not a file of plain tensors: {error}") from None


def _array(tensor: Any) -> np.ndarray:
    """Without a copy; NumPy has no bfloat16 of its own."""
    tensor = tensor.detach()
    if str(tensor.dtype) == "torch.bfloat16":
        import torch

        found: np.ndarray = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return found
    found = tensor.numpy()
    return found
