"""Fused kernels as data, their schedules, and one lowering to loop programs."""
