"""Tests that need no server. None of them may depend on how fast the machine is."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
