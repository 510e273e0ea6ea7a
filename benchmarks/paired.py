"""Kept for the scripts beside it; the code is part of the package now."""

from luminal.bench.machine import cpu_name
from luminal.bench.paired import Result, paired

__all__ = ["Result", "cpu_name", "paired"]
