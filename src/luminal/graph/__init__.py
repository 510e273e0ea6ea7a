"""What a user records: graphs, tensors, sizes, dtypes, and what they mean."""

from .dtype import DType, dtype, promote
from .graph import Graph
from .index import Dim, Index
from .node import Node
from .space import Space
from .tensor import Tensor, register_method

__all__ = [
    "DType",
    "Dim",
    "Graph",
    "Index",
    "Node",
    "Space",
    "Tensor",
    "dtype",
    "promote",
    "register_method",
]
