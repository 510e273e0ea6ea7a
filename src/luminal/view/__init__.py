"""Graphs and plans to look at: `graph.view(path)`, `rt.view(path)`, `luminal view MODEL`."""

from .page import page, write_page

__all__ = ["page", "write_page"]
