"""Programs of large models are compiled in a process of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from luminal import LLM
from luminal.children import calling_main, python
from luminal.models.llm import elsewhere
from luminal.models.llm.decoder import Decoder
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


def test_a_kept_program_is_found_without_its_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later start records nothing; another context, file of code or damage makes it do so."""
    kept, directory = Store(tmp_path / "programs"), checkpoint("llama3")[0]
    monkeypatch.setattr(Store, "of", staticmethod(lambda wanted: kept))
    first = LLM(directory, context=40, threads=1)
    expected, nodes = first.logits([5, 6, 7]), len(first.program.executable.program.nodes())
    recorded = []
    forward = Decoder.forward
    monkeypatch.setattr(Decoder, "forward", lambda *a: (recorded.append(1), forward(*a))[1])
    later = LLM(directory, context=40, threads=1)
    assert (later.logits([5, 6, 7]) == expected).all() and not recorded
    assert len(later.program.executable.program.nodes()) == nodes and recorded == [1]
    (shortcut,) = kept.folder.glob("*-cut*")
    whole = shortcut.read_bytes()
    shortcut.write_bytes(whole[:-9] + bytes(9))
    with pytest.warns(UserWarning, match="made anew"):
        again = LLM(directory, context=40, threads=1)
    assert (again.logits([5, 6, 7]) == expected).all() and recorded == [1, 1]
    LLM(directory, context=41, threads=1)
    assert recorded == [1, 1, 1]


def test_the_child_is_this_package() -> None:
    ended = subprocess.run(calling_main(elsewhere.__name__), input=b"", capture_output=True)
    assert b"EOFError" in ended.stderr  # it asked for its job
