"""The `luminal` command."""

from .main import main

__all__ = ["main"]
