"""What mkdocs.yml names as hooks: every public name on its page of the reference, every file of the
compiler on a page.

A page of docs/api has a mark `<!-- api MODULE -->`; in its place comes a section for each public
name of that module, which mkdocstrings fills from the docstring. `<!-- files FOLDER -->` becomes a
table of that folder of the package.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KNOWN = runpy.run_path(str(Path(__file__).parent / "public_api.py"))
FACTS = runpy.run_path(str(Path(__file__).parent / "operation_facts.py"))
PACKAGE = Path(__file__).parents[1] / "src" / "luminal"
LISTED = re.compile(r"<!-- files ([\w/]+) -->")
MARK = re.compile(r"<!-- api ([\w.]+) -->")
FOREIGN = re.compile(r'<(script|img|link rel="(stylesheet|preload|icon)")[^>]*"https?://[^"]*"')
METHODS = "      options: {members_order: source, filters: ['!^_']}\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The event of MkDocs."""
    markdown = LISTED.sub(lambda mark: "\n".join(table(PACKAGE / mark[1])), markdown)
    return MARK.sub(lambda mark: "\n".join(sections(mark[1])), markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Nothing that a page loads lies elsewhere. Raises RuntimeError."""
    for page in Path(config["site_dir"]).rglob("*.html"):
        if found := FOREIGN.search(page.read_text()):
            raise RuntimeError(f"{page} loads {found[0]}")


def table(folder: Path) -> Iterator[str]:
    """Markdown: what each file of a folder is for, as its docstring begins, and its code lines."""
    files = [path for path in sorted(folder.glob("*.py")) if path.stem[0] != "_"]
    sizes = {path: code_lines(path) for path in files}
    yield f"## {folder.name}\n\n{purpose(folder / '__init__.py')} {sum(sizes.values()):,} lines.\n"
    yield "| file | lines | |\n|---|---:|---|"
    for path, size in sizes.items():
        yield f"| `{path.name}` | {size} | {purpose(path)} |"


def purpose(path: Path) -> str:
    """The first paragraph of a file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comments nor docstrings."""
    said: set[int] = set()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, documented) and ast.get_docstring(node):
            said.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, path.read_text().splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and number not in said for number, line in lines)


def sections(module: str, asked: bool = True) -> Iterator[str]:
    """Markdown for each public name; an alias says of what. The classes of the first page have
    their methods. asked: with what operations answer."""
    shown: dict[str, str] = {}
    for name, value in public(module):
        place = f"{value.__module__}.{value.__qualname__}"
        if place in shown:
            yield f"### {name}\n\nAnother name of `{shown[place]}`.\n"
        elif "<" in place or not _written(value):
            yield f"### {name}\n\n`{name}{_signature(value)}`\n\n{inspect.getdoc(value) or ''}\n"
        else:
            shown[place] = name
            whole = inspect.isclass(value) and module == "luminal"
            more = _facts(module, name) if asked else ""
            yield f"::: {place}\n{METHODS if whole else _plain(value)}\n{more}"


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Functions and classes that are promised."""
    found = importlib.import_module(module)
    for name in sorted(KNOWN["_names"](found), key=lambda n: (n.lower(), n)):
        value = getattr(found, name)
        if not inspect.ismodule(value) and typing.get_origin(value) is None:
            yield name, inspect.unwrap(value)
    if module == "luminal":
        home, name = KNOWN["EXECUTABLE"]
        yield name, getattr(importlib.import_module(home), name)


def _facts(module: str, name: str) -> str:
    """What an operation takes, gives and refuses, as it answers when it is asked."""
    return f"{FACTS['paragraph'](name)}\n" if module == "luminal.ops" else ""


def _plain(value: Any) -> str:
    return "      options: {members: false}\n" if inspect.isclass(value) else ""


def _written(value: Any) -> bool:
    """It stands in its module by its name (classes that are made by functions do not)."""
    text = inspect.getsource(importlib.import_module(value.__module__))
    return bool(re.search(rf"^(class|def) {value.__name__}\b", text, re.M))


def _signature(value: Any) -> str:
    return str(KNOWN["_signature"](value))
