"""Recurrent cells and layers, under PyTorch's names.

A layer is a loop of the program, of any number of steps; what its inputs give the gates of all
steps is one matrix product before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import ops
from ..errors import ShapeError, Unsupported
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .module import Module

State = tuple[Tensor, ...]
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of input, of state, their biases
Step = Callable[[Tensor, Tensor, State], State]  # gates of the input, of h; the first result is h


def _plain_step(activation: Callable[[Tensor], Tensor]) -> Step:
    def step(a: Tensor, b: Tensor, state: State) -> State:
        return (activation(a + b),)

    return step


def lstm_step(a: Tensor, b: Tensor, state: State) -> State:
    """(h, c) of an LSTM: gates input, forget, cell, output."""
    i, f, g, o = ops.chunk(a + b, 4, -1)
    c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def gru_step(a: Tensor, b: Tensor, state: State) -> State:
    """h of a GRU: gates reset, update, new."""
    reset_x, update_x, new_x = ops.chunk(a, 3, -1)
    reset_h, update_h, new_h = ops.chunk(b, 3, -1)
    update = ops.sigmoid(update_x + update_h)
    new = ops.tanh(new_x + ops.sigmoid(reset_x + reset_h) * new_h)
    return (new + update * (state[0] - new),)


KINDS: dict[str, tuple[Step, int, int]] = {  # step, gates, states
    "tanh": (_plain_step(ops.tanh), 1, 1),
    "relu": (_plain_step(ops.relu), 1, 1),
    "lstm": (lstm_step, 4, 2),
    "gru": (gru_step, 3, 1),
}


class _Recurrent(Module):
    """Weights of one or more cells: weight_ih<suffix>, weight_hh, bias_ih, bias_hh, weight_hr."""

    def _add_weights(
        self, graph: Graph, inputs: int, hidden: int, gates: int, bias: bool, suffix: str,
        dtype: Any, out: int | None = None,
    ) -> None:  # fmt: skip
        bound, out = 1 / math.sqrt(hidden), out or hidden
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (gates * hidden, inputs), "weight_hh": (gates * hidden, out),
        }  # fmt: skip
        if bias:
            shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
        if out != hidden:
            shapes["weight_hr"] = (out, hidden)
        for name, shape in shapes.items():
            setattr(self, name + suffix, init.uniform(graph, shape, bound, dtype))

    def _weights(self, suffix: str) -> Weights:
        table = self._parameters
        return (
            table["weight_ih" + suffix], table["weight_hh" + suffix],
            table.get("bias_ih" + suffix), table.get("bias_hh" + suffix),
        )  # fmt: skip


class RNNCellBase(_Recurrent):
    """One step of a recurrent layer."""

    kind = "tanh"

    def _build(
        self, graph: Graph, inputs: int, hidden: int, bias: bool, kind: str, dtype: Any
    ) -> None:
        self.hidden_size, self.step_kind = hidden, kind
        self._add_weights(graph, inputs, hidden, KINDS[kind][1], bias, "", dtype)

    def forward(self, x: Tensor, state: Tensor | State | None = None) -> Any:
        """x: (batch, input) or (input,). The new state: h, or (h, c) of an LSTM; zeros at first."""
        step, _, states = KINDS[self.step_kind]
        if state is None:
            zero = ops.zeros(x.graph, (*x.shape[:-1], self.hidden_size), x.dtype)
            state = (zero,) * states
        given = (state,) if isinstance(state, Tensor) else state
        w_ih, w_hh, b_ih, b_hh = self._weights("")
        new = step(ops.linear(x, w_ih, b_ih), ops.linear(given[0], w_hh, b_hh), given)
        return new if states > 1 else new[0]


class RNNCell(RNNCellBase):
    """h' = tanh(W x + U h), or relu."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: str = "tanh", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, nonlinearity, dtype)


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = "f32"
    ) -> None:
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, "lstm", dtype)


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = "f32"
    ) -> None:
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, "gru", dtype)


