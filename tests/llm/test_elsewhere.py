"""Programs of large models are compiled in a process of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from luminal import LLM
from luminal.children import calling_main, python
from luminal.models.llm import elsewhere
from luminal.store import Store

from .checkpoints import checkpoint


def test_another_process_compiles_and_this_one_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    kept = Store(tmp_path / "luminal" / "programs")
    monkeypatch.setattr(Store, "of", staticmethod(lambda wanted: kept))
    directory = checkpoint("llama3")[0]
    small = LLM(directory, context=40, threads=1)
    for file in kept.folder.iterdir() if kept.folder else ():
        file.unlink()
    monkeypatch.setattr(elsewhere, "LARGE", 0)
    large = LLM(directory, context=40, threads=1)
    stages = large.program._program._report.stages
    assert "elsewhere" in stages and "lower" not in stages
    assert (large.logits([5, 6, 7]) == small.logits([5, 6, 7])).all()


def test_where_the_other_process_fails_this_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it keeps nothing that this process looks for."""
    monkeypatch.setattr(elsewhere, "LARGE", 0)
    monkeypatch.setattr(elsewhere, "calling_main", lambda _: python("raise SystemExit(3)"))
    directory = checkpoint("llama3")[0]
    llm = LLM(directory, context=40, threads=1)
    assert llm.logits([5]).shape == (1, llm.config.vocabulary)


def test_the_child_is_this_package() -> None:
    ended = subprocess.run(calling_main(elsewhere.__name__), input=b"", capture_output=True)
    assert b"EOFError" in ended.stderr  # it asked for its job
