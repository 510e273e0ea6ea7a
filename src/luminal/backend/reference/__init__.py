"""NumPy: the meaning of a graph, with no compiler between. Slow and obvious; the tests' oracle."""

from ...graph.reference import evaluate, meaning, run

__all__ = ["evaluate", "meaning", "run"]
