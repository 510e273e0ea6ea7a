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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .collecting import collected_later
from .errors import (
    ArtifactError,
    CompileError,
    DeviceError,
    DimError,
    DTypeError,
    InputError,
    LuminalError,
    NotFinite,
    ShapeError,
    Unsupported,
    WeightsError,
)

if TYPE_CHECKING:
    from . import nn, ops
    from .graph.dtype import DType
    from .graph.graph import Graph
    from .graph.index import Dim
    from .graph.tensor import Tensor
    from .models.llm import LLM
    from .saved import load

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
    "NotFinite",
    "ShapeError",
    "Tensor",
    "Unsupported",
    "WeightsError",
    "load",
    "nn",
    "ops",
]

_LATER = {  # imported when first asked for: NumPy alone takes as long as a terminal should
    "DType": ".graph.dtype", "Dim": ".graph.index", "Graph": ".graph.graph", "LLM": ".models.llm",
    "Tensor": ".graph.tensor", "load": ".saved",
}  # fmt: skip
_LATER_MODULES = ("graph", "nn", "onnx", "ops", "torch", "train", "view")


def __getattr__(name: str) -> Any:
    with collected_later():
        if name in _LATER_MODULES:
            return import_module(f".{name}", __name__)
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER_MODULES})
