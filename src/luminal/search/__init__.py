"""Search over plans and schedules: spaces, strategies, measuring, and the tuning database."""
