"""What layers without keys and values carry from one token to the next: states of fixed size, and
where each sequence has its own.

A layer with states takes the tokens of a run apart into sequences, (sequences, steps, ...), and
puts what it made of them side by side again. `OneCarry` is for a single sequence; `SeatCarry` for
many, each of which has a seat of its own as long as it runs; `NoCarry` for training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ... import ops
from ...graph import Graph, Tensor
from ...graph.index import Index
from ...ops.base import Size
from .config import DecoderConfig


def state_shapes(config: DecoderConfig) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """(layer, name, shape of one sequence's) of all states, f32."""
    for layer in range(config.layers):
        mixer = config.mixer(layer)
        if mixer is not None:
            for name, shape in mixer.states(config).items():
                yield layer, name, shape


def state_bytes(config: DecoderConfig) -> int:
    """Of the states of one sequence."""
    return sum(4 * int(np.prod(shape)) for _, _, shape in state_shapes(config))


class Carry(Protocol):
    """real: (sequences, steps) bool, which steps are tokens; None: all. The others come last.
    shared: what layers tell those above them in a run."""

    real: Tensor | None
    shared: dict[str, Tensor]

    def apart(self, x: Tensor) -> Tensor:
        """(tokens, ...) -> (sequences, steps, ...)."""

    def together(self, x: Tensor) -> Tensor:
        """(sequences, steps, ...) -> (tokens, ...)."""

    def before(self, graph: Graph, layer: int, name: str) -> Tensor:
        """A state (sequences, ...) as the run finds it: zeros where a sequence begins."""

    def after(self, layer: int, name: str, new: Tensor) -> None:
        """What it is then. Every state must be told once."""

    def last(self, x: Tensor, rows: int) -> Tensor:
        """The last (sequences, rows, ...) of x (sequences, rows + steps, ...), the last steps
        being those that are no tokens."""


def _inputs(graph: Graph, config: DecoderConfig, seats: int) -> dict[tuple[int, str], Tensor]:
    return {
        (layer, name): graph.tensor((seats, *shape), name=f"{name}{layer}")
        for layer, name, shape in state_shapes(config)
    }


class OneCarry:
    """Of one sequence, whose run starts at `position` and has `tokens` tokens."""

    real = None

    def __init__(self, graph: Graph, config: DecoderConfig, tokens: Size, position: Size) -> None:
        self.kept, self.tokens = _inputs(graph, config, 1), tokens
        self.shared: dict[str, Tensor] = {}
        self._begun = graph.iota((1,), position) > 0

    @property
    def states(self) -> list[Tensor]:
        return list(self.kept.values())

    def apart(self, x: Tensor) -> Tensor:
        return x.unsqueeze(0)

    def together(self, x: Tensor) -> Tensor:
        return x.squeeze(0)

    def before(self, graph: Graph, layer: int, name: str) -> Tensor:
        return _since(self._begun, self.kept[layer, name])

    def after(self, layer: int, name: str, new: Tensor) -> None:
        new.graph.donate(self.kept[layer, name], new)

    def last(self, x: Tensor, rows: int) -> Tensor:
        return x.narrow(1, self.tokens, rows)


@dataclass(frozen=True)
class Layout:
    """Which tokens of a run are of which sequence, as inputs of a program, all i64.

    seats (sequences,): where each has its states. begun (sequences,): how many tokens it had
    before. counts (sequences,): how many it has in this run. tokens (sequences, steps): numbers of
    tokens, anything where there are fewer. places (tokens,): sequence * steps + step of each.
    """

    seats: Tensor
    begun: Tensor
    counts: Tensor
    tokens: Tensor
    places: Tensor

    @staticmethod
    def of(graph: Graph, tokens: Size, chunk: int, batch: int) -> Layout:
        sequences = graph.dim("sequences", 1, batch, hint=min(8, batch))
        steps = graph.dim("steps", 1, chunk, hint=(1, chunk))
        shapes = {"seats": (sequences,), "begun": (sequences,), "counts": (sequences,),
                  "numbers": (sequences, steps), "places": (tokens,)}  # fmt: skip
        return Layout(*(graph.tensor(shape, "i64", name) for name, shape in shapes.items()))

    @staticmethod
    def arrays(seats: list[int], begun: list[int], counts: list[int]) -> dict[str, np.ndarray]:
        """The inputs by name, for sequences whose tokens stand one after the other."""
        count, ends = np.array(counts), np.cumsum(counts)
        steps = np.arange(count.max())
        numbers = np.minimum((ends - count)[:, None] + steps, ends[-1] - 1)
        places = np.flatnonzero(steps < count[:, None])
        return {"seats": np.array(seats), "begun": np.array(begun), "counts": count,
                "numbers": numbers, "places": places}  # fmt: skip


class SeatCarry:
    """Of many sequences. seats: how many there are."""

    def __init__(self, graph: Graph, config: DecoderConfig, layout: Layout, seats: int) -> None:
        self.kept, self.layout = _inputs(graph, config, seats), layout
        self.shared: dict[str, Tensor] = {}
        self._begun = layout.begun > 0
        step = graph.iota(layout.tokens.shape, "i1")
        self.real: Tensor | None = step < layout.counts.unsqueeze(1)

    @property
    def states(self) -> list[Tensor]:
        return list(self.kept.values())

    def apart(self, x: Tensor) -> Tensor:
        rows = ops.index_select(x, 0, self.layout.tokens.flatten())
        return rows.unflatten(0, self.layout.tokens.shape)

    def together(self, x: Tensor) -> Tensor:
        return ops.index_select(x.flatten(0, 1), 0, self.layout.places)

    def before(self, graph: Graph, layer: int, name: str) -> Tensor:
        return _since(self._begun, ops.index_select(self.kept[layer, name], 0, self.layout.seats))

    def after(self, layer: int, name: str, new: Tensor) -> None:
        state, seats = self.kept[layer, name], self.layout.seats
        at = seats.reshape(-1, *[1] * (new.ndim - 1)).expand(new.shape)
        new.graph.donate(state, state._scatter(at, new, 0))

    def last(self, x: Tensor, rows: int) -> Tensor:
        shape = (x.shape[0], rows, *x.shape[2:])
        first = self.layout.counts.reshape(-1, *[1] * (x.ndim - 1))
        return ops.gather(x, 1, x.graph.iota(shape, Index.of("i1")) + first)


class NoCarry:
    """Of whole sequences of one length side by side, from their beginning; nothing is kept."""

    real = None

    def __init__(self, config: DecoderConfig, batch: int, length: int) -> None:
        self.batch, self.length = batch, length
        self.shared: dict[str, Tensor] = {}
        self.shapes = {(layer, name): shape for layer, name, shape in state_shapes(config)}

    def apart(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self.batch, self.length))

    def together(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)

    def before(self, graph: Graph, layer: int, name: str) -> Tensor:
        return ops.zeros(graph, (self.batch, *self.shapes[layer, name]))

    def after(self, layer: int, name: str, new: Tensor) -> None:
        pass

    def last(self, x: Tensor, rows: int) -> Tensor:
        return x.narrow(1, self.length, rows)


def _since(begun: Tensor, state: Tensor) -> Tensor:
    """A state, or zeros where a sequence has not begun (sequences,)."""
    return ops.where(begun.reshape(-1, *[1] * (state.ndim - 1)), state, 0.0)
