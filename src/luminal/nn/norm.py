"""Normalisations as modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from ..ops.normalisation import several
from . import init
from .module import Module


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    single = isinstance(normalized_shape, int)
    return (normalized_shape,) if single else tuple(normalized_shape)  # type: ignore


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimensions, then scale and shift.

    >>> nn.LayerNorm(cx, 8)(cx.tensor(("s", 8))).shape
    (s, 8)
    """

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
    """x over its root mean square along the last dimensions, then scale.

    >>> nn.RMSNorm(cx, 8)(cx.tensor(("s", 8))).shape
    (s, 8)
    """

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
    """Mean 0 and variance 1 over groups of channels.

    >>> nn.GroupNorm(cx, 2, 8)(cx.tensor((2, 8, "s"))).shape
    (2, 8, s)
    """

    def __init__(
        self, graph: Graph, num_groups: int, num_channels: int, eps: float = 1e-5,
        affine: bool = True, dtype: Any = "f32", *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_groups, self.eps = num_groups, eps
        self.weight = init.filled(graph, (num_channels,), 1, dtype) if affine else None
        self.bias = init.filled(graph, (num_channels,), 0, dtype) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def _renew(state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """The state after the run; a module that is used again goes on from what it has become."""
    states = state.graph.states
    place = {known: n for n, (known, _) in enumerate(states)}.get(state)
    new = change(state if place is None else states[place][1]).cast(state.dtype)
    if place is None:
        state.graph.donate(state, new)
    else:
        states[place] = state, new
    return new


class _Statistics(Module):
    """Channels (dimension 1) normalised, with running means and variances if they are tracked. In
    training these become donated states of the graph; without momentum they are averages over all
    runs, which are counted."""

    ranks: tuple[int, ...] = ()  # how many dimensions inputs may have; empty: any number
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _add(
        self, graph: Graph, features: int, eps: float, momentum: float | None, affine: bool,
        track: bool, dtype: Any,
    ) -> None:  # fmt: skip
        self.eps, self.momentum = eps, momentum
        shape = (features,)
        self.weight = init.filled(graph, shape, 1, dtype) if affine else None
        self.bias = init.filled(graph, shape, 0, dtype) if affine else None
        for name, value in (("running_mean", 0), ("running_var", 1)):
            self.register_buffer(name, init.filled(graph, shape, value, dtype) if track else None)
        counted = track and momentum is None
        count = init.filled(graph, (), 0, "i64") if counted else None
        self.register_buffer("num_batches_tracked", count)

    def _check(self, x: Tensor) -> None:
        if self.ranks and x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__} takes {ranks} dimensions, not {x}")

    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics after a run that saw these."""
        share: Any = self.momentum
        if self.num_batches_tracked is not None:
            share = 1 / _renew(self.num_batches_tracked, lambda old: old + 1).cast(mean.dtype)
        for state, seen in ((self.running_mean, mean), (self.running_var, variance)):
            if state is not None:

                def mixed(old: Tensor, seen: Tensor = seen) -> Tensor:
                    return old * (1 - share) + seen * share

                _renew(state, mixed)

    def adapt_state(self, state: dict[str, Any], prefix: str) -> None:
        """PyTorch always counts batches."""
        if self.num_batches_tracked is None:
            state.pop(prefix + "num_batches_tracked", None)


class InstanceNorm(_Statistics):
    """Mean 0 and variance 1 over the spatial dimensions of each channel.

    >>> nn.InstanceNorm1d(cx, 1)(cx.constant([[[1.0, 3.0]]])).numpy().round(3)
    array([[[-1.,  1.]]], dtype=float32)
    """

    def __init__(
        self, graph: Graph, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = False, track_running_stats: bool = False, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._add(graph, num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        if x.ndim + 1 in self.ranks:  # without a batch
            return self.forward(x.unsqueeze(0)).squeeze(0)
        own, dims = self.training or self.running_mean is None, list(range(2, x.ndim))
        if own:
            several(x, dims)
        result = ops.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, own, 0.0, self.eps
        )
        if own and self.running_mean is not None:
            self._update(ops.mean(ops.mean(x, dims), 0), ops.mean(ops.var(x, dims), 0))
        return result


class BatchNorm(_Statistics):
    """Each channel (dimension 1) normalised by running statistics; in training mode, or without
    such, by those of the batch.

    >>> nn.BatchNorm2d(cx, 8)(cx.tensor((2, 8, 4, 4))).shape
    (2, 8, 4, 4)
    """

    def __init__(
        self, graph: Graph, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__()
        self._add(graph, num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        own = self.training or self.running_mean is None
        result = ops.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, own, 0.0, self.eps
        )
        if own and self.running_mean is not None:
            dims = [0, *range(2, x.ndim)]
            self._update(ops.mean(x, dims), ops.var(x, dims))
        return result


class SyncBatchNorm(BatchNorm):
    """BatchNorm: a program runs in one process, whose batch is the whole.

    >>> nn.SyncBatchNorm(cx, 8)(cx.tensor((2, 8, 4, 4))).shape
    (2, 8, 4, 4)
    """

    def __init__(
        self, graph: Graph, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
        dtype: Any = "f32",
    ) -> None:  # fmt: skip
        super().__init__(graph, num_features, eps, momentum, affine, track_running_stats, dtype)


class BatchNorm1d(BatchNorm):
    """BatchNorm of (N, C) or (N, C, L).

    >>> nn.BatchNorm1d(cx, 8)(cx.tensor((2, 8, 5))).shape
    (2, 8, 5)
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of (N, C, H, W).

    >>> nn.BatchNorm2d(cx, 8)(cx.tensor((2, 8, 4, 4))).shape
    (2, 8, 4, 4)
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of (N, C, D, H, W).

    >>> nn.BatchNorm3d(cx, 8)(cx.tensor((2, 8, 4, 4, 4))).shape
    (2, 8, 4, 4, 4)
    """

    ranks = (5,)


class InstanceNorm1d(InstanceNorm):
    """InstanceNorm of (N, C, L) or (C, L).

    >>> nn.InstanceNorm1d(cx, 8)(cx.tensor((8, 5))).shape
    (8, 5)
    """

    ranks = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm of (N, C, H, W) or (C, H, W).

    >>> nn.InstanceNorm2d(cx, 8)(cx.tensor((8, 4, 4))).shape
    (8, 4, 4)
    """

    ranks = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.InstanceNorm3d(cx, 8)(cx.tensor((8, 4, 4, 4))).shape
    (8, 4, 4, 4)
    """

    ranks = (4, 5)
