"""What the runtime asks of a backend: text from a program, code from text, memory, a crew.

    target = backend.target(threads)
    texts = [backend.render(program, target) for program in programs]
    codes = backend.build(texts, target)              # or backend.load(bytes, target)
    entry = Entry(code.address(program.name), arguments)
    backend.crew(threads).run(backend.table([entry, ...]))

The arguments of a program are an array of 8-byte slots: one pointer per buffer, the claim counters
(`counter_bytes`, zero before the first run), the workspace, the bytes that each thread has of it
(`workspace_bytes` at least, the same for all kernels of a plan), the run-time sizes. Who runs it
says which thread it is, of how many. In a chain that is (thread << 32 | unit, -units): it computes
the part of its own units which a thread of that number, of so many, would have taken first.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import Unsupported
from ..graph.dtype import f32
from ..kernel.kernel import Kernel
from ..kernel.program import Program
from ..kernel.target import Target
from .launch import Joined
from .table import Crew, Step, Table


class Kept(Protocol):
    """What a saved artifact keeps of a compiled text."""

    @property
    def code(self) -> bytes: ...


@dataclass(frozen=True)
class Finished:
    """The object file of a program, or its text. registers: of a thread, where they are known."""

    code: bytes
    registers: int = 0


class Code(Protocol):
    """Machine code of one text, loaded and callable as long as this object lives."""

    @property
    def code(self) -> bytes:
        """The object file: what a saved artifact keeps."""
        ...

    def address(self, name: str) -> int:
        """The address of a program's function."""
        ...

    def assembly(self) -> str:
        """Its instructions as text, for people. CompileError for code that was loaded."""
        ...


@dataclass(frozen=True)
class Modelled:
    """One call of a kernel, by a count of what it does. limit: the least seconds that the device
    allows for as many operations and bytes; seconds: as it is scheduled; reason: why so long."""

    limit: float
    seconds: float
    reason: str
    flops: int
    bytes: int

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.limit / self.seconds

    def __str__(self) -> str:
        return (f"limit {1e6 * self.limit:.1f} us, modelled {1e6 * self.seconds:.1f} us "
                f"({self.share:.0%}): {self.reason}")  # fmt: skip


