"""What is measured: a computation in our library, and the same as a PyTorch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..graph import Graph, Tensor

if TYPE_CHECKING:
    import torch

State: TypeAlias = Mapping[str, np.ndarray]
Record: TypeAlias = Callable[[Graph, Sequence[Tensor], State], Tensor]
Shape: TypeAlias = tuple[int, ...]

TOLERANCE = {"f32": 1e-4, "bf16": 4e-2, "int8": 6e-2}  # largest difference over largest value
BYTES = {"f32": 4, "bf16": 2, "int8": 1}  # of a weight, at least


@dataclass(frozen=True)
class Mark:
    """What ours should reach: the time of the rival over ours. rival: a peer; "peak", "plain
    read" or "copy" (ceilings); or "plain" (`Case.plain`). threads: 0 for any number above one."""

    rival: str
    ratio: float
    precision: str = "f32"
    threads: int = 0

    def holds_for(self, precision: str, threads: int) -> bool:
        """Whether it is about such a run."""
        return self.precision == precision and (self.threads == 1) == (threads == 1)


@dataclass
class Work:
    """inputs: what changes from run to run. module: in PyTorch, with its weights. record: ours on
    these inputs and the module's weights by name; None: through `torch.compile`. flops: of a run,
    None to have them counted. gathered: weights of which a run reads a few rows only."""

    inputs: list[np.ndarray]
    module: torch.nn.Module
    record: Record | None
    flops: float | None = None
    gathered: tuple[str, ...] = ()

    def bytes(self, output: np.ndarray, precision: str) -> int:
        """The least that a run must move: inputs, weights and output, once each."""
        read = [a for name, a in self.state().items() if name not in self.gathered]
        weights = sum(a.size * min(a.itemsize, BYTES[precision]) for a in read)
        return weights + sum(array.nbytes for array in (*self.inputs, output))

    def state(self) -> dict[str, np.ndarray]:
        """The module's weights."""
        return {name: value.numpy() for name, value in self.module.state_dict().items()}


@dataclass(frozen=True)
class Case:
    """kind: "ops" or "models". make: builds it (only when its turn comes). short: part of the short
    suite. marks: what ours should reach. plain: the contraction alone of a case that does more."""

    name: str
    kind: str
    make: Callable[[], Work]
    short: bool = False
    marks: tuple[Mark, ...] = ()
    plain: Callable[[], Work] | None = None

    def marks_for(self, precision: str, threads: int) -> tuple[Mark, ...]:
        """The marks of such a run."""
        return tuple(m for m in self.marks if m.holds_for(precision, threads))

    def rivals(self, precision: str, threads: int) -> tuple[str, ...]:
        """Whom those name."""
        return tuple(dict.fromkeys(m.rival for m in self.marks_for(precision, threads)))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """The same normally distributed values each time."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def operation(
    name: str,
    ours: Callable[..., Tensor],
    theirs: Callable[..., Any],
    inputs: Sequence[Shape | Callable[[], np.ndarray]],
    weights: Sequence[Shape | Callable[[], np.ndarray]] = (),
    flops: float = 0,
    short: bool = False,
    marks: tuple[Mark, ...] = (),
    plain: Callable[[], Work] | None = None,
) -> Case:
    """A case of one function. ours: (inputs..., weights...). theirs: the same after
    torch.nn.functional. Weights are normal, scaled by their last dimension; or what is given, as
    inputs may be too."""

    def record(graph: Graph, tensors: Sequence[Tensor], state: State) -> Tensor:
        fixed = [graph.parameter(a.shape, str(a.dtype)).set(a) for a in state.values()]
        return ours(*tensors, *fixed)

    def make() -> Work:
        import torch

        from .twins import Function

        arrays = [x() if callable(x) else normal(*x, seed=n) for n, x in enumerate(inputs)]
        fixed = [w() if callable(w) else weight(w, number) for number, w in enumerate(weights)]
        module = Function(theirs, [torch.from_numpy(array) for array in fixed])
        return Work(arrays, module, record, flops)

    return Case(name, "ops", make, short, marks, plain)


def weight(shape: Shape, seed: int) -> np.ndarray:
    """Values of a size that keeps the results of a contraction near 1."""
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return normal(*shape, seed=100 + seed) / np.float32(np.sqrt(fan_in))


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference over the largest value; infinite for another shape or values that are no
    numbers where numbers are wanted."""
    if got.shape != want.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - want).max(initial=0.0)
    scale = np.abs(want).max(initial=0.0)
    return float(error / max(scale, 1e-30)) if np.isfinite(error) else float("inf")
