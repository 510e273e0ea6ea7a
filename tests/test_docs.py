"""Every Python block of the documents runs, in order, and prints what the text block below it says.

A block of Python below one that is a diff runs by itself, in a copy of the source with that change.
`python tests/test_docs.py [DOCUMENT ...]` writes what is printed now into the documents.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from luminal.errors import DISTRIBUTION

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/afternoon.md")
BLOCK = re.compile(
    r"(?:```diff\n(?P<diff>.*?)```\n\s*)?"
    r"```python\n(?P<code>.*?)```(?:\s*```text\n(?P<text>.*?)```)?",
    re.S,
)


def run_blocks(name):
    """(match, what it printed) of each block of a document, in one shared scope."""
    scope: dict = {}
    for match in BLOCK.finditer((ROOT / name).read_text()):
        if match["diff"]:
            printed = run_changed(match["diff"], match["code"])
        else:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(match["code"], name, "exec"), scope)
            printed = output.getvalue()
        yield match, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def run_changed(diff, code):
    """What the code prints where the source has this change."""
    with tempfile.TemporaryDirectory() as folder:
        leave = shutil.ignore_patterns("__pycache__", "*.html")
        shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=leave)
        subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, check=True,
                       env=os.environ | {"GIT_CEILING_DIRECTORIES": folder})  # fmt: skip
        place = os.environ | {"PYTHONPATH": str(Path(folder) / "src"), "XDG_CACHE_HOME": folder}
        return subprocess.run([sys.executable, "-c", code], env=place, cwd=folder, check=True,
                              stdout=subprocess.PIPE, text=True, timeout=600).stdout  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(name):
    blocks = list(run_blocks(name))
    assert blocks, f"{name} has no Python block"
    for match, printed in blocks:
        assert match["text"] is None or printed == match["text"], match["code"]


def test_files_to_read_are_there():
    text = (ROOT / "docs" / "afternoon.md").read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", re.sub(r"```.*?```", "", text, flags=re.S)))
    lost = [f for f in named if not any((ROOT / at / f).is_file() for at in ("", "src/luminal"))]
    assert len(named) > 20 and not lost


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
    for document in sys.argv[1:] or DOCUMENTS:
        update(document)
