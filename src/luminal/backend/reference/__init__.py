"""The reference backend: what each level of the compiler means, in NumPy, slow and obvious.

`graph` evaluates a graph node by node, `terms` the same over named axes, `engine` saturates an
e-graph, `kernels` evaluates a kernel as data, `program` a loop program statement by statement. All
stages are tested against these.
"""

from .graph import evaluate, meaning, run

__all__ = ["evaluate", "meaning", "run"]
