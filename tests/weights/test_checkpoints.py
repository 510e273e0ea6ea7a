"""PyTorch's files: read without code of theirs, and never as what they are not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from luminal.errors import WeightsError
from luminal.weights.checkpoints import read_pickle, read_tensors


def test_a_file_of_plain_tensors_is_read(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3), "b": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "a.bin")
    found = read_pickle(tmp_path / "a.bin")
    assert found["w"].tolist() == [1, 1, 1] and found["b"].astype(np.float32).tolist() == [1, 1]


def test_the_usual_file_stands_for_the_folder(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "pytorch_model.bin")
    torch.save({"w": torch.zeros(3)}, tmp_path / "pytorch_model.fp32-00001-of-00002.bin")
    assert read_tensors(tmp_path)["w"].tolist() == [1, 1, 1]


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    """Mapped, the bytes of its tensors would be those of their compression."""
    plain, packed = tmp_path / "a.bin", tmp_path / "b.bin"
    torch.save({"w": torch.ones(1000)}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", 8) as target:
        for part in source.infolist():
            more = bytes(8 << 20) if "data/0" in part.filename else b""
            target.writestr(part.filename, source.read(part) + more)
    assert packed.stat().st_size > 4000  # as many bytes as the tensor has
    with pytest.raises(WeightsError, match="compressed"):
        read_pickle(packed)


@pytest.mark.parametrize("kind", ["sparse", "meta", "nested"])
def test_tensors_of_other_kinds_are_refused(tmp_path: Path, kind: str) -> None:
    made = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "meta": lambda: torch.empty(3, device="meta"),
        "nested": lambda: {"b": torch.ones(2)},
    }
    torch.save({"w": made[kind]()}, tmp_path / "a.bin")
    with pytest.raises(WeightsError, match="not a"):
        read_pickle(tmp_path / "a.bin")
