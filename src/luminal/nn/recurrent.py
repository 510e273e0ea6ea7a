"""Recurrent cells and layers, under PyTorch's names.

A layer is a loop of the program, of any number of steps; what its inputs give the gates of all
steps is one matrix product before it.
"""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..errors import InputError, ShapeError, Unsupported
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.recurrent import KINDS, Cell, State, recurrent, recurrent_cell
from . import init
from .module import Module


class _Recurrent(Module):
    """Weights of one or more cells: weight_ih<suffix>, weight_hh, bias_ih, bias_hh, weight_hr."""

    def _add_weights(
        self, graph: Graph, inputs: int, hidden: int, gates: int, bias: bool, suffix: str,
        dtype: Any, out: int | None = None,
    ) -> None:  # fmt: skip
        if hidden < 1:
            raise InputError(f"hidden_size {hidden}: at least 1 is expected")
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

    def _cell(self, suffix: str) -> Cell:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        w_ih, w_hh, *rest = (self._parameters.get(name + suffix) for name in names)
        assert w_ih is not None and w_hh is not None
        return Cell(w_ih, w_hh, *rest)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f'nonlinearity is "tanh" or "relu", not {kind!r}')


class RNNCellBase(_Recurrent):
    """One step of a recurrent layer.

    >>> isinstance(nn.GRUCell(cx, 4, 8), nn.RNNCellBase)
    True
    """

    kind = "tanh"

    def _build(
        self, graph: Graph, inputs: int, hidden: int, bias: bool, kind: str, dtype: Any
    ) -> None:
        _check_kind(kind)
        self.hidden_size, self.step_kind = hidden, kind
        self._add_weights(graph, inputs, hidden, KINDS[kind][1], bias, "", dtype)

    def forward(self, x: Tensor, state: Tensor | State | None = None) -> Any:
        """x: (batch, input) or (input,). The new state: h, or (h, c) of an LSTM; zeros at first."""
        states = KINDS[self.step_kind][2]
        if state is None:
            zero = ops.zeros(x.graph, (*x.shape[:-1], self.hidden_size), x.dtype)
            state = (zero,) * states
        given = (state,) if isinstance(state, Tensor) else state
        new = recurrent_cell(self.step_kind, self._cell(""), x, given)
        return new if states > 1 else new[0]


class RNNCell(RNNCellBase):
    """h' = tanh(W x + U h), or relu.

    >>> nn.RNNCell(cx, 4, 8)(cx.tensor((2, 4))).shape
    (2, 8)
    """

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: str = "tanh", dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, nonlinearity, dtype)


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory.

    >>> h, c = nn.LSTMCell(cx, 4, 8)(cx.tensor((2, 4)))
    >>> h.shape, c.shape
    ((2, 8), (2, 8))
    """

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = "f32"
    ) -> None:
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, "lstm", dtype)


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit.

    >>> nn.GRUCell(cx, 4, 8)(cx.tensor((2, 4))).shape
    (2, 8)
    """

    def __init__(
        self, graph: Graph, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = "f32"
    ) -> None:
        super().__init__()
        self._build(graph, input_size, hidden_size, bias, "gru", dtype)


class RNNBase(_Recurrent):
    """Layers of recurrent cells. Between them, in training, dropout.

    >>> isinstance(nn.LSTM(cx, 4, 8), nn.RNNBase)
    True
    """

    def _build(
        self, graph: Graph, inputs: int, hidden: int, layers: int, bias: bool, batch_first: bool,
        dropout: float, bidirectional: bool, kind: str, dtype: Any, proj_size: int = 0,
    ) -> None:  # fmt: skip
        _check_kind(kind)
        if layers < 1 or not 0 <= dropout <= 1 or not 0 <= proj_size < max(hidden, 1):
            raise InputError(
                f"{layers} layers of width {hidden}, proj_size {proj_size}, dropout {dropout}: at "
                "least one layer, a narrower projection and a probability are expected"
            )
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
        numbers = range(self.num_layers)
        layers = [[self._cell(f"_l{n}{suffix}") for suffix in self.suffixes] for n in numbers]
        dropout = self.dropout if self.training else 0.0
        return recurrent(self.step_kind, x, layers, given, lengths, dropout)


class RNN(RNNBase):
    """Plain recurrent layers.

    >>> y, h = nn.RNN(cx, 4, 8)(cx.tensor(("s", 2, 4)))
    >>> y.shape, h.shape
    ((s, 2, 8), (1, 2, 8))
    """

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
    """Long short-term memory layers; with proj_size h is narrowed by a matrix weight_hr.

    >>> y, (h, c) = nn.LSTM(cx, 4, 8)(cx.tensor(("s", 2, 4)))
    >>> y.shape, h.shape
    ((s, 2, 8), (1, 2, 8))
    """

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
    """Gated recurrent layers.

    >>> y, h = nn.GRU(cx, 4, 8)(cx.tensor(("s", 2, 4)))
    >>> y.shape, h.shape
    ((s, 2, 8), (1, 2, 8))
    """

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
