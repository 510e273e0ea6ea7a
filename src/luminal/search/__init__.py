"""Search over plans and schedules: spaces, strategies, measuring, and the tuning database."""

from .database import Database, Tuned, user_path
from .plans import Chosen, clearly_better, compared
from .profile import profile
from .tune import Budget, Task, Tuning, describe
from .whole import fastest

__all__ = [
    "Budget",
    "Chosen",
    "Database",
    "Task",
    "Tuned",
    "Tuning",
    "clearly_better",
    "compared",
    "describe",
    "fastest",
    "profile",
    "user_path",
]
