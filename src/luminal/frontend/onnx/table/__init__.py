"""ONNX's operators in ours: one short function for each.

RULES: by domain and name, a function of the recorder, the operands and the attributes. HOST: the
same of arrays, for what no program of fixed shapes computes. What has no rule and is a function in
the standard, or in the model, is what its body says.
"""

from . import (
    attention,
    control,
    conv,
    elementwise,
    experts,
    fourier,
    fused,
    host,
    index,
    learning,
    microsoft,
    normalisation,
    packed,
    pool,
    quantised,
    quantised_layers,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
    source,
    text,
    trees,
)
from .base import HOST, RULES

TABLES = (
    attention, control, conv, elementwise, experts, fourier, fused, host, index, learning,
    microsoft, normalisation, packed, pool, quantised, quantised_layers, recurrent, reduction,
    resize, sequence, shape, source, text, trees,
)  # fmt: skip

__all__ = ["HOST", "RULES", "TABLES"]
