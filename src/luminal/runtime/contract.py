"""What an executable stands between: the engine that runs it, and what its user sees."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..errors import Unsupported
from ..graph.dtype import DType
from ..graph.graph import Requirement
from ..graph.node import Shape
from ..graph.space import Range
from .trace import Span, end_to_end

if TYPE_CHECKING:
    from ..search.compare import Difference
    from .inspection import Inspected

Load: TypeAlias = Callable[[], Iterable[tuple[Any, np.ndarray]]]  # (parameter, its values)
Spill: TypeAlias = Callable[[int, np.ndarray], np.ndarray]  # the same array, in a file


class Piece(Protocol):
    """Bytes in a file."""

    @property
    def nbytes(self) -> int: ...

    def read(self, room: np.ndarray) -> None:
        """Copy them into an array of so many bytes. Raises OSError, ValueError."""

    def mapped(self) -> np.ndarray:
        """Them where they lie, u8: read from the file when they are used."""


class Engine(Protocol):
    """What runs a program: native code, or the reference. Inputs and outputs go by number."""

    def set(self, port: int, array: np.ndarray) -> None:
        """New contents of an input; the array stays as it is until the next `set`."""

    def clear(self, port: int, zeros: np.ndarray) -> None:
        """As `set`, of zeros: what no run writes of a state takes no memory."""

    def give_away(self, port: int, array: np.ndarray, spill: Spill | None) -> None:
        """As `set`, of a parameter: only what the program makes of it is held on to. spill: where
        to hold what is large and hardly read, by place."""

    @property
    def key_of_made(self) -> str | None:
        """What `made` means, besides the values of the parameters; None where it is not known."""

    def made(self) -> Mapping[int, np.ndarray] | None:
        """What is made of the parameters; None where it depends on the sizes of a run."""

    def take(self, made: Mapping[int, Piece]) -> None:
        """What `made` once was, instead of parameters."""

    def bind(self, sizes: Mapping[str, int]) -> None:
        """The run-time sizes of the runs to come."""

    def run(self) -> None:
        """Run once with what was set and bound."""

    def check(self) -> list[Difference]:
        """The kernels whose machine code computes something else than they mean."""

    def time_calls(self, repeat: int) -> list[tuple[str, float]]:
        """(kernel, best seconds) of each call of a run, alone and warm."""

    def trace(self) -> list[Span]:
        """Run once, and tell when each thread was in which kernel."""

    def sources(self) -> dict[str, str]:
        """The text of each kernel, by its name, as it was compiled."""

    def inspected(self) -> Inspected | None:
        """What people may look at; None where that is not known."""

    def output(self, number: int) -> np.ndarray:
        """The array of an output of the last run; no other output's, also where they are equal."""

    @property
    def can_launch(self) -> bool:
        """Each output is memory of its own, and nothing is kept from run to run."""

    @property
    def memory(self) -> str:
        """Where the addresses of `launch` lie: "cpu", "cuda"; "" where there are none."""

    def launch(
        self, ports: Sequence[int], inputs: Sequence[int], outputs: Sequence[int],
        stream: int | None = None,
    ) -> None:  # fmt: skip
        """Run once with these inputs (addresses) into these outputs, all of which the caller owns;
        what was set and where outputs lay before is forgotten. stream: of a device, in which the
        run is queued."""

    @property
    def states(self) -> frozenset[int]:
        """The ports that outputs replace after each run."""

    def state(self, port: int) -> np.ndarray:
        """The present contents of one of `states`."""

    @property
    def peak_bytes(self) -> int:
        """Memory that the program holds itself: temporaries, outputs, packed constants."""


class Copying(ABC):
    """What engines have in common that compute on copies: nothing that the user holds is their
    memory, and they make nothing of the parameters that could be kept."""

    @abstractmethod
    def set(self, port: int, array: np.ndarray) -> None:
        """See `Engine`."""

    def clear(self, port: int, zeros: np.ndarray) -> None:
        self.set(port, zeros)

    def give_away(self, port: int, array: np.ndarray, spill: Spill | None) -> None:
        self.set(port, array)

    @abstractmethod
    def time_calls(self, repeat: int) -> list[tuple[str, float]]:
        """See `Engine`."""

    def trace(self) -> list[Span]:
        return end_to_end(self.time_calls(1))  # as far as the host can tell

    @property
    def key_of_made(self) -> None:
        return None

    def made(self) -> None:
        return None

    def take(self, made: Mapping[int, Piece]) -> None:
        raise Unsupported("this device makes what it needs of the parameters anew")

    @property
    def can_launch(self) -> bool:
        return False

    @property
    def memory(self) -> str:
        return ""

    def launch(
        self, ports: Sequence[int], inputs: Sequence[int], outputs: Sequence[int],
        stream: int | None = None,
    ) -> None:  # fmt: skip
        raise Unsupported("this device computes on memory of its own")

    def sources(self) -> dict[str, str]:
        return {}

    def inspected(self) -> Inspected | None:
        return None


@dataclass(frozen=True)
class Port:
    """An input as the user sees it. kind: "input", "parameter" or "constant". needed: some output
    depends on it."""

    name: str
    kind: str
    dtype: DType
    shape: Shape
    needed: bool = True


@dataclass(frozen=True)
class Result:
    """An output as the user sees it. number: at the engine."""

    name: str
    dtype: DType
    shape: Shape
    number: int


@dataclass(frozen=True)
class Interface:
    """What a user of a program sees: inputs, outputs in order, the sizes that the program needs
    with their bounds, and what these must satisfy."""

    ports: tuple[Port, ...]
    results: tuple[Result, ...] = ()
    sizes: Mapping[str, Range] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()

    @property
    def parameter_bytes(self) -> int:
        """Of the parameters whose shapes are constant, as they are given."""
        known = (port for port in self.ports if port.kind == "parameter"
                 and all(size.is_constant for size in port.shape))  # fmt: skip
        return sum(port.dtype.bytes * math.prod(map(int, port.shape)) for port in known)
