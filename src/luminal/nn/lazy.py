"""Layers that learn the number of their input's features from the first input."""

from __future__ import annotations

from inspect import Signature, signature
from typing import Any

from ..graph.tensor import Tensor
from . import norm
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module


class LazyModule(Module):
    """Becomes a module of its full class when it is first called."""

    full: type[Module]
    dim: int  # of the input, whose size is the first argument of the full class

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, graph: Any, *arguments: Any, **options: Any) -> None:
        super().__init__()
        bound = type(self).__signature__.bind(*arguments, **options)  # type: ignore[attr-defined]
        bound.apply_defaults()
        self._waiting = graph, bound.arguments

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        x: Tensor = inputs[0]
        graph, given = self.__dict__.pop("_waiting")
        features, training = x.shape[type(self).dim], self.training
        object.__setattr__(self, "__class__", type(self).full)
        self.__init__(graph, features, **given)  # type: ignore[misc]
        return self.train(training)(*inputs, **options)


def _lazy(full: type[Module], dim: int, **defaults: Any) -> type[Module]:
    """defaults: where they are others than those of the full class."""
    taken = list(signature(full).parameters.values())[2:]  # without the graph and the features
    known = [p.replace(default=defaults.get(p.name, p.default)) for p in taken]
    body = {
        "full": full, "dim": dim, "__signature__": Signature(known), "__doc__": full.__doc__,
        "__module__": __name__,
    }  # fmt: skip
    return type(f"Lazy{full.__name__}", (LazyModule,), body)


LazyLinear = _lazy(Linear, -1)
LazyConv1d, LazyConv2d, LazyConv3d = (
    _lazy(full, -1 - full.spatial) for full in (Conv1d, Conv2d, Conv3d)
)
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(full, -1 - full.spatial) for full in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(full, 1) for full in (norm.BatchNorm1d, norm.BatchNorm2d, norm.BatchNorm3d)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(full, -full.ranks[0], affine=True, track_running_stats=True)
    for full in (norm.InstanceNorm1d, norm.InstanceNorm2d, norm.InstanceNorm3d)
)
