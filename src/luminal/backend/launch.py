"""Several loop programs as one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..graph.dtype import u32
from ..graph.index import Index
from ..kernel.kernel import Buffer
from ..kernel.program import Program
from ..kernel.schedule import Layout


@dataclass(frozen=True)
class Joined:
    """Programs that one launch on a GPU runs, in order. meets: before which of them all groups of
    the launch come together; those between run side by side. group: the threads of each; held:
    how many of them a multiprocessor has at once. Its buffers are those of the parts, and a counter
    for the groups, zero before the first launch."""

    name: str
    parts: tuple[Program, ...]
    meets: tuple[bool, ...]
    group: int
    held: int = 1

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        parts = enumerate(self.parts)
        own = (replace(b, name=f"{n} {b.name}") for n, part in parts for b in part.buffers)
        return *own, Buffer("counter", u32, (Index.of(1),))

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.sizes))

    @property
    def layouts(self) -> Mapping[str, Layout]:
        parts = enumerate(self.parts)
        return {f"{n} {name}": layout for n, p in parts for name, layout in p.layouts.items()}
