"""Every Python block of the documents runs, in order, and prints what the text block below it says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/architecture.md")
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.S)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(name):
    blocks = BLOCK.findall((ROOT / name).read_text())
    assert blocks, f"{name} has no Python block"
    scope: dict = {}
    for code, expected in blocks:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), scope)
        if expected:
            assert tidy(output.getvalue()) == tidy(expected), code


def tidy(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def test_quickstart(capsys):
    scope = {"__name__": "quickstart"}
    file = ROOT / "examples" / "quickstart.py"
    exec(compile(file.read_text(), str(file), "exec"), scope)
    scope["main"]()
    assert "all right" in capsys.readouterr().out
