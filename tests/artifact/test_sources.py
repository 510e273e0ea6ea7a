"""Keys of what is kept: other code, or another LLVM, is another key."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from luminal import sources

LIBRARIES = ("numpy 1", "llvmlite 1", "library 1000 abc")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("graph", "rewrite", "kernel"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text(name)
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    monkeypatch.setattr(sources, "_began", time.time() + 1000)
    yield tmp_path
    sources.code_of.cache_clear()


def version() -> str | None:
    sources.code_of.cache_clear()
    return sources.version_of.__wrapped__("graph", "rewrite", "kernel")


def test_each_folder_and_library_is_part_of_a_version(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {version()}
    for name in ("graph", "rewrite", "kernel"):
        (package / name / "code.py").write_text("other")
        found.add(version())
    code = sources.code_of("graph", "rewrite", "kernel")
    for number, library in enumerate(LIBRARIES):
        other = [*LIBRARIES[:number], library + "2", *LIBRARIES[number + 1 :]]
        monkeypatch.setattr(sources, "_libraries", lambda other=tuple(other): other)
        found.add(version())
        assert code == sources.code_of("graph", "rewrite", "kernel")
    assert len(found) == 7 and version() == version()


def test_code_that_was_edited_since_it_was_imported_has_no_name(package: Path) -> None:
    assert version() is not None
    later = time.time() + 2000
    os.utime(package / "graph" / "code.py", (later, later))
    assert version() is None


def test_the_whole_compiler_counts() -> None:
    """The prover of bounds and the rules as well as the lowering."""
    assert {"graph", "rewrite", "lowering"} <= set(sources.CHOOSING) <= set(sources.COMPILING)
    assert all((sources.PACKAGE / name).exists() for name in sources.COMPILING)
    assert any("llvmlite." in line for line in sources._libraries())


def test_all_that_compiles_has_a_part_in_the_keys() -> None:
    """A stage that gets a file of its own changes what is kept when it changes."""
    elsewhere = {"cores", "children", "collecting", "errors", "folders", "progress", "store"}
    named = {name.removesuffix(".py") for name in sources.COMPILING}
    for stages in ("compiler.py", "making.py"):
        tree = ast.parse((sources.PACKAGE / stages).read_text())
        relative = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level]
        parts = {part for node in relative for part in
                 ([node.module.partition(".")[0]] if node.module else [n.name for n in node.names])}
        assert parts - elsewhere <= named
