"""Shared settings: machines are slow and shared, so no test has a deadline."""

from hypothesis import settings

settings.register_profile("shared", deadline=None, print_blob=True)
settings.load_profile("shared")
