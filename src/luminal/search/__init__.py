"""Search over plans and schedules: spaces, strategies, measuring, and the tuning database."""

from .database import Database, Tuned, user_path
from .plans import Chosen
from .profile import profile
from .tune import Budget, Task, Tuning, describe

__all__ = [
    "Budget",
    "Chosen",
    "Database",
    "Task",
    "Tuned",
    "Tuning",
    "describe",
    "profile",
    "user_path",
]
