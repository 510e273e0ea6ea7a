"""Every Python block of the documents runs, in order, and prints what the text block below it says.

`python tests/test_docs.py` writes what is printed now into the documents.
"""

import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest

from luminal.errors import DISTRIBUTION

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/architecture.md")
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\s*```text\n(?P<text>.*?)```)?", re.S)


def run_blocks(name):
    """(match, what it printed) of each block of a document, in one shared scope."""
    scope: dict = {}
    for match in BLOCK.finditer((ROOT / name).read_text()):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(match["code"], name, "exec"), scope)
        yield match, "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(name):
    blocks = list(run_blocks(name))
    assert blocks, f"{name} has no Python block"
    for match, printed in blocks:
        assert match["text"] is None or printed == match["text"], match["code"]


def test_what_is_said_to_be_installed_is_ours():
    """Every optional part that a message names is one of the distribution, under its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"to_install\(['\"](\w+)['\"]\)", source))
    assert named and named <= set(project["optional-dependencies"])
    assert not re.search(r"pip install \"?luminal\b(?!-compiler)", source)


def test_quickstart(capsys):
    scope = {"__name__": "quickstart"}
    file = ROOT / "examples" / "quickstart.py"
    exec(compile(file.read_text(), str(file), "exec"), scope)
    scope["main"]()
    assert "all right" in capsys.readouterr().out


def update(name):
    """Write what the blocks print into the document."""
    parts, end = [], 0
    text = (ROOT / name).read_text()
    for match, printed in run_blocks(name):
        if match["text"] is not None:
            parts += [text[end : match.start("text")], printed]
            end = match.end("text")
    (ROOT / name).write_text("".join([*parts, text[end:]]))


if __name__ == "__main__":
    for document in DOCUMENTS:
        update(document)
