"""Schedule search: the space of a kernel, strategies, measuring, and the tuning database."""

from .database import Database, Tuned, user_path
from .tune import Budget, Task, Tuning, describe

__all__ = ["Budget", "Database", "Task", "Tuned", "Tuning", "describe", "user_path"]
