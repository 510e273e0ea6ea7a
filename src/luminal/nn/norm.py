"""Normalisations as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .module import Module


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    single = isinstance(normalized_shape, int)
    return (normalized_shape,) if single else tuple(normalized_shape)  # type: ignore


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimensions, then scale and shift."""

    def __init__(
        self, graph: Graph, normalized_shape: int | Sequence[int], eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape, self.eps = _shape(normalized_shape), eps
        self.weight = init.filled(graph, self.shape, 1, dtype) if elementwise_affine else None
        affine = elementwise_affine and bias
        self.bias = init.filled(graph, self.shape, 0, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x over its root mean square along the last dimensions, then scale."""

    def __init__(
        self, graph: Graph, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape, self.eps = _shape(normalized_shape), eps
        self.weight = init.filled(graph, self.shape, 1, dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.shape, self.weight, self.eps)


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels."""

    def __init__(
        self, graph: Graph, num_groups: int, num_channels: int, eps: float = 1e-5,
        affine: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_groups, self.eps = num_groups, eps
        self.weight = init.filled(graph, (num_channels,), 1, dtype) if affine else None
        self.bias = init.filled(graph, (num_channels,), 0, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(Module):
    """Mean 0 and variance 1 over the spatial dimensions of each channel."""

    def __init__(
        self, graph: Graph, num_features: int, eps: float = 1e-5, affine: bool = False,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps = eps
        self.weight = init.filled(graph, (num_features,), 1, dtype) if affine else None
        self.bias = init.filled(graph, (num_features,), 0, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.instance_norm(x, self.weight, self.bias, self.eps)


class BatchNorm(Module):
    """Each channel (dimension 1) normalised by running statistics; in training mode by those of the
    batch, and the running ones become donated states of the graph."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, graph: Graph, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
        affine: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = init.filled(graph, (num_features,), 1, dtype) if affine else None
        self.bias = init.filled(graph, (num_features,), 0, dtype) if affine else None
        self.register_buffer("running_mean", init.filled(graph, (num_features,), 0, dtype))
        self.register_buffer("running_var", init.filled(graph, (num_features,), 1, dtype))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self._update(x)
        return ops.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.eps
        )

    def _update(self, x: Tensor) -> None:
        dims = [0, *range(2, x.ndim)]
        for state, batch in (
            (self.running_mean, ops.mean(x, dims)),
            (self.running_var, ops.var(x, dims)),
        ):
            new = state * (1 - self.momentum) + batch * self.momentum
            x.graph.donate(state, new.cast(state.dtype))

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """PyTorch also counts batches, which nothing here needs."""
        state.pop(prefix + "num_batches_tracked", None)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
InstanceNorm1d = InstanceNorm2d = InstanceNorm3d = InstanceNorm
