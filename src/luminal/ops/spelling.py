"""NumPy's words for arguments, axis for dim, keepdims for keepdim; PyTorch's names of operands."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import wraps
from inspect import isfunction, unwrap
from typing import Any

OTHER_WORDS = {
    "axis": ("dim", "dims"), "axes": ("dims",), "keepdims": ("keepdim",), "input": ("x", "a"),
    "other": ("b",), "size": ("shape",), "fill_value": ("value",),
}  # fmt: skip


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names under which a function takes arguments. (`inspect.signature` is slow.)"""
    code = unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def understands(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, that takes its arguments under their other names, too."""
    names = parameters(function)
    words = {
        word: next(name for name in known if name in names)
        for word, known in OTHER_WORDS.items()
        if word not in names and any(name in names for name in known)
    }
    if not words:
        return function

    @wraps(function)
    def translated(*arguments: Any, **options: Any) -> Any:
        if not options:
            return function(*arguments)
        return function(*arguments, **{words.get(n, n): value for n, value in options.items()})

    return translated


def translate(names: MutableMapping[str, Any]) -> None:
    """Let all public functions among these understand."""
    for name, function in list(names.items()):
        if isfunction(function) and not name.startswith("_"):
            names[name] = understands(function)
