"""The package as others see it: what type checkers know, what an import loads."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNIPPET = """
import luminal

cx = luminal.Graph()
x = cx.tensor(("s", 64), name="x")
reveal_type(x.softmax(-1) + 1)            # Tensor
reveal_type(x.sum(axis=0, keepdims=True)) # Tensor
reveal_type(x.T.reshape(-1).float())      # Tensor
reveal_type(x.chunk(2, dim=1))            # list[Tensor]
reveal_type(x.sort(-1).values)            # Tensor
reveal_type(x[0].maximum(other=2.0))      # Tensor
reveal_type(cx.compile()[x])              # ndarray
x.softmaks(-1)                            # "Tensor" has no attribute "softmaks"
x.softmax("rows")                         # Argument 1 to "softmax"
"""


def test_the_stub_is_that_of_the_operations() -> None:
    known = runpy.run_path(str(ROOT / "scripts" / "tensor_methods.py"))
    assert known["FILE"].read_text() == known["Stub"]().text(), "python scripts/tensor_methods.py"


def test_a_type_checker_knows_the_methods(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), file]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600).stdout
    told = {int(n): text for n, text in re.findall(r"snippet\.py:(\d+): \w+: (.*)", said)}
    for number, line in enumerate(SNIPPET.splitlines(), 1):
        _, mark, expected = line.partition("# ")
        assert not mark or expected in re.sub(r"\b[a-z_]+\.", "", told.get(number, "")), said
    assert len(told) == SNIPPET.count("# "), said


def test_the_package_is_imported_without_its_parts() -> None:
    """NumPy alone takes half of the 100 ms that an import may take."""
    code = "import sys, luminal; print(*sys.modules); luminal.Graph().tensor(3).relu()"
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, timeout=300,
    ).stdout.split()  # fmt: skip
    assert not {"numpy", "luminal.ops", "luminal.graph", "click"} & set(told)


@pytest.mark.parametrize("first", ["compiler", "models.llm", "saved", "search.tune", "nn", "view"])
def test_any_part_may_be_imported_first(first: str) -> None:
    command = [sys.executable, "-c", f"import luminal.{first}"]
    subprocess.run(command, check=True, timeout=300)
