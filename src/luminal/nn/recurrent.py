"""Recurrent cells and layers, under PyTorch's names.

A layer is unrolled: the number of steps is fixed when the graph is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..errors import Unsupported
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.base import static
from . import init
from .module import Module

State = tuple[Tensor, ...]
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of input, of state, their biases
Step = Callable[[Tensor, State, Weights], State]  # the first of the new states is the output


def _gates(x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    w_ih, w_hh, b_ih, b_hh = weights
    return ops.linear(x, w_ih, b_ih), ops.linear(h, w_hh, b_hh)


def _plain_step(activation: Callable[[Tensor], Tensor]) -> Step:
    def step(x: Tensor, state: State, weights: Weights) -> State:
        a, b = _gates(x, state[0], weights)
        return (activation(a + b),)

    return step


def lstm_step(x: Tensor, state: State, weights: Weights) -> State:
    """(h, c) of an LSTM: gates input, forget, cell, output."""
    a, b = _gates(x, state[0], weights)
    i, f, g, o = ops.chunk(a + b, 4, -1)
    c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def gru_step(x: Tensor, state: State, weights: Weights) -> State:
    """h of a GRU: gates reset, update, new."""
    a, b = _gates(x, state[0], weights)
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
    """Weights of one or more cells: weight_ih<suffix>, weight_hh, bias_ih, bias_hh."""

    def _add_weights(
        self, graph: Graph, inputs: int, hidden: int, gates: int, bias: bool, suffix: str,
        dtype: Any,
    ) -> None:  # fmt: skip
        bound = 1 / math.sqrt(hidden)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (gates * hidden, inputs), "weight_hh": (gates * hidden, hidden),
        }  # fmt: skip
        if bias:
            shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
        for name, shape in shapes.items():
            setattr(self, name + suffix, init.uniform(graph, shape, bound, dtype))

    def _weights(self, suffix: str) -> Weights:
        table = self._parameters
        return (
            table["weight_ih" + suffix], table["weight_hh" + suffix],
            table.get("bias_ih" + suffix), table.get("bias_hh" + suffix),
        )  # fmt: skip


class _Cell(_Recurrent):
    kind = "tanh"

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: str = "tanh", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.hidden_size = hidden_size
        self.step_kind = nonlinearity if self.kind == "tanh" else self.kind
        gates = KINDS[self.step_kind][1]
        self._add_weights(graph, input_size, hidden_size, gates, bias, "", dtype)

    def forward(self, x: Tensor, state: Tensor | State | None = None) -> Any:
        """x: (batch, input). The new state: h, or (h, c) of an LSTM; zeros at the start."""
        step, _, states = KINDS[self.step_kind]
        if state is None:
            zero = ops.zeros(x.graph, (*x.shape[:-1], self.hidden_size), x.dtype)
            state = (zero,) * states
        new = step(x, (state,) if isinstance(state, Tensor) else state, self._weights(""))
        return new if states > 1 else new[0]


class RNNCell(_Cell):
    """h' = tanh(W x + U h), or relu."""


class LSTMCell(_Cell):
    """One step of a long short-term memory."""

    kind = "lstm"


class GRUCell(_Cell):
    """One step of a gated recurrent unit."""

    kind = "gru"


class _Layers(_Recurrent):
    kind = "tanh"

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, batch_first: bool = False, bidirectional: bool = False,
        nonlinearity: str = "tanh", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.hidden_size, self.num_layers, self.batch_first = hidden_size, num_layers, batch_first
        self.suffixes = ["", "_reverse"] if bidirectional else [""]
        self.step_kind = nonlinearity if self.kind == "tanh" else self.kind
        gates = KINDS[self.step_kind][1]
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * len(self.suffixes)
            for suffix in self.suffixes:
                name = f"_l{layer}{suffix}"
                self._add_weights(graph, width, hidden_size, gates, bias, name, dtype)

    def forward(self, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Any]:
        """x: (steps, batch, input), or (batch, steps, input) if batch_first. Outputs of the last
        layer at every step, and the last states (layers, batch, hidden): h, or (h, c) for LSTM."""
        if x.ndim != 3:
            raise Unsupported(f"recurrent layers take (steps, batch, input), got {x}")
        x = x.transpose(0, 1) if self.batch_first else x
        steps = [x.select(0, i) for i in range(static(x.shape[0], "the number of steps"))]
        given = (state,) if isinstance(state, Tensor) else state
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = [self._run(steps, f"_l{layer}{s}", given, last) for s in self.suffixes]
            steps = [ops.cat(parts, -1) if len(parts) > 1 else parts[0] for parts in zip(*outputs)]
        result = ops.stack(steps, 1 if self.batch_first else 0)
        states = tuple(ops.stack(parts, 0) for parts in zip(*last))
        return result, states if len(states) > 1 else states[0]

    def _run(
        self, steps: Sequence[Tensor], suffix: str, given: State | None, last: list[State]
    ) -> list[Tensor]:
        """One layer in one direction; its last state is appended to `last`."""
        step, _, count = KINDS[self.step_kind]
        if given is None:
            first = steps[0]
            zero = ops.zeros(first.graph, (first.shape[0], self.hidden_size), first.dtype)
            state: State = (zero,) * count
        else:
            state = tuple(part.select(0, len(last)) for part in given)
        weights, outputs = self._weights(suffix), []
        backwards = suffix.endswith("_reverse")
        for x in reversed(steps) if backwards else steps:
            state = step(x, state, weights)
            outputs.append(state[0])
        last.append(state)
        return outputs[::-1] if backwards else outputs


class RNN(_Layers):
    """Plain recurrent layers."""


class LSTM(_Layers):
    """Long short-term memory layers."""

    kind = "lstm"


class GRU(_Layers):
    """Gated recurrent layers."""

    kind = "gru"
