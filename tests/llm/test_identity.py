"""A checkpoint's identity: other contents are another checkpoint, whatever the clock says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from luminal.models.llm import weights

SIZE = 40 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as written:
        written.truncate(SIZE)
    return path


def flip(path: Path, place: int) -> None:
    """Change one byte; the file keeps its size and mtime."""
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\1")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("place", [100, (1 << 20) - 1, SIZE - 1, SIZE // 3])
def test_changed_contents_are_another_checkpoint(file: Path, place: int) -> None:
    before, state = weights.identity_of([file], None), file.stat()
    assert before == weights.identity_of([file], None) != weights.identity_of([file], "q8")
    flip(file, place)
    now = file.stat()
    assert (now.st_size, now.st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert weights.identity_of([file], None) != before


def test_a_replaced_file_is_another_checkpoint(file: Path) -> None:
    """As unpacking an image with normalised times does it; no sample need tell the two apart."""
    before, state = weights.identity_of([file], None), file.stat()
    other = file.with_name("other")
    with other.open("wb") as written:
        written.truncate(SIZE)
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    os.replace(other, file)
    assert weights.identity_of([file], None) != before


def test_samples_lie_in_all_of_a_file(file: Path) -> None:
    found = {weights._sampled(file, SIZE)}
    for number in range(1, weights.SAMPLES + 1):
        flip(file, (SIZE - weights.PAGE) * number // weights.SAMPLES)
        found.add(weights._sampled(file, SIZE))
    assert len(found) == weights.SAMPLES + 1


def test_code_that_has_changed_gives_no_identity(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "version_of", lambda *_: None)
    assert weights.identity_of([file], None) is None
