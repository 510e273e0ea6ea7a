"""Limits of the compiler, drawn anew: what it decides by size or by an estimate is then decided
for small graphs too, either way."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

LIMITS: dict[str, tuple[float, ...]] = {
    "kernel.schedule.CHAIN": (2, 3),
    "precision.rounding.STREAMED": (0, 10_000),
    "rewrite.by_range.CLEAR": (1.0, 100.0),
    "rewrite.cost._ONCE": (1.0,),
    "rewrite.cost._OPERAND": (0.1, 10.0),
    "rewrite.extract._REDUCTION": (0.1, 100.0),
    "rewrite.cuts.AGAIN": (0.0, 100.0),
    "rewrite.cuts.CHEAP": (0.0, 1e9),
    "rewrite.cuts.EXPENSIVE": (0.0, 1e9),
    "rewrite.cuts.MAX_STEPS": (0, 100),
    "rewrite.optimise.HOPELESS": (1.0, 100.0),
    "rewrite.optimise.WORTHLESS": (1.0, 100.0),
    "rewrite.regions.MAX_DEPTH": (6, 20),
    "rewrite.regions.MAX_TERMS": (4, 12, 400),
    "rewrite.regions.SMALL": (0, 1000),
    "runtime.chains.HELD": (0.0,),
    "runtime.chains.UNITS": (0.1, 1),
    "scheduling.draft.LIGHT": (0.0, 1.0),
    "scheduling.estimate.TURNED": (0.01, 100.0),
    "scheduling.facts.FAR": (1, 8),
    "scheduling.facts.FLOORED": (1, 1000),
    "scheduling.blocks.BLOCK": (2, 5),
    "scheduling.frames.LEAST_DEPTH": (1, 3),
    "scheduling.frames.LEAST_UNIT": (1, 1 << 30),
    "scheduling.frames.FAR_MEMORY": (0, 1000),
    "scheduling.frames_joint.MORE": (1, 64),
    "scheduling.frames_joint.UNIT": (16, 256),
    "scheduling.frames_joint.VECTORS": (1, 2),
    "scheduling.frames_joint.WRITTEN": (1, 4),
    "scheduling.frames_rows.LANE_BLOCK": (16, 64),
    "scheduling.frames_rows.TURNED_BLOCK": (16,),
    "scheduling.frames_rows.TURNED_ROWS": (1,),
    "scheduling.frames_rows.UNIT_POINTS": (1, 16, 64),
    "scheduling.frames_rows.VECTORS": (1, 8),
    "scheduling.operands.UNPACKED": (0.0, 1000.0),
    "scheduling.outline.HEAVY": (0.0, 0.9),
    "scheduling.outline.NEGLIGIBLE": (0.0, 1.0),
    "scheduling.outline.UNITS": (1, 64),
    "scheduling.paths.FEW": (0, 100),
    "scheduling.paths.LEAST_LANES": (1, 16),
    "scheduling.paths.LONGEST": (1,),
    "scheduling.paths.UNROLLED": (1, 10_000),
    "scheduling.paths.WHOLE": (1, 10_000),
    "scheduling.loads.AGAIN": (0, 1, 1000),
    "scheduling.job.CAST": (0.0, 100.0),
    "scheduling.loads.COPIED": (0.0, 100.0),
    "scheduling.score.LEAST_MADE": (0.0, 100.0),
    "scheduling.score.SPREAD": (0.0, 100.0),
    "scheduling.loads.WINDOW": (1, 64),
    "scheduling.several.GAIN": (100.0,),
    "scheduling.several.LEAST_LAUNCHES": (0.0,),
    "scheduling.several.LEAST_POINTS": (1,),
    "scheduling.solver.DEEP": ((2, 4), (16, 32)),
    "scheduling.solver.ROWS": (1, 3, 30),
    "scheduling.solver.TURNED": (0.1, 10.0),
    "scheduling.split.ELEMENTS": (1 << 30,),
    "scheduling.split.LEAST_PART": (1, 2, 3),
    "scheduling.split.LEAST_WORK": (1,),
    "scheduling.split.LONG": (0,),
    "scheduling.split.ONLINE": (8, 128),
    "scheduling.split.UNITS": (64,),
    "lowering.ahead.BURST": (64, 4096),
    "lowering.ahead.DENSE": (0.0,),
    "lowering.ahead.DISTANCE": (64,),
    "lowering.ahead.FOLLOWED": (0, 100),
    "lowering.ahead.LEAST": (1,),
    "lowering.ahead.NARROW": (100,),
    "lowering.ahead.PAGE": (64,),
    "lowering.ahead.TURNS": (1,),
    "lowering.builder.LARGEST_PROGRAM": (200, 1000),
    "lowering.shuffles.GROUP": (8, 64),
    "lowering.walk.LARGEST_BLOCK": (2, 16),
    "lowering.walk_limits.LARGEST_EDGE": (1, 3),
    "lowering.walk_limits.LONGEST_EDGE": (1, 20),
    "lowering.walk_limits.MOST_PARTS": (1, 16),
}  # fmt: skip


@contextmanager
def limits(random: Random) -> Iterator[dict[str, object]]:
    """Some of the limits changed, everywhere they are known by their names, and for an instruction
    set that this machine has beside others; which, and to what."""
    target = import_module("luminal.backend.cpu.target")
    wider = [name for name in ("avx512", "vnni", "avxvnni") if _has(target, name)]
    share, kind = random.choice([0.1, 0.5, 1.0]), random.choice(["", "avx2", "sse", *wider])
    drawn = {name: random.choice(options) for name, options in LIMITS.items()
             if random.random() < share}  # fmt: skip
    before: list[tuple[object, str, object]] = []
    if kind and target.host_machine().is_x86:
        before.append((target, "_host", target._host))
        target._host = functools.partial(target.named, kind)
    for path, value in drawn.items():
        home, name = path.rsplit(".", 1)
        there = import_module(f"luminal.{home}")
        whole = getattr(there, name)
        for module in (there, *_readers(there.__name__, name)):
            before.append((module, name, whole))
            setattr(module, name, value)
    try:
        yield {"instructions": kind, **drawn}
    finally:
        for module, name, whole in reversed(before):
            setattr(module, name, whole)


def _has(target: Any, name: str) -> bool:
    """This machine can run an instruction set that has a name."""
    return bool(target.machine(target.named(name)).is_host)


def _readers(home: str, name: str) -> Iterator[object]:
    """Modules that have imported the name from its home."""
    short = home.rsplit(".", 1)[1]
    for module in [m for n, m in sys.modules.items() if n.startswith("luminal.") and n != home]:
        if name in vars(module) and (short, name) in _imports(str(module.__file__)):
            yield module


@functools.cache
def _imports(file: str) -> set[tuple[str, str]]:
    """Names that a file takes from modules, with the last part of the modules' names."""
    tree = ast.parse(Path(file).read_text())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {((node.module or "").rsplit(".", 1)[-1], a.name) for node in found for a in node.names}
