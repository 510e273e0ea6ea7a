"""How constants lie for kernels of several ranges of sizes: the largest comes first, as it computes
most with every constant that it loads; the others, which memory feeds, walk its panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..kernel.kernel import Buffer, Kernel
from ..kernel.schedule import Layout, Schedule


@dataclass
class Settled:
    """How the constants of a kernel lie, once one of its ranges has decided it. shared, names: of
    constants that other kernels read, too, by a name that all know."""

    layouts: dict[Buffer, Layout] = field(default_factory=dict)
    shared: dict[Buffer, Layout] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # buffer -> the name that all know

    def on(self, kernel: Kernel) -> Kernel:
        """A prepared kernel that keeps to the layouts."""
        found = ((b, *self._place(b)) for b in kernel.buffers)
        buffers = tuple(replace(b, layout=layouts.get(key)) for b, layouts, key in found)
        return replace(kernel, buffers=buffers)

    def keep(self, kernel: Kernel, schedule: Schedule) -> None:
        """Settle what the schedule has decided; () is row-major."""
        for buffer in kernel.buffers:
            if buffer.constant:
                layouts, key = self._place(buffer)
                layouts.setdefault(key, schedule.layouts.get(buffer.name, ()))

    def for_makers(self, readers: Sequence[Kernel]) -> Mapping[Buffer, Layout]:
        """The layouts, those of what these kernels read first: kernels of other ranges may read an
        operand of the same name and of another shape."""
        read = [b for reader in readers for b in reader.buffers if b in self.layouts]
        return {b: self.layouts[b] for b in read} | self.layouts

    def _place(self, buffer: Buffer) -> tuple[dict[Buffer, Layout], Buffer]:
        if buffer.name in self.names:
            return self.shared, replace(buffer, name=self.names[buffer.name])
        return self.layouts, buffer
