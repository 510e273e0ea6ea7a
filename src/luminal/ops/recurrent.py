"""Recurrent layers as loops of the program, with PyTorch's cells and gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ..graph.tensor import Tensor
from .activation import relu, sigmoid
from .control import scan
from .creation import arange, zeros
from .linalg import linear
from .logic import lt, where
from .math import tanh
from .noise import dropout as drop
from .shape import cat, chunk, stack

State: TypeAlias = tuple[Tensor, ...]
Step: TypeAlias = Callable[
    [Tensor, Tensor, State], State
]  # gates of the input, of h; h comes first


class Cell(NamedTuple):
    """Weights of one direction of a layer: (gates hidden, input), (gates hidden, out), their
    biases, and what narrows h (out, hidden)."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None


def _plain_step(activation: Callable[[Tensor], Tensor]) -> Step:
    def step(a: Tensor, b: Tensor, state: State) -> State:
        return (activation(a + b),)

    return step


def _lstm_step(a: Tensor, b: Tensor, state: State) -> State:
    """(h, c) of an LSTM: gates input, forget, cell, output."""
    i, f, g, o = chunk(a + b, 4, -1)
    c = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def _gru_step(a: Tensor, b: Tensor, state: State) -> State:
    """h of a GRU: gates reset, update, new."""
    reset_x, update_x, new_x = chunk(a, 3, -1)
    reset_h, update_h, new_h = chunk(b, 3, -1)
    update = sigmoid(update_x + update_h)
    new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
    return (new + update * (state[0] - new),)


KINDS: dict[str, tuple[Step, int, int]] = {  # step, gates, states
    "tanh": (_plain_step(tanh), 1, 1),
    "relu": (_plain_step(relu), 1, 1),
    "lstm": (_lstm_step, 4, 2),
    "gru": (_gru_step, 3, 1),
}


def recurrent_cell(kind: str, cell: Cell, x: Tensor, state: State) -> State:
    """The state after one step. x: (..., input)."""
    gates = linear(x, cell.w_ih, cell.b_ih), linear(state[0], cell.w_hh, cell.b_hh)
    return KINDS[kind][0](*gates, state)


def recurrent(
    kind: str, x: Tensor, layers: Sequence[Sequence[Cell]], states: State | None = None,
    lengths: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor, State]:  # fmt: skip
    """Outputs (steps, batch, directions out) and last states (layers directions, batch, width).

    kind: of KINDS. x: (steps, batch, input). layers: the cells of each: forward, and backward if
    there are two. states: as the last ones, zeros where they are not given. lengths: (batch,)
    integers: after so many steps a row's states stay and its outputs are 0. dropout: between
    layers. What x gives the gates of all steps is one product before the loop.
    """
    last: list[State] = []
    for number, cells in enumerate(layers):
        x = drop(x, dropout) if number and dropout else x
        outputs = []
        for reverse, cell in enumerate(cells):
            place = len(last)
            first = states and tuple(part.select(0, place) for part in states)
            output, after = _layer(kind, x, cell, first or _zeros(kind, x, cell), lengths,
                                   bool(reverse))  # fmt: skip
            outputs.append(output)
            last.append(after)
        x = cat(outputs, -1) if len(outputs) > 1 else outputs[0]
    return x, tuple(stack(parts, 0) for parts in zip(*last))


def _zeros(kind: str, x: Tensor, cell: Cell) -> State:
    _, gates, count = KINDS[kind]
    widths = [cell.w_hh.shape[1], cell.w_hh.shape[0] // gates][:count]
    return tuple(zeros(x.graph, (x.shape[1], width), x.dtype) for width in widths)


def _layer(
    kind: str, x: Tensor, cell: Cell, state: State, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """One layer in one direction: its outputs, and its last state."""

    def advance(state: State, given: tuple[Tensor, Tensor | None]) -> tuple[State, Tensor]:
        gates, place = given
        new = KINDS[kind][0](gates, linear(state[0], cell.w_hh, cell.b_hh), state)
        if cell.w_hr is not None:
            new = (linear(new[0], cell.w_hr), *new[1:])
        if place is None or lengths is None:
            return new, new[0]
        goes = lt(place, lengths).unsqueeze(-1)
        kept = tuple(where(goes, a, b) for a, b in zip(new, state))
        return kept, where(goes, new[0], 0)

    places = None if lengths is None else arange(x.graph, x.shape[0], dtype=lengths.dtype)
    xs = linear(x, cell.w_ih, cell.b_ih), places
    after, outputs = scan(advance, state, xs, reverse=reverse)
    return outputs, after
