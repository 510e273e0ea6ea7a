"""Activation functions as modules, for Sequential: `nn.ReLU()`, `nn.GELU("tanh")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..errors import Unsupported
from ..graph.graph import Graph
from ..graph.tensor import Tensor
from . import init
from .function import function_module
from .module import Module

ReLU = function_module("ReLU", ops.relu, inplace=False)
ReLU6 = function_module("ReLU6", ops.relu6, inplace=False)
LeakyReLU = function_module("LeakyReLU", ops.leaky_relu, negative_slope=0.01, inplace=False)
ELU = function_module("ELU", ops.elu, alpha=1.0, inplace=False)
CELU = function_module("CELU", ops.celu, alpha=1.0, inplace=False)
SELU = function_module("SELU", ops.selu, inplace=False)
GELU = function_module("GELU", ops.gelu, approximate="none")
SiLU = function_module("SiLU", ops.silu, inplace=False)
Mish = function_module("Mish", ops.mish, inplace=False)
Sigmoid = function_module("Sigmoid", ops.sigmoid)
LogSigmoid = function_module("LogSigmoid", ops.logsigmoid)
Tanh = function_module("Tanh", ops.tanh)
Tanhshrink = function_module("Tanhshrink", ops.tanhshrink)
Softplus = function_module("Softplus", ops.softplus, beta=1.0, threshold=20.0)
Softsign = function_module("Softsign", ops.softsign)
Softshrink = function_module("Softshrink", ops.softshrink, lambd=0.5)
Hardshrink = function_module("Hardshrink", ops.hardshrink, lambd=0.5)
Hardswish = function_module("Hardswish", ops.hardswish, inplace=False)
Hardsigmoid = function_module("Hardsigmoid", ops.hardsigmoid, inplace=False)
Hardtanh = function_module("Hardtanh", ops.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Threshold = function_module("Threshold", ops.threshold, "threshold", "value", inplace=False)
GLU = function_module("GLU", ops.glu, dim=-1)
Softmax = function_module("Softmax", ops.softmax, dim=None)
Softmin = function_module("Softmin", ops.softmin, dim=None)
LogSoftmax = function_module("LogSoftmax", ops.log_softmax, dim=None)


def _over_channels(x: Tensor) -> Tensor:
    """Softmax over the channels of images: dimension -3.

    >>> nn.Softmax2d()(ops.ones(cx, (1, 4, 1, 1))).numpy().ravel()
    array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return ops.softmax(x, -3)


Softmax2d = function_module("Softmax2d", _over_channels)


class PReLU(Module):
    """x, or weight x below 0, with one slope or one for each channel (dimension 1).

    >>> nn.PReLU(cx)(cx.constant([-1.0, 2.0])).numpy()
    array([-0.25,  2.  ], dtype=float32)
    """

    def __init__(
        self, graph: Graph, num_parameters: int = 1, init: float = 0.25, dtype: Any = "f32"
    ) -> None:
        super().__init__()
        self.weight = _filled(graph, (num_parameters,), init, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return ops.prelu(x, self.weight)


_filled = init.filled


def _gelu_tanh(x: Tensor) -> Tensor:
    return ops.gelu(x, approximate="tanh")


BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu, "gelu": ops.gelu, "silu": ops.silu, "swish": ops.silu, "tanh": ops.tanh,
    "sigmoid": ops.sigmoid, "mish": ops.mish, "elu": ops.elu, "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh, "quick_gelu": lambda x: x * ops.sigmoid(x * 1.702),
    "hardswish": ops.hardswish, "relu2": lambda x: ops.relu(x) * ops.relu(x),
}  # fmt: skip


def activation_of(given: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function, or the one of a name. Raises Unsupported."""
    if callable(given):
        return given
    if given not in BY_NAME:
        raise Unsupported(f"activation {given!r}; there are {', '.join(BY_NAME)}")
    return BY_NAME[given]
