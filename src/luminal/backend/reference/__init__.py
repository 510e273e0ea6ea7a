"""The reference backend: what graphs and kernels mean, in NumPy, slow and obvious.

`graph` evaluates a graph node by node, `kernels` a kernel as data: what native code is checked
against. The tests have such oracles for the levels in between.
"""

from .graph import evaluate, meaning, run

__all__ = ["evaluate", "meaning", "run"]
