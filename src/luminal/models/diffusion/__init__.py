"""Diffusion models: pictures from prompts. See `pipeline.py`."""

from .pipeline import Pipeline
from .schedule import SAMPLERS, Schedule, schedule

__all__ = ["SAMPLERS", "Pipeline", "Schedule", "schedule"]
