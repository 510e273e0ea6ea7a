"""The `luminal` command."""

from ..collecting import collected_later

with collected_later():
    from .main import main

__all__ = ["main"]
