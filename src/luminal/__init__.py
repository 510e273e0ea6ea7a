"""A deep-learning compiler that stays small because it searches.

import luminal

graph = luminal.Graph()
x = graph.tensor(("s", 64))
y = x.softmax(-1).output()
rt = graph.compile()
rt[x] = array
rt.run()
print(rt[y])
"""

from . import nn, ops
from .compiler import load
from .errors import (
    ArtifactError,
    CompileError,
    DeviceError,
    DimError,
    DTypeError,
    InputError,
    LuminalError,
    ShapeError,
    Unsupported,
    WeightsError,
)
from .graph.dtype import DType
from .graph.graph import Graph
from .graph.index import Dim
from .graph.tensor import Tensor
from .models.llm import LLM

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "ArtifactError",
    "CompileError",
    "DType",
    "DTypeError",
    "DeviceError",
    "Dim",
    "DimError",
    "Graph",
    "InputError",
    "LuminalError",
    "ShapeError",
    "Tensor",
    "Unsupported",
    "WeightsError",
    "load",
    "nn",
    "ops",
]
