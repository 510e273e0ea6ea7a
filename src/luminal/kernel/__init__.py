"""Fused kernels, their schedules and loop programs, as data."""
