"""Files of blobs: whatever happens to a blob shows in its digest."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from luminal import container
from luminal.container import BLOCK, CACHED, ROW, Blob, whole
from luminal.errors import ArtifactError

MAGIC = b"lumtest\n"
SIZES = [0, 1, 7, 8 * ROW, CACHED + 3, BLOCK, 2 * BLOCK + CACHED + 8 * ROW + 5]


def written(path: Path, sizes: list[int], align: int = 64) -> list[Blob]:
    numbers = np.random.default_rng(0)
    with whole(path) as file:
        writer = container.Writer(file, MAGIC, align)
        for size in sizes:
            writer.add(numbers.integers(0, 256, size, np.uint8))
        writer.finish("key", {"sizes": sizes})
    about, blobs = container.read(path, MAGIC, "key")
    assert about == {"sizes": sizes}
    return blobs


@pytest.mark.parametrize("align", [64, container.PAGE])
def test_blobs_come_back_as_they_were(tmp_path: Path, align: int) -> None:
    numbers = np.random.default_rng(0)
    for size, blob in zip(SIZES, written(tmp_path / "file", SIZES, align), strict=True):
        wanted = numbers.integers(0, 256, size, np.uint8)
        room = np.empty(size, np.uint8)
        blob.read(room)
        assert blob.start % align == 0 and blob.bytes() == wanted.tobytes()
        np.testing.assert_array_equal(room, wanted)
        np.testing.assert_array_equal(blob.mapped(), wanted)


WORD = 8


def swap(data: bytearray, one: int, two: int, size: int) -> None:
    data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


HARMS = {
    "words of a row": lambda d, n: swap(d, n * WORD, (n + 9) * WORD, WORD),
    "words of a column": lambda d, n: swap(d, n * WORD, (n + ROW) * WORD, WORD),
    "rows": lambda d, n: swap(d, n * ROW * WORD, (n + 2) * ROW * WORD, ROW * WORD),
    "chunks": lambda d, n: swap(d, 0, (1 + n % 7) * CACHED, CACHED),
    "blocks": lambda d, n: swap(d, n, BLOCK + n, BLOCK),
    "zeros": lambda d, n: d.__setitem__(slice(n * 300, n * 300 + 64), bytes(64)),
    "shifted": lambda d, n: d.__setitem__(slice(n, -1), d[n + 1 :]),
    "bit": lambda d, n: d.__setitem__(n * 9001, d[n * 9001] ^ 1 << n % 8),
}


@pytest.mark.parametrize("harm", HARMS)
def test_harm_is_seen(tmp_path: Path, harm: str) -> None:
    (blob,) = written(tmp_path / "file", [2 * BLOCK + 12345])
    before, chance = (tmp_path / "file").read_bytes(), random.Random(harm)
    for _ in range(8):
        data = bytearray(before[blob.start : blob.start + blob.nbytes])
        HARMS[harm](data, chance.randrange(100))
        bad = before[: blob.start] + bytes(data) + before[blob.start + blob.nbytes :]
        assert len(bad) == len(before) and bad != before
        (tmp_path / "file").write_bytes(bad)
        for use in (Blob.bytes, Blob.mapped):
            with pytest.raises(ArtifactError, match="damaged at byte"):
                use(blob)


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    (blob,) = written(tmp_path / "file", [BLOCK + 5])
    with (tmp_path / "file").open("r+b") as file:
        file.truncate(BLOCK)
    for use in (Blob.bytes, Blob.mapped):
        with pytest.raises(ArtifactError, match="damaged"):
            use(blob)
    with pytest.raises(ArtifactError, match="cut off"):
        container.read(tmp_path / "file", MAGIC)


def test_a_missing_folder_is_told_by_the_name_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "model"
    with pytest.raises(FileNotFoundError) as told, whole(path):
        pass
    assert told.value.filename == str(path)
