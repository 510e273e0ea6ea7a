"""RNN, GRU, LSTM: a few steps are written out, more are a loop of one body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .... import ops
from ....errors import Unsupported
from ....graph.dtype import i64
from ....graph.tensor import Tensor
from ....ops.base import extent, full_like
from ....ops.control import scan
from .base import op

if TYPE_CHECKING:
    from ..record import Recorder

UNROLLED = 4  # steps
Function = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]


def _activation(name: str, alpha: float | None, beta: float | None) -> Function:
    def of(default: float, given: float | None) -> float:
        return default if given is None else given

    table: dict[str, Function] = {
        "tanh": ops.tanh, "sigmoid": ops.sigmoid, "relu": ops.relu,
        "softsign": ops.softsign, "softplus": lambda x: ops.softplus(x, 1.0, float("inf")),
        "affine": lambda x: ops.add(ops.mul(x, of(1.0, alpha)), of(0.0, beta)),
        "leakyrelu": lambda x: ops.leaky_relu(x, of(0.01, alpha)),
        "thresholdedrelu": lambda x: ops.where(x > of(1.0, alpha), x, 0.0),
        "scaledtanh": lambda x: ops.mul(ops.tanh(ops.mul(x, of(1.0, beta))), of(1.0, alpha)),
        "hardsigmoid": lambda x: ops.clamp(
            ops.add(ops.mul(x, of(0.2, alpha)), of(0.5, beta)), 0.0, 1.0),
        "elu": lambda x: ops.elu(x, of(1.0, alpha)),
    }  # fmt: skip
    if name.lower() not in table:
        raise Unsupported(f"activation {name!r}")
    return table[name.lower()]


class Layer:
    """What the three have in common. x: (steps, batch, inputs)."""

    def __init__(
        self, at: Recorder, defaults: Sequence[str], x: Tensor, w: Tensor, r: Tensor,
        bias: Tensor | None, lengths: Tensor | None, states: Sequence[Tensor | None],
        activations: Sequence[str] | None, activation_alpha: Sequence[float] | None,
        activation_beta: Sequence[float] | None, clip: float | None, direction: str,
        hidden_size: int | None, layout: int,
    ) -> None:  # fmt: skip
        self.layout, self.direction = layout, direction
        self.x = x.transpose(0, 1) if layout else x
        self.w, self.r, self.bias, self.lengths = w, r, bias, lengths
        self.states = [s.transpose(0, 1) if s is not None and layout else s for s in states]
        self.count = 2 if direction == "bidirectional" else 1
        self.hidden = int(extent(r, 2))
        names = list(activations or [*defaults] * self.count)
        alphas, betas = list(activation_alpha or ()), list(activation_beta or ())
        found = []
        for number, name in enumerate(names):
            alpha = alphas[number] if number < len(alphas) else None
            beta = betas[number] if number < len(betas) else None
            found.append(self._clipped(_activation(name, alpha, beta), clip))
        each = len(found) // self.count
        self.functions = [found[d * each : (d + 1) * each] for d in range(self.count)]

    @staticmethod
    def _clipped(function: Function, clip: float | None) -> Function:
        if not clip:
            return function
        return lambda x: function(ops.clamp(x, -clip, clip))

    def first(self, number: int, direction: int) -> Tensor:
        given = self.states[number]
        if given is not None:
            return given.select(0, direction)
        return ops.zeros(self.x.graph, (self.x.shape[1], self.hidden), self.x.dtype)

    def run(self, step: Callable[..., State], states: int) -> tuple[Tensor, list[Tensor]]:
        """(steps, directions, batch, hidden), and the last states, each (directions, batch, ..).
        step: of a direction, what the step reads of the input, and the states."""
        outputs, lasts = [], []
        for direction in range(self.count):
            back = self.direction == "reverse" or direction == 1
            state: State = tuple(self.first(k, direction) for k in range(states))
            rows = ops.matmul(self.x, self.w.select(0, direction).T)
            number = extent(rows, 0)
            if number.is_constant and number.constant <= UNROLLED:
                last, made = self._unrolled(step, direction, state, rows, back)
            else:
                last, made = self._repeated(step, direction, state, rows, back)
            outputs.append(made)
            lasts.append(last)
        merged = [ops.stack([last[k] for last in lasts]) for k in range(states)]
        return ops.stack(outputs, 1), merged

    def _unrolled(
        self, step: Callable[..., State], direction: int, state: State, rows: Tensor, back: bool
    ) -> tuple[State, Tensor]:
        order = range(extent(rows, 0).constant)
        if not order:
            shape = (rows.shape[1], self.hidden)
            nothing = ops.zeros(rows.graph, (0, *shape), rows.dtype)
            return tuple(s.expand(shape) for s in state), nothing
        made: dict[int, Tensor] = {}
        for t in reversed(order) if back else order:
            new = step(direction, rows.select(0, t), state)
            state, made[t] = self._kept(t, new, state)
        return state, ops.stack([made[t] for t in order])

    def _repeated(
        self, step: Callable[..., State], direction: int, state: State, rows: Tensor, back: bool
    ) -> tuple[State, Tensor]:
        """One body for all steps."""
        numbers = ops.arange(rows.graph, extent(rows, 0))

        def body(carry: State, x: Any) -> tuple[State, Tensor]:
            return self._kept(x[1], step(direction, x[0], carry), carry)

        state = tuple(s.expand((rows.shape[1], self.hidden)) for s in state)
        last, made = scan(body, state, (rows, numbers), reverse=back)
        return last, made

    def _kept(self, t: Any, new: State, old: State) -> tuple[State, Tensor]:
        """Beyond the length of a sequence states stay and outputs are 0."""
        if self.lengths is None:
            return new, new[0]
        inside = (self.lengths.cast(i64) > t).unsqueeze(1)
        state = tuple(ops.where(inside, n, o) for n, o in zip(new, old))
        return state, ops.where(inside, new[0], full_like(new[0], 0))

    def result(self, y: Tensor, states: list[Tensor]) -> tuple[Tensor, ...]:
        if not self.layout:
            return y, *states
        return y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in states)

    def biases(self, direction: int, gates: int) -> tuple[Tensor | None, Tensor | None]:
        """Those of the input and of the state, each (gates hidden,)."""
        if self.bias is None:
            return None, None
        both = self.bias.select(0, direction)
        size = gates * self.hidden
        return both.narrow(0, 0, size), both.narrow(0, size, size)


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else ops.add(x, bias)


@op("RNN")
def rnn(
    at: Recorder, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial: Tensor | None = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    layout: int = 0,
) -> Any:  # fmt: skip
    layer = Layer(
        at, ["Tanh"], x, w, r, bias, lengths, [initial], activations, activation_alpha,
        activation_beta, clip, direction, hidden_size, layout,
    )  # fmt: skip

    def step(d: int, x_t: Tensor, state: State) -> State:
        a, b = layer.biases(d, 1)
        total = ops.add(x_t, ops.matmul(state[0], r.select(0, d).T))
        return (layer.functions[d][0](_plus(_plus(total, a), b)),)

    y, (h,) = layer.run(step, 1)
    return layer.result(y, [h])


@op("LSTM")
def lstm(
    at: Recorder, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial_h: Tensor | None = None,
    initial_c: Tensor | None = None, peepholes: Tensor | None = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    input_forget: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    """Gates input, output, forget, cell."""
    layer = Layer(at, ["Sigmoid", "Tanh", "Tanh"], x, w, r, bias, lengths,
                  [initial_h, initial_c], activations, activation_alpha, activation_beta, clip,
                  direction, hidden_size, layout)  # fmt: skip

    def step(d: int, x_t: Tensor, state: State) -> State:
        a, b = layer.biases(d, 4)
        total = ops.add(x_t, ops.matmul(state[0], r.select(0, d).T))
        i, o, f, c = ops.chunk(_plus(_plus(total, a), b), 4, -1)
        gate, inner, outer = layer.functions[d]
        if peepholes is not None:
            p_i, p_o, p_f = ops.chunk(peepholes.select(0, d), 3, 0)
            i, f = ops.add(i, ops.mul(p_i, state[1])), ops.add(f, ops.mul(p_f, state[1]))
        i = gate(i)
        f = ops.sub(1.0, i) if input_forget else gate(f)
        cell = ops.add(ops.mul(f, state[1]), ops.mul(i, inner(c)))
        if peepholes is not None:
            o = ops.add(o, ops.mul(p_o, cell))
        return ops.mul(gate(o), outer(cell)), cell

    y, states = layer.run(step, 2)
    return layer.result(y, states)


@op("GRU")
def gru(
    at: Recorder, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial: Tensor | None = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    layout: int = 0, linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    """Gates update, reset, hidden."""
    layer = Layer(
        at, ["Sigmoid", "Tanh"], x, w, r, bias, lengths, [initial], activations, activation_alpha,
        activation_beta, clip, direction, hidden_size, layout,
    )  # fmt: skip
    size = layer.hidden

    def step(d: int, x_t: Tensor, state: State) -> State:
        (h,) = state
        a, b = layer.biases(d, 3)
        gate, inner = layer.functions[d]
        weights = r.select(0, d)
        z_x, r_x, h_x = ops.chunk(_plus(x_t, a), 3, -1)
        if linear_before_reset:
            z_h, r_h, h_h = ops.chunk(_plus(ops.matmul(h, weights.T), b), 3, -1)
            update, reset = gate(ops.add(z_x, z_h)), gate(ops.add(r_x, r_h))
            new = inner(ops.add(h_x, ops.mul(reset, h_h)))
        else:
            two = ops.matmul(h, weights.narrow(0, 0, 2 * size).T)
            z_h, r_h = ops.chunk(_plus(two, None if b is None else b.narrow(0, 0, 2 * size)), 2, -1)
            update, reset = gate(ops.add(z_x, z_h)), gate(ops.add(r_x, r_h))
            last = ops.matmul(ops.mul(reset, h), weights.narrow(0, 2 * size, size).T)
            last = _plus(last, None if b is None else b.narrow(0, 2 * size, size))
            new = inner(ops.add(h_x, last))
        return (ops.add(ops.mul(ops.sub(1.0, update), new), ops.mul(update, h)),)

    y, (h,) = layer.run(step, 1)
    return layer.result(y, [h])
