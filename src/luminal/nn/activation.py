"""Activation functions as modules, for Sequential: `nn.ReLU(graph)`, `nn.GELU(graph, "tanh")`."""

from __future__ import annotations

from .. import ops
from .conv import function_module

ReLU = function_module("ReLU", ops.relu)
ReLU6 = function_module("ReLU6", ops.relu6)
LeakyReLU = function_module("LeakyReLU", ops.leaky_relu)
ELU = function_module("ELU", ops.elu)
CELU = function_module("CELU", ops.celu)
SELU = function_module("SELU", ops.selu)
GELU = function_module("GELU", ops.gelu)
SiLU = function_module("SiLU", ops.silu)
Mish = function_module("Mish", ops.mish)
Sigmoid = function_module("Sigmoid", ops.sigmoid)
Tanh = function_module("Tanh", ops.tanh)
Softplus = function_module("Softplus", ops.softplus)
Softsign = function_module("Softsign", ops.softsign)
Hardswish = function_module("Hardswish", ops.hardswish)
Hardsigmoid = function_module("Hardsigmoid", ops.hardsigmoid)
Hardtanh = function_module("Hardtanh", ops.hardtanh)
GLU = function_module("GLU", ops.glu)
Softmax = function_module("Softmax", ops.softmax)
LogSoftmax = function_module("LogSoftmax", ops.log_softmax)

BY_NAME = {
    "relu": ops.relu, "gelu": ops.gelu, "silu": ops.silu, "swish": ops.silu, "tanh": ops.tanh,
    "sigmoid": ops.sigmoid, "mish": ops.mish, "elu": ops.elu,
}  # fmt: skip
