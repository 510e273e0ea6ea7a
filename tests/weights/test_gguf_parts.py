"""GGUF files that are in parts, or that other machines wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.errors import Unsupported, WeightsError
from luminal.weights import GGUF
from luminal.weights.gguf import gguf_file
from luminal.weights.hub import locate

gguf = pytest.importorskip("gguf")


def write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_files_in_parts(tmp_path: Path) -> None:
    """The tensors of all parts, by the name of the first or of the folder."""
    values = np.arange(12, dtype=np.float32)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "some", split_max_tensors=1)
    for name in ("a", "b", "c"):
        writer.add_tensor(name, values + ord(name))
    write(writer)
    first, second, third = sorted(tmp_path.iterdir())
    assert gguf_file(tmp_path) == first
    file = GGUF(first)
    assert set(file) == {"a", "b", "c"} and file.files == [first, second, third]
    np.testing.assert_array_equal(file["c"].array(), values + ord("c"))
    assert file.bytes == sum(part.stat().st_size for part in file.files)
    with pytest.raises(WeightsError, match="part 2 of 3 of a model: name the first one"):
        GGUF(second)
    whole = third.read_bytes()
    third.write_bytes(second.read_bytes())
    with pytest.raises(WeightsError, match="part 2 of 3"):
        GGUF(first)
    third.write_bytes(whole.replace(b"\1\0\0\0\0\0\0\0c", b"\1\0\0\0\0\0\0\0a"))
    with pytest.raises(WeightsError, match="tensor 'a' is in another part too"):
        GGUF(first)
    third.unlink()
    with pytest.raises(WeightsError, match=r"00003-of-00003\.gguf: cannot be read"):
        GGUF(first)
    with pytest.raises(WeightsError, match="must be called NAME-00001-of-00003"):
        GGUF(first.rename(tmp_path / "x.gguf"))


def test_big_endian_files(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "some", endianess=gguf.GGUFEndian.BIG)
    write(writer)
    with pytest.raises(Unsupported, match="big-endian"):
        GGUF(tmp_path / "t.gguf")


def test_all_parts_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, asked = pytest.importorskip("huggingface_hub"), []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    found = locate("owner/name/Q8/m-00001-of-00003.gguf")
    assert found == tmp_path / "Q8" / "m-00001-of-00003.gguf"
    assert asked == [("owner/name", ["Q8/m-*-of-00003.gguf"])]
