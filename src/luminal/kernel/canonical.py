"""Kernels under standard names, so that equal kernels of different origin are equal text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..graph.index import Index
from .kernel import Kernel, Value
from .merge import renamed, rewrite


def canonical(kernel: Kernel) -> tuple[Kernel, dict[str, str]]:
    """The kernel without a name and under standard names, and buffer -> its standard name: axes
    a0, ... and buffers b0, ... by first use, values v0, ... in order. A size of one value becomes
    a number."""
    buffers = {name: f"b{n}" for n, name in enumerate(_buffers_by_use(kernel))}
    values = {v.name: f"v{n}" for n, v in enumerate(kernel.values)}
    used = dict.fromkeys([*(a for v in kernel.values for a in v.points), *kernel.axes])
    axes = {a: f"a{n}" for n, a in enumerate(used)}
    fixed = {n: Index.of(int(low)) for n, (low, high) in kernel.sizes.items() if low == high}
    sizes = sorted(kernel.sizes.keys() - fixed)
    names = {a: Index.of(name) for a, name in axes.items()} | fixed

    def index(i: Index) -> Index:
        return i.substitute(names)

    def all_of(_: str, indices: Iterable[Index]) -> tuple[Index, ...]:
        return tuple(map(index, indices))

    def value(v: Value) -> Value:
        domain = {a: v.domain[a] for a in sorted(v.domain)}
        return replace(renamed(replace(v, domain=domain), axes), name=values[v.name])

    made = rewrite(kernel, index, all_of, buffers, lambda e: replace(e, value=values[e.value]))
    found = Kernel(
        "",
        tuple(replace(b, name=new, shape=all_of("", b.shape))
              for b, new in ((kernel.buffer(old), new) for old, new in buffers.items())),
        {name: index(kernel.axes[a]) for a, name in axes.items() if a in kernel.axes},
        tuple(map(value, made.values)),
        {name: kernel.sizes[name] for name in sizes},
        {name: kernel.hints[name] for name in sizes if name in kernel.hints},
    )  # fmt: skip
    return found, buffers


def _buffers_by_use(kernel: Kernel) -> list[str]:
    """Names of buffers: those that are read in program order, then those that are only written."""
    loads = (e.buffer for value in kernel.values for e in value.loads)
    return list(dict.fromkeys([*loads, *kernel.outputs, *(b.name for b in kernel.buffers)]))
