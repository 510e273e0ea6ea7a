"""Where sums end since other kernels have left something in memory: no guard of theirs says it."""

from __future__ import annotations

import math
from dataclasses import replace

from ..graph.index import Index
from ..graph.scalars import identity
from ..kernel.domains import Number, derive_domains, outsides
from ..kernel.kernel import Kernel, Load, Value


def said_elsewhere(kernel: Kernel) -> list[tuple[Value, Index]]:
    """The conditions by which values end that no guard of this kernel says."""
    bare = derive_domains(
        replace(kernel, values=tuple(replace(v, domain={}) for v in kernel.values))
    )
    found = []
    for v, plain in zip(kernel.values, bare.values):
        for axis, (low, high) in v.domain.items():
            said = plain.domain.get(axis, (None, None))
            found += [(v, Index.of(axis) - low)] if low not in (None, said[0]) else []
            found += [(v, high - 1 - axis)] if high not in (None, said[1]) else []
    return found


def left_in_memory(kernel: Kernel, value: Value, condition: Index) -> tuple[Load, Number] | None:
    """What a kernel loads that must hold a number where the condition fails, for a reduction to end
    there though no guard says so."""
    assert value.reduction is not None
    neutral, values = identity(value.reduction.op, value.dtype), kernel.values
    for load in dict.fromkeys(load for v in values for load in v.loads):
        axes = tuple(i.text for i in load.index)
        plain = set(axes) <= kernel.axes.keys() and len(set(axes)) == len(axes)
        if plain and condition.names() <= {*axes, *kernel.sizes}:
            for number in (0, -math.inf):
                memory = {load.buffer: (axes, {condition: number})}
                known = (outsides(values, m)[value.name].get(condition) for m in ({}, memory))
                if [number == neutral for number in known] == [False, True]:
                    return load, number
    return None
