"""The language model that luminal has trained: found by its name, and as good as its card says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from luminal import LLM
from luminal.cli import main
from luminal.errors import WeightsError
from luminal.models.llm.gguf_source import GGUFSource
from luminal.models.llm.packaged import OWN
from luminal.models.llm.source import open_source

PASSAGE = """He found too late, in short, that he had entangled himself; and that precisely as he \
became fully satisfied of his not caring for Louisa at all, he must regard himself as bound to \
her, if her sentiments for him were what the Harvilles supposed. It determined him to leave Lyme."""
UNIFORM, COUNTED = 7.0, 1.84  # bits per byte: of ASCII, and of counts of six bytes (its card)


def test_it_is_found_and_knows_what_it_was_not_taught() -> None:
    """A passage from the end of Persuasion (1818), which was held out."""
    path = OWN["luminal-tiny"]
    assert path.stat().st_size < 6_000_000
    assert {path.with_suffix(end).exists() for end in (".md", ".csv")} == {True}
    llm = LLM("luminal-tiny", threads=1)
    ids = llm.ids(PASSAGE)
    logits = llm.logits(ids[:-1]).astype(np.float64)
    wanted = np.take_along_axis(logits, np.array(ids[1:])[:, None], -1)[:, 0]
    largest = logits.max(-1)
    nats = np.log(np.exp(logits - largest[:, None]).sum(-1)) + largest - wanted
    assert nats.sum() / np.log(2) / len(PASSAGE) < COUNTED


def test_the_command_line_describes_it() -> None:
    result = CliRunner().invoke(main, ["info", "luminal-tiny"])
    assert result.exit_code == 0, result.output
    assert "4 of width 256" in result.output


def test_a_file_is_known_by_its_first_bytes_or_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """As containers mount them: /model is a folder, or a file without a suffix."""
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "model", tmp_path / "folder" / "some.gguf"):
        place.symlink_to(OWN["luminal-tiny"])
    for place in (tmp_path / "model", tmp_path / "folder"):
        assert isinstance(open_source(place), GGUFSource)
    (tmp_path / "folder" / "other.gguf").symlink_to(OWN["luminal-tiny"])
    with pytest.raises(WeightsError, match=r"other.gguf, some.gguf\? Name the file"):
        open_source(tmp_path / "folder")
