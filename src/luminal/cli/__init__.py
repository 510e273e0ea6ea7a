"""The `luminal` command."""

from ..collecting import collected_later
from .interrupts import ended_by_interrupts

with ended_by_interrupts(), collected_later():
    from .main import main

__all__ = ["main"]
