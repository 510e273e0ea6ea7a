"""Writes src/luminal/graph/_methods.pyi: the methods that `luminal.ops` gives to tensors, for type
checkers and editors.

    python scripts/tensor_methods.py

Signatures and first sentences are those of the functions; a test holds the file against them.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from luminal import ops  # noqa: F401  (registers the methods)
from luminal.graph.tensor import METHODS, Tensor
from luminal.ops.protocol import ONE_SIDED, OPERATORS, UNARY
from luminal.ops.spelling import OTHER_WORDS, parameters

FILE = Path(__file__).parents[1] / "src" / "luminal" / "graph" / "_methods.pyi"
HEAD = '"""Methods of tensors that luminal.ops registers; by scripts/tensor_methods.py."""\n'
TENSOR = "from luminal.graph.tensor import Tensor"
WIDTH = 96
KEPT = "\0"  # a space at which no line ends


def _origin(module: str) -> str:
    first = module.partition(".")[0]
    return first if first in ("numpy", "luminal") else "python"


class Stub:
    """The text of the stub, and what it must import."""

    def __init__(self) -> None:
        self.modules = {"typing"}

    def text(self) -> str:
        rows = [line for name in sorted(_public()) for line in self._method(name)]
        imports = {origin: [f"import {m}" for m in sorted(self.modules) if _origin(m) == origin]
                   for origin in ("python", "numpy", "luminal")}  # fmt: skip
        known = [line for group in imports.values() if group for line in ("", *group)][1:]
        lines = [HEAD, *known, TENSOR, "", "class Methods:", *rows]
        return "\n".join([*lines, *_operators(), ""])

    def _method(self, name: str) -> Iterator[str]:
        found = inspect.getattr_static(Tensor, name)
        is_property = isinstance(found, property)
        function = inspect.unwrap(found.fget if isinstance(found, property) else found)
        if is_property:
            yield "    @property"
        result = f") -> {self._result(function)}:".replace(" ", KEPT)
        head = f"def {name}({', '.join(self._parameters(function))}{result}"
        lines = textwrap.wrap(head, WIDTH, initial_indent="    ", subsequent_indent=" " * 8,
                              break_long_words=False, break_on_hyphens=False)  # fmt: skip
        yield from (line.replace(KEPT, " ") for line in lines)
        first = " ".join((inspect.getdoc(function) or "...").split("\n\n")[0].split())
        lines = textwrap.wrap(f'"""{first}"""' if first != "..." else "...", WIDTH - 4)
        yield from (f"        {line}" for line in lines)

    def _parameters(self, function: Callable[..., Any]) -> Iterator[str]:
        yield "self"
        if function.__name__ == "<lambda>" and function.__module__ != "luminal.ops.methods":
            return
        given = list(inspect.signature(function).parameters.values())[1:]
        if function.__name__ == "<lambda>":
            yield from (f"{p.name}: typing.Any" for p in given)
            return
        others = dict(self._other_words(function))
        starred = optional = False
        for p in given:
            kind = self._type(p.annotation, function)
            starred |= p.kind is p.VAR_POSITIONAL
            if p.kind is p.KEYWORD_ONLY and not starred:
                yield "*"
                starred = True
            mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            optional |= p.default is not p.empty or p.name in others.values()
            yield f"{mark}{p.name}: {kind}{' = ...' if optional and not mark else ''}"
        words = [f"{word}: {self._type(p.annotation, function)} = ..."
                 for word, name in others.items() for p in given if p.name == name]  # fmt: skip
        yield from words if starred or not words else ["*", *words]

    def _other_words(self, function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
        """NumPy's names of the same arguments."""
        first, *names = parameters(function)
        for word, known in OTHER_WORDS.items():
            mine = [name for name in known if name in names]
            if mine and word not in names and first not in known:
                yield word, mine[0]

    def _result(self, function: Callable[..., Any]) -> str:
        found = inspect.signature(function).return_annotation
        if function.__name__ == "<lambda>" or found is inspect.Signature.empty:
            return "Tensor"
        return self._type(found, function)

    def _type(self, annotation: Any, function: Callable[..., Any]) -> str:
        """The annotation with the full names of all that it names."""
        if annotation is inspect.Parameter.empty:
            return "typing.Any"
        tree = ast.parse(annotation, mode="eval")
        module = importlib.import_module(function.__module__)
        return ast.unparse(_Full(module, self.modules).visit(tree))


class _Full(ast.NodeTransformer):
    """Names in full."""

    def __init__(self, module: ModuleType, modules: set[str]) -> None:
        self.module, self.modules = module, modules

    def visit_Name(self, node: ast.Name) -> ast.expr:
        where = _home(self.module.__name__, node.id)
        if node.id == "Tensor" or (where == "builtins" and node.id not in METHODS):
            return node
        self.modules.add(where)
        return ast.parse(f"{where}.{node.id}", mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        text = ast.unparse(node)
        if text.startswith("np."):
            self.modules.add("numpy")
            return ast.parse(f"numpy{text[2:]}", mode="eval").body
        return node


@cache
def _home(module: str, name: str) -> str:
    """The module that defines what another one knows by a name."""
    if hasattr(builtins, name):
        return "builtins"
    if not module.startswith("luminal"):
        return module
    found = importlib.import_module(module)
    for node in ast.walk(ast.parse(inspect.getsource(found))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    relative = "." * node.level + (node.module or "")
                    return _home(resolve_name(relative, found.__package__), alias.name)
    return module


def _operators() -> Iterator[str]:
    """Python's own names for some of the methods."""
    for name in UNARY:
        yield f"    def __{name}__(self) -> Tensor: ..."
    yield "    def __getitem__(self, key: typing.Any) -> Tensor: ..."
    for name in (*OPERATORS, *ONE_SIDED, *(f"r{name}" for name in OPERATORS)):
        mark = "  # type: ignore[override]" if name in ("eq", "ne") else ""
        yield f"    def __{name}__(self, other: typing.Any) -> Tensor: ...{mark}"


def _public() -> list[str]:
    registered = [name for name in METHODS if not name.startswith("_")]
    properties = {name for name, value in vars(Tensor).items() if isinstance(value, property)}
    return sorted({*registered, *properties - {"shape", "ndim", "dtype"}})


if __name__ == "__main__":
    FILE.write_text(Stub().text())
