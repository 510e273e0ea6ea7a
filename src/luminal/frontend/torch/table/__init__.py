"""ATen's operations in ours: one short function for each.

RULES: by name of the overload ("add.Tensor"), a function of the operands. SOURCES: the same, of
the recorder first, for what makes tensors from nothing. Arguments come in ATen's order and under
ATen's names; dtypes and sizes are ours already. The recorder casts each result to the dtype that
PyTorch has for it.
"""

from . import (
    attention,
    backward,
    complex,
    elementwise,
    index,
    layers,
    matrix,
    neural,
    pool,
    reduction,
    sample,
    shape,
    source,
    special,
)
from .base import RULES, SOURCES
from .checks import CHECKS
from .complex import COMPLEX

TABLES = (
    attention, backward, complex, elementwise, index, layers, matrix, neural, pool, reduction,
    sample, shape, source, special,
)  # fmt: skip

__all__ = ["CHECKS", "COMPLEX", "RULES", "SOURCES", "TABLES"]