class RNNBase(_Recurrent):
    """Layers of recurrent cells. Between them, in training, dropout."""

    def _build(
        self, graph: Graph, inputs: int, hidden: int, layers: int, bias: bool, batch_first: bool,
        dropout: float, bidirectional: bool, kind: str, dtype: Any, proj_size: int = 0,
    ) -> None:  # fmt: skip
        self.hidden_size, self.num_layers, self.batch_first = hidden, layers, batch_first
        self.dropout, self.proj_size, self.step_kind = dropout, proj_size, kind
        self.suffixes = ["", "_reverse"] if bidirectional else [""]
        out = proj_size or hidden
        for layer in range(layers):
            width = inputs if layer == 0 else out * len(self.suffixes)
            for suffix in self.suffixes:
                name = f"_l{layer}{suffix}"
                self._add_weights(graph, width, hidden, KINDS[kind][1], bias, name, dtype, out)

    def forward(
        self, x: Tensor, state: Tensor | State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """x: (steps, batch, input), or (batch, steps, input) if batch_first, or (steps, input); as
        many steps as there are at run time. Outputs of the last layer at every step, and the last
        states (layers, batch, hidden): h, or (h, c) for LSTM. lengths: (batch,) integers, the steps
        of each row: after them its state stays, and its outputs are 0, as those of a packed
        sequence."""
        if x.ndim not in (2, 3):
            raise Unsupported(f"recurrent layers take (steps, batch, input), got {x}")
        given = (state,) if isinstance(state, Tensor) else state
        if x.ndim == 3:
            whole = x.transpose(0, 1) if self.batch_first else x
            if lengths is not None and lengths.shape != (whole.shape[1],):
                raise ShapeError(f"lengths are those of {whole.shape[1]} rows, not {lengths}")
            result, states = self._layers(whole, given, lengths)
            result = result.transpose(0, 1) if self.batch_first else result
        else:
            alone = None if given is None else tuple(part.unsqueeze(1) for part in given)
            lengths = None if lengths is None else lengths.reshape(1)
            result, states = self._layers(x.unsqueeze(1), alone, lengths)
            result, states = result.squeeze(1), tuple(part.squeeze(1) for part in states)
        return result, states if len(states) > 1 else states[0]

    def _layers(
        self, x: Tensor, given: State | None, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        """x: (steps, batch, input)."""
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.training:
                x = ops.dropout(x, self.dropout)
            outputs = []
            for suffix in self.suffixes:
                count = KINDS[self.step_kind][2]
                state = given and tuple(part.select(0, len(last)) for part in given)
                state = state or self._zeros(x, count)
                output, after = self._run(x, f"_l{layer}{suffix}", state, lengths)
                outputs.append(output)
                last.append(after)
            x = ops.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
        return x, tuple(ops.stack(parts, 0) for parts in zip(*last))

    def _zeros(self, x: Tensor, count: int) -> State:
        widths = [self.proj_size or self.hidden_size, self.hidden_size][:count]
        return tuple(ops.zeros(x.graph, (x.shape[1], width), x.dtype) for width in widths)

    def _run(
        self, x: Tensor, suffix: str, state: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        """One layer in one direction: its outputs, and its last state."""
        step, _, _ = KINDS[self.step_kind]
        w_ih, w_hh, b_ih, b_hh = self._weights(suffix)
        narrow = self._parameters.get("weight_hr" + suffix)

        def advance(state: State, given: tuple[Tensor, Tensor | None]) -> tuple[State, Tensor]:
            gates, place = given
            new = step(gates, ops.linear(state[0], w_hh, b_hh), state)
            if narrow is not None:
                new = (ops.linear(new[0], narrow), *new[1:])
            if place is None or lengths is None:
                return new, new[0]
            goes = (place < lengths).unsqueeze(-1)
            kept = tuple(ops.where(goes, a, b) for a, b in zip(new, state))
            return kept, ops.where(goes, new[0], 0)

        places = None
        if lengths is not None:
            places = ops.arange(x.graph, x.shape[0], dtype=lengths.dtype)
        xs = ops.linear(x, w_ih, b_ih), places
        after, outputs = ops.scan(advance, state, xs, reverse=suffix.endswith("_reverse"))
        return outputs, after


class RNN(RNNBase):
    """Plain recurrent layers."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._build(
            graph, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            nonlinearity, dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory layers; with proj_size h is narrowed by a matrix weight_hr."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, proj_size: int = 0, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._build(
            graph, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            "lstm", dtype, proj_size,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent layers."""

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._build(
            graph, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            "gru", dtype,
        )  # fmt: skip
