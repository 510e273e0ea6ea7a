"""What is given by position means what it means in PyTorch: every operation and every module whose
name PyTorch has takes PyTorch's arguments in PyTorch's order, with PyTorch's defaults."""

from __future__ import annotations

import inspect
import runpy
import typing
from collections.abc import Iterable
from inspect import Parameter
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import pytest
import torch

from luminal import nn, ops

# What concerns devices, and memory that is written in place, is not there; a graph comes first
# where there is no tensor. Ours may have more, where PyTorch has nothing at that position.
IGNORED = {"device", "graph", "self", "stream", "out", "_stacklevel", "args", "kwargs"}
Positional = list[tuple[str, Any]]
HOMES = (torch.nn.functional, torch, torch.special, torch.linalg)


def positional(parameters: Iterable[Parameter], ignored: Iterable[str] = IGNORED) -> Positional:
    """(name, default) of what can be given by position."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.POSITIONAL_ONLY)
    return [(p.name, p.default) for p in parameters if p.kind in kinds and p.name not in ignored]


def forms(name: str) -> list[Positional]:
    """Every way in which PyTorch takes the arguments of a function."""
    found = []
    for home, own in product(HOMES, (name, f"{name}_with_indices")):
        try:
            taken = positional(inspect.signature(getattr(home, own)).parameters.values())
            found += [taken] if taken else []
        except (AttributeError, TypeError, ValueError):
            pass  # not there, or written in C++
    packet = getattr(torch.ops.aten, name, None) if any(hasattr(h, name) for h in HOMES) else None
    for overload in packet.overloads() if packet is not None and not found else ():
        arguments = getattr(packet, overload)._schema.arguments
        if "out_dtype" in [a.name for a in arguments]:
            continue
        found.append([
            (a.name, a.default_value if a.has_default_value() else Parameter.empty)
            for a in arguments
            if not a.kwarg_only and a.name not in IGNORED - {"self"}
        ])  # fmt: skip
    return found


def conflict(ours: Positional, theirs: list[Positional]) -> str:
    """What is taken otherwise by those of their forms that ours is nearest to; empty if nothing."""
    alike = [len(list(takewhile(lambda pair: same(*pair), zip(ours, form)))) for form in theirs]
    for form, count in zip(theirs, alike):
        if count == max(alike) and count < min(len(ours), len(form)):
            return f"argument {count} is {ours[count]}, PyTorch's {form[count]}"
    return ""


def same(ours: tuple[str, Any], theirs: tuple[str, Any]) -> bool:
    """One name and default; what must be given may be called otherwise ("x" for "input")."""
    (name, default), (other, expected) = ours, theirs
    if default is Parameter.empty:
        return expected is Parameter.empty or name == other
    if isinstance(expected, list) and not isinstance(default, tuple):  # [1, 1] for 1
        expected = expected[0] if expected else default
    expected = tuple(expected) if isinstance(expected, list) else expected
    expected = expected.__name__ if inspect.isfunction(expected) else expected  # relu
    absent = expected is None or expected is Parameter.empty
    return name == other and (default == expected or name == "dtype" or absent)


OPERATIONS = [n for n, f in vars(ops).items() if inspect.isfunction(f) and n[0] != "_" and forms(n)]
MODULES = [
    n for n, c in vars(nn).items()
    if inspect.isclass(c) and hasattr(torch.nn, n) and n not in ("Module", "Parameter")
]  # fmt: skip
# (the operation, why): their own ways of saying the same
OTHERWISE = {
    "einsum": "operands one by one", "meshgrid": "operands one by one",
    "ModuleDict": "empty by default", "ModuleList": "empty by default",
    "ParameterDict": "empty by default", "ParameterList": "empty by default",
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    ours = positional(inspect.signature(getattr(ops, name)).parameters.values())
    assert name in OTHERWISE or not conflict(ours, forms(name))


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    theirs = getattr(torch.nn, name)
    overloaded = typing.get_overloads(theirs.__init__)
    signatures = list(map(inspect.signature, overloaded)) or [inspect.signature(theirs)]
    given = [positional(s.parameters.values()) for s in signatures]
    ours = positional(inspect.signature(getattr(nn, name)).parameters.values())
    assert name in OTHERWISE or not conflict(ours, [form for form in given if form] or [ours])


def test_most_names_are_there() -> None:
    script = Path(__file__).parents[2] / "scripts" / "coverage.py"
    lines = runpy.run_path(str(script))["names"]()
    table = [line.split("|") for line in lines if line.startswith("| torch")]
    shares = {row[1].strip(): float(row[3].split("(")[1][:-3]) for row in table}
    assert shares["torch.nn"] >= 95
    assert shares["torch.nn.functional"] >= 90 and shares["torch.Tensor"] >= 90
