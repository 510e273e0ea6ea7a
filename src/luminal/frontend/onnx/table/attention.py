"""Attention and rotary embedding of the standard, where our own form of them is faster than what
their bodies say."""

from __future__ import annotations
