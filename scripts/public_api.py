"""Writes docs/api.txt: the public names with their signatures, which a test holds us to.

    python scripts/public_api.py

A name that goes or a signature that changes breaks who uses it: that takes a new line in
CHANGELOG.md and this script; new names only take this script.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = (
    "luminal", "luminal.nn", "luminal.ops", "luminal.train", "luminal.onnx", "luminal.torch",
    "luminal.view",
)  # fmt: skip
CLASSES = ("luminal.Graph", "luminal.LLM")
EXECUTABLE = "luminal.runtime.executable", "Executable"
FILE = Path(__file__).parents[1] / "docs" / "api.txt"


def lines() -> Iterator[str]:
    """name(signature), sorted within each module; methods of the classes that users hold."""
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(_names(module)):
            value = getattr(module, public)
            if not inspect.ismodule(value):
                yield f"{name}.{public}{_signature(value)}"
    held = [(name, getattr(importlib.import_module("luminal"), name.partition(".")[2]))
            for name in CLASSES]  # fmt: skip
    held.append(("Executable", getattr(importlib.import_module(EXECUTABLE[0]), EXECUTABLE[1])))
    for name, kind in held:
        for public, value in sorted(vars(kind).items()):
            if not public.startswith("_"):
                yield f"{name}.{public}{_signature(value)}"


def _names(module: Any) -> list[str]:
    known = getattr(module, "__all__", None)
    if known is not None:
        return list(known)
    return [name for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("luminal")]


def _signature(value: Any) -> str:
    """Names and defaults of parameters; annotations may become more precise."""
    if isinstance(value, property):
        return ""
    value = inspect.unwrap(getattr(value, "__func__", value))
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return str(inspect.Signature(plain))


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n")
