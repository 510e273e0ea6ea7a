"""Other processes beside this one: children that it starts, forks of it."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
from pathlib import Path

import pytest

from luminal.backend.cpu.target import _asked_elsewhere
from luminal.children import calling_main, safe_path
from luminal.errors import CompileError
from luminal.search.measure import Child


def _ask_llvm() -> None:
    assert json.loads(_asked_elsewhere())


def _measure() -> None:
    child = Child()
    try:
        with pytest.raises(CompileError, match="No module"):  # an answer: the child is well
            child.ask(60.0, "rates", "luminal.backend.nothing", 1)
    finally:
        child.stop()


def _compile_elsewhere() -> None:
    ended = subprocess.run(
        calling_main("luminal.models.llm.elsewhere"), input=b"", capture_output=True
    )
    assert b"EOFError" in ended.stderr


def _spawn() -> None:
    context = multiprocessing.get_context("spawn")
    with safe_path():
        process = context.Process(target=int)
        process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("start", (_ask_llvm, _measure, _compile_elsewhere, _spawn))
def test_children_run_no_code_of_the_working_directory(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "llvmlite", "luminal", "numpy", "pickle", "subprocess", "runpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    start()
    assert not (tmp_path / "ran").exists()
