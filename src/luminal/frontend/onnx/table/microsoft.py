"""Operators of com.microsoft that exporters and optimisers emit."""

from __future__ import annotations
