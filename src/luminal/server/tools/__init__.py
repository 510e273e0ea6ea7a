"""Functions that a model may call: found in its replies as they come, or forced by a grammar."""

from .form import CallForm
from .reader import CallReader

__all__ = ["CallForm", "CallReader"]
