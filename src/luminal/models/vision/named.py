"""Nets whose form follows from the names and shapes of their weights: a checkpoint below a name,
and the layers that its weights make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import ops
from ...errors import WeightsError
from ...graph import Graph, Tensor
from .layers import attention

Activation = Callable[[Tensor], Tensor]


class Named:
    """The weights of a checkpoint whose names begin with `name`. A weight becomes a parameter of
    the graph when it is first used. Methods raise WeightsError for a weight that is missing."""

    def __init__(
        self, graph: Graph, state: Mapping[str, np.ndarray], name: str = "",
        made: dict[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.state, self.name = graph, state, name
        self._made: dict[str, Tensor] = {} if made is None else made

    def __getitem__(self, below: str | int) -> Named:
        name = f"{self.name}.{below}" if self.name else str(below)
        return Named(self.graph, self.state, name, self._made)

    def has(self, below: str) -> bool:
        """Whether there is a weight of this name, or one below it."""
        name = self[below].name
        return name in self.state or any(n.startswith(name + ".") for n in self.state)

    def each(self) -> list[Named]:
        """Those below 0, 1, ... as far as there are any."""
        start = self.name + "."
        below = {n[len(start) :].split(".")[0] for n in self.state if n.startswith(start)}
        count = 0
        while str(count) in below:
            count += 1
        return [self[n] for n in range(count)]

    def array(self, below: str = "weight") -> np.ndarray:
        """A weight's numbers, f32."""
        name = self[below].name
        if name not in self.state:
            raise WeightsError(f"no weight {name!r} where this model has one")
        return np.asarray(self.state[name], np.float32)

    def tensor(self, below: str = "weight") -> Tensor:
        """A weight as a parameter."""
        return self._parameter(self[below].name, lambda: self.array(below))

    def _parameter(self, name: str, value: Callable[[], np.ndarray]) -> Tensor:
        if name not in self._made:
            found = np.ascontiguousarray(value())
            self._made[name] = self.graph.parameter(found.shape, name=name).set(found)
        return self._made[name]

    def _bias(self) -> Tensor | None:
        return self.tensor("bias") if self["bias"].name in self.state else None

    # ---- layers

    def linear(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return ops.linear(x, self.tensor(), self._bias())

    def mlp(self, x: Tensor, activation: Activation, *names: str) -> Tensor:
        """Linear layers of these names, an activation between any two."""
        for place, name in enumerate(names):
            x = self[name].linear(activation(x) if place else x)
        return x

    def layer_norm(self, x: Tensor, eps: float = 1e-5) -> Tensor:
        """Over the last dimension."""
        return ops.layer_norm(x, (x.shape[-1],), self.tensor(), self._bias(), eps)

    def norm(self, x: Tensor, eps: float) -> Tensor:
        """Of the kind that has a bias, or by the root mean square."""
        if self["bias"].name in self.state:
            return self.layer_norm(x, eps)
        return ops.rms_norm(x, (x.shape[-1],), self.tensor(), eps)

    def channel_norm(self, x: Tensor, eps: float = 1e-6) -> Tensor:
        """Over the channels of pictures (batch, channels, height, width)."""
        return self.layer_norm(x.permute(0, 2, 3, 1), eps).permute(0, 3, 1, 2)

    def conv2d(
        self, x: Tensor, stride: int = 1, padding: int | None = None, dilation: int = 1,
    ) -> Tensor:  # fmt: skip
        """padding: by default what keeps the size but for the stride. Groups follow from shapes."""
        weight = self.tensor()
        return _convolved(x, weight, self._bias(), stride, padding, dilation)

    def conv_transpose2d(self, x: Tensor, stride: int) -> Tensor:
        """(batch, in, height, width) to a size `stride` times as large where kernels have it."""
        return ops.conv_transpose2d(x, self.tensor(), self._bias(), stride)

    def conv_norm(
        self, x: Tensor, conv: str, norm: str, stride: int = 1, padding: int | None = None,
        eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        """A convolution and the norm of its channels behind it, whose statistics are inside of the
        weights."""

        def gain() -> np.ndarray:
            return self[norm].array() / np.sqrt(self[norm].array("running_var") + eps)

        def bias() -> np.ndarray:
            own = self[conv].array("bias") if self[conv].has("bias") else 0.0
            below = self[norm]
            return below.array("bias") + (own - below.array("running_mean")) * gain()

        both = self[f"{conv}+{norm}"]  # the convolution's own weights may be in use as well
        weight = self._parameter(
            both["weight"].name, lambda: self[conv].array() * gain()[:, None, None, None]
        )
        shift = self._parameter(both["bias"].name, bias)
        return _convolved(x, weight, shift, stride, padding, 1)

    def attention(
        self, heads: int, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
        out: str = "out_proj", **options: Any,
    ) -> Tensor:  # fmt: skip
        """Of several heads, after `q_proj`, `k_proj` and `v_proj`, before `out`; key: by default
        the query, value: the key. options: of `layers.attention`."""
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (self[f"{n}_proj"].linear(t) for n, t in zip("qkv", (query, key, value)))
        return self[out].linear(attention(q, k, v, heads, **options))


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int | None, dilation: int
) -> Tensor:
    around = int(weight.shape[2]) // 2 if padding is None else padding
    groups = int(x.shape[1]) // int(weight.shape[1])
    return ops.conv2d(x, weight, bias, stride, around, dilation, groups)