class Accelerator(ABC):
    """A kind of device with memory of its own, and a queue in which copies and kernels run one
    after the other. Buffers are whatever the device makes of them. __name__: of its module. A
    search measures in another process: a device is pickled as what opens it there. steady: its
    clock is a count, which one call tells as well as many."""

    __name__: str
    steady: bool = False
    memory: str = ""  # "cuda": buffers may be borrowed from who else uses CUDA

    @property
    def name(self) -> str:
        """What people call it."""
        return self.__name__

    @abstractmethod
    def target(self, threads: int) -> Target:
        """What schedules may know about it; DeviceError if there is none."""

    @abstractmethod
    def render(self, program: Program, target: Target) -> str:
        """The source text of a program."""

    def build(self, texts: Sequence[str], target: Target) -> Sequence[Kept]:
        """Compile; one for each text. Here the text stays as it is, for the device's driver."""
        return [Finished(each.encode()) for each in texts]

    @abstractmethod
    def fingerprint(self, target: Target) -> str:
        """What generated code and its speed depend on."""

    def needs(self, target: Target) -> tuple[str, ...]:
        """What a machine must have to run code for a target; nothing: that is said when it runs."""
        return ()

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        """Those of them that are not here."""
        return tuple(need for need in needs if need != self.name)

    @abstractmethod
    def kernels(self, codes: Sequence[bytes], programs: Sequence[Program]) -> Sequence[Any]:
        """What `launch` takes, from what `build` kept."""

    @abstractmethod
    def workspace_bytes(self, program: Program) -> int:
        """Bytes of workspace that a program needs."""

    @abstractmethod
    def allocate(self, size: int) -> Any:
        """A buffer of so many bytes. Raises DeviceError."""

    @abstractmethod
    def write(self, buffer: Any, array: np.ndarray) -> None:
        """A contiguous array into the start of a buffer."""

    @abstractmethod
    def read(self, buffer: Any, array: np.ndarray) -> None:
        """The start of a buffer into a contiguous array, when all before is done."""

    @abstractmethod
    def copy(
        self, target: Any, source: Any, size: int, target_at: int = 0, source_at: int = 0
    ) -> None:
        """Bytes of one buffer, from the byte `source_at` on, to another."""

    @abstractmethod
    def launch(
        self, kernel: Any, buffers: Sequence[Any], sizes: Sequence[int], workspace: Any
    ) -> None:
        """Run a kernel behind everything that is queued."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all is done."""

    def borrowed(self, address: int, size: int) -> Any:
        """A buffer of memory that somebody else owns. Raises Unsupported."""
        raise Unsupported(f"{self.name} has no memory that others can name")

    def queued_in(self, stream: int | None) -> AbstractContextManager[None]:
        """Inside, copies and kernels are queued in a stream that somebody else owns; None: in the
        device's own."""
        return nullcontext()

    def check(self) -> dict[str, float]:
        """How far each of its instructions is from what it is said to be; none where text has no
        instructions of its own."""
        return {}

    def resources(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """What each of the kernels takes, such as "registers"; none where nobody says."""
        return []

    def modelled(
        self, kernel: Kernel, program: Program, sizes: Mapping[str, int], registers: int = 0
    ) -> Modelled | None:
        """How long a call takes, by what is known of the device; None where nothing is. registers:
        of a thread, where they are known."""
        return None

    def spilled(self, built: Kept) -> int:
        """Bytes of registers of a thread that lie in memory, once it is built. Raises CompileError
        where it cannot be."""
        return 0

    def registers(self, built: Kept) -> int:
        """Of a thread, once it is built; 0 where nobody says."""
        return 0

    def joined(
        self, programs: Sequence[Program], registers: Sequence[int], meets: Sequence[bool],
        name: str,
    ) -> Joined | None:  # fmt: skip
        """One launch of several programs (see `Joined`); None where groups of a launch may not
        wait for each other, or where these do not fit. registers: of each, where known."""
        return None

    def render_joined(self, joined: Joined) -> str:
        """Its text. Raises Unsupported."""
        raise Unsupported(f"{self.name} runs one program a launch")

    def joined_kernels(self, codes: Sequence[bytes], joined: Sequence[Joined]) -> Sequence[Any]:
        """As `kernels`, of launches of several programs."""
        return []

    def part_seconds(
        self, kernel: Kernel, program: Program, sizes: Mapping[str, int], joined: Joined
    ) -> float | None:
        """How long a part of a launch takes by what is known of the device, without launch and
        meetings; None where nothing is."""
        return None

    def meeting_seconds(self, joined: Joined, sizes: Mapping[str, int]) -> float:
        """What a launch of several programs takes beside its parts."""
        return 0.0

    def rates(self, threads: int) -> dict[str, float]:
        """What it can do at most, as `Backend.rates` tells; here what its target says."""
        target = self.target(threads)
        cores = target.threads // target.busy
        fma = 2 * target.lanes(f32) * target.fma_ports * target.clock * cores
        return {"fma": fma / 1e9, "read": target.bandwidth / 1e9, "cache": target.bandwidth / 1e9}

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """What runs again, as often as it is called, the launches and copies that `work` queues.
        `work` reads and allocates nothing; whether it is run now, too, is left open."""
        return work

    def seconds(self, work: Callable[[], None]) -> float:
        """The time that what `work` queues takes, from start to end."""
        self.finish()
        start = time.perf_counter()
        work()
        self.finish()
        return time.perf_counter() - start


class Limits(Protocol):
    """Programs that do one thing as fast as the device can, to be timed beside others. A run is a
    call without arguments."""

    def measure(self, threads: int, seconds: float) -> dict[str, float]:
        """What `Backend.rates` tells, from so many seconds for each entry."""
        ...

    def multiplier(self, name: str, threads: int) -> tuple[Callable[[], None], int]:
        """(run, operations of a run) of a multiplying instruction on registers."""
        ...

    def reader(
        self, size: int, threads: int, again: int = 1, streams: int = ...
    ) -> Callable[[], None]:
        """A read of so many bytes, by several streams a thread."""
        ...

    def copier(self, size: int, threads: int) -> Callable[[], None]:
        """A plain copy of so many bytes."""
        ...


class Backend(Protocol):
    """A device that shares the memory of the process. A module with these functions is one."""

    __name__: str

    def target(self, threads: int) -> Target:
        """What schedules may know about this machine; DeviceError if it cannot be used."""
        ...

    def render(self, program: Program, target: Target) -> str:
        """The source text of a program."""
        ...

    def build(self, texts: Sequence[str], target: Target) -> Sequence[Code]:
        """Compile and load; one Code for each text."""
        ...

    def load(self, code: bytes, target: Target) -> Code:
        """Load what an earlier build kept as `Code.code`."""
        ...

    def needs(self, target: Target) -> tuple[str, ...]:
        """What a machine must have to run code for a target."""
        ...

    def lacking(self, needs: Sequence[str]) -> tuple[str, ...]:
        """Those of them that this machine does not have."""
        ...

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """Memory of the device, aligned, at least 64 bytes, seen as a NumPy array."""
        ...

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        """As `empty`, filled with zeros."""
        ...

    def counter_bytes(self, program: Program, threads: int) -> int:
        """Bytes of claim counters that a program needs."""
        ...

    def workspace_bytes(self, program: Program) -> int:
        """Bytes of workspace that each thread needs."""
        ...

    def table(self, entries: Sequence[Step]) -> Table:
        """A plan in executable form."""
        ...

    def fingerprint(self, target: Target) -> str:
        """What generated code and its speed depend on: a tuning database is keyed on it."""
        ...

    def rates(self, threads: int) -> Mapping[str, float]:
        """Measured now: Giga-operations a second of each multiplying instruction ("fma", ...), and
        GB/s of a plain "read" of memory and of the second "cache"."""
        ...

    def limits(self) -> Limits:
        """What bounds programs on this machine."""
        ...

    def describe(self) -> str:
        """The machine, for people: lines of a name, two spaces or more, and a text."""
        ...

    def prepare(self) -> None:
        """Make what every run needs and keep it, for later processes."""
        ...

    def crew(self, threads: int) -> Crew:
        """The threads that run plans; one crew for each number of threads."""
        ...
